//! Pauses of the operator in one partition.
//!
//! A pause of a record is a flag in its context, which only the coordinator changes. A worker that
//! gets the turn of such a record parks it with the turn (`shared.rs`), so that the records behind
//! it wait too, and no worker is occupied.

use std::time::Instant;

use super::super::operator_pauses::OperatorPauses;
use super::super::ordering::{OrderBy, UnkeyedPolicy};
use super::{InFlightEntry, InFlightLimits, PartitionState, RecordState};

impl PartitionState {
    /// Applies the pauses to the partition and to its records in flight.
    pub(in crate::consumer) fn apply_pauses(
        &mut self,
        pauses: &OperatorPauses,
        (order, unkeyed): (&OrderBy, UnkeyedPolicy),
        now: Instant,
    ) {
        let (was_held, before) = (self.is_held, self.paused_records);
        self.is_held = pauses.holds_partition(&self.assignment.partition);
        self.paused_records = 0;
        for (_, entry) in &mut self.in_flight {
            let delivered = &entry.context.delivered;
            let is_paused = self.is_held
                || pauses.has_keys() && {
                    let lane = order.lane_of(delivered, self.assignment.slot, unkeyed);
                    pauses.holds_record(order, delivered, &lane)
                };
            entry.context.set_paused(is_paused);
            self.paused_records += usize::from(is_paused);
        }
        if was_held && !self.is_held || self.paused_records < before {
            // The time of the pause is no time without progress.
            self.moved_at = now;
        }
    }

    /// Returns whether a record could make progress. Records that wait for a stopped one or for the
    /// operator cannot.
    pub(in crate::consumer) fn is_moving(&self, limits: InFlightLimits) -> bool {
        if self.paused_records == 0 && !self.is_held {
            return self.in_flight.len() > self.stuck || self.has_buffered();
        }
        let admits = self.has_buffered() && self.paused_by(limits).is_none();
        admits
            || self.assignment.running() > 0
            || self.entries().any(|entry| !entry.is_stuck() && !entry.context.is_paused())
    }

    /// Returns whether nothing happens here before the operator resumes something: paused records are
    /// left and no other one will come, or the partition is paused, which hides its end.
    pub(in crate::consumer) fn waits_for_resume(&self, limits: InFlightLimits) -> bool {
        let is_last = self.exhausted && self.paused_records > 0;
        (is_last || self.is_held) && !self.is_moving(limits)
    }
}

impl InFlightEntry {
    /// Returns whether the record has stopped its key, or waits for one that has.
    fn is_stuck(&self) -> bool {
        matches!(self.state(), RecordState::Stopped(_) | RecordState::Behind(_))
    }
}
