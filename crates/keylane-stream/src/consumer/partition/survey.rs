//! Status of a partition for people: what it waits for, and its oldest records.

use std::time::{Duration, Instant};

use super::super::status::{PartitionStatus, PendingRecord};
use super::{InFlightEntry, InFlightLimits, MAX_BLOCKED_LISTED, PartitionState, RecordState};
use crate::Position;

impl PartitionState {
    pub(in crate::consumer) fn status(
        &self,
        limits: InFlightLimits,
        end: Option<Position>,
        resolving_since: Option<Instant>,
        now: Instant,
    ) -> PartitionStatus {
        let (mut blocked, mut oldest) = (Vec::new(), None);
        for entry in self.entries() {
            if entry.is_blocked() {
                blocked.push(entry);
            }
            if entry.position() == self.tracker.watermark() {
                oldest = Some(entry);
            }
        }
        blocked.sort_unstable_by_key(|entry| entry.position());
        let blocked_count = blocked.len();
        let listed = blocked.into_iter().take(MAX_BLOCKED_LISTED);
        let without_progress = if self.is_moving(limits) {
            now.saturating_duration_since(self.moved_at)
        } else if self.is_held {
            Duration::ZERO
        } else {
            let resolving = resolving_since.map(|since| now.saturating_duration_since(since));
            self.waits_for_source(end, now).max(resolving.unwrap_or_default())
        };
        let uncommitted_since = self.commit.uncommitted_since;
        PartitionStatus {
            partition: self.assignment.partition.clone(),
            epoch: self.assignment.epoch,
            committed: self.commit.committed,
            watermark: self.tracker.watermark(),
            highest_done: self.tracker.end(),
            end,
            in_flight: self.in_flight.len(),
            running: self.assignment.running(),
            bytes: self.bytes,
            buffered: self.buffer.records(),
            paused_records: self.paused_records,
            paused_by: self.paused_by(limits),
            oldest: oldest.map(|entry| entry.status(now)),
            blocked: listed.map(|entry| entry.status(now)).collect(),
            blocked_count,
            without_progress,
            uncommitted: uncommitted_since
                .map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
        }
    }

    /// Returns for how long statuses have seen that the source is ahead of the delivered records
    /// while the partition is not paused.
    fn waits_for_source(&self, end: Option<Position>, now: Instant) -> Duration {
        let is_behind = end.is_some_and(|end| end > self.arrived) && self.paused.is_none();
        let same = self.behind.get().filter(|(arrived, _)| *arrived == self.arrived);
        let behind = (is_behind && !self.closing).then(|| same.unwrap_or((self.arrived, now)));
        self.behind.set(behind);
        behind.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(since))
    }

    /// Returns the records that have stopped their lanes.
    pub(in crate::consumer) fn stopped(&self, now: Instant) -> impl Iterator<Item = PendingRecord> {
        let stopped = |entry: &&InFlightEntry| matches!(entry.state(), RecordState::Stopped(_));
        self.entries().filter(stopped).map(move |entry| entry.status(now))
    }
}
