//! Results of attempts: ended records make progress, failed ones stop their lanes.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use super::super::in_flight::RecordContext;
use super::super::ordering::{LaneId, OrderBy, RecordLane, UnkeyedPolicy};
use super::super::stopped_lanes::StoppedLanes;
use super::super::worker_event::{FailedAttempt, FailureAction};
use super::{FailedState, InFlightEntry, MAX_IDLE_CAPACITY, PartitionState, RecordState};
use crate::Position;
use slab::Slab;

impl PartitionState {
    /// Marks a record as complete. Returns `false` if it was complete before; then nothing changes.
    pub(in crate::consumer) fn completed(
        &mut self,
        position: Position,
        index: usize,
        now: Instant,
    ) -> bool {
        // The slab may have reused the index. A position is admitted once per assignment, so it
        // identifies the entry.
        if self.in_flight.get(index).is_none_or(|entry| entry.position() != position) {
            return false;
        }
        let done = self.tracker.complete(position);
        debug_assert!(done.is_ok(), "a record with an entry is admitted and incomplete");
        let entry = self.in_flight.remove(index);
        // With a limit per key it can have begun before its key stopped.
        self.stuck -= usize::from(matches!(entry.state(), RecordState::Behind(_)));
        self.paused_records -= usize::from(entry.context.is_paused());
        self.bytes -= entry.bytes;
        if self.in_flight.is_empty() && self.in_flight.capacity() > MAX_IDLE_CAPACITY {
            // Release the memory of a burst.
            self.in_flight = Slab::new();
        }
        self.moved_at = now;
        self.commit.changed(now);
        self.commit.completed += 1;
        true
    }

    /// Records the failure of an attempt.
    pub(in crate::consumer) fn failed(
        &mut self,
        failed: FailedAttempt,
        order: (&OrderBy, UnkeyedPolicy),
    ) {
        // The slab may have reused the index; the context identifies the entry.
        let entry = self.in_flight.get_mut(failed.context.index);
        let entry = entry.filter(|entry| Arc::ptr_eq(&entry.context, &failed.context));
        let Some(entry) = entry else { return };
        let state = match failed.then {
            FailureAction::Retry(at) => RecordState::Retry(at),
            // The completion follows as the next event.
            FailureAction::Skip => RecordState::Running,
            FailureAction::DeadLetter => RecordState::DeadLetter(None),
            FailureAction::DeadLetterRefused(why) => RecordState::DeadLetter(Some(why)),
            FailureAction::StopKey(record) | FailureAction::StopAll(record) => {
                RecordState::Stopped(record)
            }
        };
        let stopped = matches!(state, RecordState::Stopped(_));
        self.stuck -= usize::from(matches!(entry.state(), RecordState::Behind(_)));
        let failure = Some(failed.failure);
        entry.failed_state = Some(Box::new(FailedState { failed: failed.attempt, failure, state }));
        if stopped {
            self.stuck += 1;
            self.stop_lane(&failed.context, order);
        }
    }

    /// Marks the records behind a stopped record as blocked.
    fn stop_lane(&mut self, stopped: &RecordContext, (order, unkeyed): (&OrderBy, UnkeyedPolicy)) {
        let slot = self.assignment.slot;
        let lane = |context: &RecordContext| match order.lane_of(&context.delivered, slot, unkeyed)
        {
            RecordLane::Lane(lane) => Some(lane),
            RecordLane::Set(_) | RecordLane::Unordered | RecordLane::Rejected(_) => None,
        };
        let Some(stopped_lane) = lane(stopped) else { return };
        let position = stopped.delivered.position;
        for (_, entry) in &mut self.in_flight {
            let is_behind = entry.context.delivered.position > position;
            if is_behind && lane(&entry.context).as_ref() == Some(&stopped_lane) {
                entry.context.hold();
                // With a limit per key it can have failed already, and then runs again.
                if matches!(entry.state(), RecordState::Running) {
                    entry.failed_state_mut().state = RecordState::Behind(position);
                    self.stuck += 1;
                }
            }
        }
        self.stopped.insert(stopped_lane, position);
    }

    /// Returns the lanes of the records in flight.
    pub(in crate::consumer) fn lanes(
        &self,
        (order, unkeyed): (&OrderBy, UnkeyedPolicy),
    ) -> HashSet<LaneId> {
        let slot = self.assignment.slot;
        let lanes = self.entries().flat_map(|entry| {
            match order.lane_of(&entry.context.delivered, slot, unkeyed) {
                RecordLane::Lane(lane) => vec![lane],
                RecordLane::Set(claims) => claims.exclusive,
                RecordLane::Unordered => {
                    vec![LaneId::Record { slot, position: entry.position() }]
                }
                RecordLane::Rejected(_) => Vec::new(),
            }
        });
        lanes.collect()
    }

    /// Returns the records in flight with several lanes: the number of each in the order of all partitions,
    /// and its index here.
    pub(in crate::consumer) fn admitted(&self) -> impl Iterator<Item = (u64, usize)> {
        let number = |(index, entry): (usize, &InFlightEntry)| {
            entry.lanes.as_ref().map(|lanes| (lanes.number, index))
        };
        self.in_flight.iter().filter_map(number)
    }

    /// Marks a record as waiting for a stopped one, or not, and adds its lanes to the held ones if so.
    /// Called in the order of all partitions.
    pub(in crate::consumer) fn mark(&mut self, index: usize, held: &mut StoppedLanes) {
        if let Some(entry) = self.in_flight.get_mut(index) {
            entry.mark(held, &mut self.stuck);
        }
    }
}
