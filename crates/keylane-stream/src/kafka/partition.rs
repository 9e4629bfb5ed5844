//! State of an assigned Kafka partition.

use super::epochs::Epochs;
use super::ffi::TopicId;
use super::pause_buffer::PauseBuffer;
use super::topic_partition::TopicPartition;
use crate::Position;
use crate::source::Partition;
use crate::tracker::Progress;

use super::start_offset::identity;

/// An assigned partition, from its assignment to its release.
#[derive(Debug)]
pub(super) struct OwnedPartition {
    pub(super) partition: Partition,
    /// Topic id; `None` if the broker has no ids.
    pub(super) id: Option<TopicId>,
    /// Identity of the progress, for the map beside the offset.
    pub(super) identity: Vec<u8>,
    /// Next position. Records below were delivered, are buffered, or do not exist.
    pub(super) next: Position,
    /// Progress at the assignment.
    pub(super) begun: Progress,
    /// Watermark of the last commit.
    pub(super) stored: Position,
    /// Watermark of the commit in progress.
    pub(super) committing: Option<Position>,
    /// Whether the next position is being resolved with the broker. Until then no record is
    /// delivered, and nothing is committed.
    pub(super) resolving: bool,
    /// Leader epochs of the delivered records.
    pub(super) epochs: Epochs,
    /// Position where the log was truncated, if leader epochs show that.
    pub(super) truncated_at: Option<Position>,
    pub(super) pause_buffer: PauseBuffer,
}

impl OwnedPartition {
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
            resolving: false,
            epochs: Epochs::new((watermark, committed), (end, map)),
            truncated_at: None,
            pause_buffer: PauseBuffer::default(),
        }
    }
}
