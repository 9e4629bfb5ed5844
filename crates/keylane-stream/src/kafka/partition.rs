//! State of an assigned Kafka partition.

use std::time::Instant;

use super::epochs::LeaderEpochs;
use super::ffi::TopicId;
use super::topic_partition::TopicPartition;
use crate::Position;
use crate::source::{Partition, PartitionAssignment, SourceEvent};
use crate::tracker::{OffsetMapLimit, Progress};

use super::start_offset::{self, identity};

/// An assigned partition, from its assignment to its release.
#[derive(Debug)]
pub(super) struct OwnedPartition {
    pub(super) partition: Partition,
    /// Topic id; `None` if the broker has no ids.
    pub(super) id: Option<TopicId>,
    /// Identity of the progress, for the map beside the offset.
    pub(super) identity: Vec<u8>,
    /// Next position. Records below were delivered, or do not exist.
    pub(super) next: Position,
    /// Progress at the assignment.
    pub(super) begun: Progress,
    /// Watermark of the last commit.
    pub(super) stored: Position,
    /// Watermark of the commit in progress.
    pub(super) committing: Option<Position>,
    /// Time since when the next position is being resolved with the broker. Until it is, no record
    /// is delivered, and nothing is committed.
    pub(super) resolving: Option<Instant>,
    /// Leader epochs of the delivered records.
    pub(super) epochs: LeaderEpochs,
    /// Position where the log was truncated, if leader epochs show that.
    pub(super) truncated_at: Option<Position>,
    /// Whether the consumer has paused the partition: its queue is not read. The client then fetches as much as for any
    /// queue that is read slowly (`queued.min.messages`, `queued.max.messages.kbytes`), and keeps it. Its own pause would
    /// discard that.
    pub(super) is_paused: bool,
    /// Whether the client was told to stop fetching, because nothing is left to read.
    pub(super) is_stopped: bool,
    /// One past the last position to deliver, if there is such an end.
    pub(super) end: Option<Position>,
    /// Whether the end was reported. Nothing is delivered after it.
    pub(super) is_ended: bool,
}

impl OwnedPartition {
    /// Continues at a later position, and reports the skipped ones as missed.
    pub(super) fn skip_to(&mut self, to: Position, events: &mut Vec<SourceEvent>) {
        let positions = start_offset::open(&self.begun, self.next, to);
        self.next = to;
        let partition = self.partition.clone();
        events.push(SourceEvent::Missed { partition: partition.clone(), positions });
        events.push(SourceEvent::Reached { partition: partition.clone(), position: to });
        events.extend(self.ends_now().then_some(SourceEvent::Exhausted(partition)));
    }

    /// Creates the state of a partition that begins at `progress`. `committed` is the leader epoch
    /// of the record before its watermark, `map` the highest one below its end.
    pub(super) fn new(
        name: &TopicPartition,
        id: Option<TopicId>,
        progress: &Progress,
        (committed, map): (Option<u32>, Option<u32>),
    ) -> Self {
        let (watermark, end) = (progress.watermark(), progress.end());
        OwnedPartition {
            partition: name.partition(),
            id,
            identity: identity(name, id),
            next: progress.watermark(),
            begun: progress.clone(),
            stored: progress.watermark(),
            committing: None,
            resolving: None,
            epochs: LeaderEpochs::new((watermark, committed), (end, map)),
            truncated_at: None,
            is_paused: false,
            is_stopped: false,
            end: None,
            is_ended: false,
        }
    }

    /// Stops the delivery until the next position is resolved. Returns whether that is new.
    pub(super) fn resolve(&mut self) -> bool {
        let is_new = self.resolving.is_none();
        self.resolving.get_or_insert_with(Instant::now);
        is_new
    }

    /// Sets the end, if there is one.
    pub(super) fn until(mut self, end: Option<Position>) -> Self {
        self.end = end;
        self
    }

    /// Returns whether nothing is left to read, for the first time.
    pub(super) fn ends_now(&mut self) -> bool {
        let ends = !self.is_ended && self.end.is_some_and(|end| self.next >= end);
        self.is_ended |= ends;
        ends
    }

    /// Reports the assignment, and the end if nothing is left to read.
    pub(super) fn report(
        &mut self,
        progress: Progress,
        limit: OffsetMapLimit,
        events: &mut Vec<SourceEvent>,
    ) {
        let partition = self.partition.clone();
        let assigned = PartitionAssignment { partition: partition.clone(), progress, limit };
        events.push(SourceEvent::Assigned(assigned));
        if self.ends_now() {
            events.push(SourceEvent::Exhausted(partition));
        }
    }
}
