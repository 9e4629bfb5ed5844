//! Admission: gives polled records to the lanes, as far as limits, pauses and claims allow.

use std::sync::Arc;
use std::time::Instant;

use super::super::StopReason;
use super::super::assignment::Assignment;
use super::super::failure::AttemptFailure;
use super::super::in_flight::{InFlight, RecordContext};
use super::super::partition::{AdmissionRules, AdmittedRecord};
use super::super::worker_event::CompletionKind;
use super::{Coordinator, CoordinatorConfig};
use crate::source::PartitionOwnership;

impl Coordinator {
    /// Returns whether records can be admitted: the order does not reach beyond the partitions of this
    /// consumer. Stops it if it does.
    pub(super) fn may_admit(&mut self) -> bool {
        if !self.awaits_all_partitions || self.ending.is_some() {
            return true;
        }
        match self.source.ownership() {
            PartitionOwnership::All => self.awaits_all_partitions = false,
            PartitionOwnership::Unknown => {}
            PartitionOwnership::Some(missing) => self.stop_in_time(StopReason::NotAlone(missing)),
        }
        !self.awaits_all_partitions
    }

    /// Marks the records that wait for stopped ones, where the order is over all partitions.
    pub(super) fn mark_held(&mut self) {
        self.held.clear();
        let states = self.slots.iter().enumerate();
        let admitted = states.filter_map(|(slot, state)| Some((slot, state.as_ref()?)));
        let admitted = admitted.flat_map(|(slot, state)| {
            state.admitted().map(move |(number, index)| (number, slot, index))
        });
        let mut admitted: Vec<_> = admitted.collect();
        admitted.sort_unstable();
        for (_, slot, index) in admitted {
            if let Some(state) = self.slots[slot].as_mut() {
                state.mark(index, &mut self.held);
            }
        }
    }

    /// Admits buffered records within the limits and sends them to the pool; pauses partitions that
    /// are full and resumes those that have room again.
    pub(super) fn admit(&mut self) {
        let now = self.now();
        let CoordinatorConfig { order, has_limits, unkeyed, limits, .. } = &self.config;
        let mut reject: Vec<(InFlight, AttemptFailure)> = Vec::new();
        let batch = &mut self.batch;
        for state in self.slots.iter_mut().flatten() {
            // Attempts of an earlier assignment of the partition are still being ended.
            let is_earlier = |it: &&Arc<Assignment>| it.slot == state.assignment.slot;
            let mut forced = self.forced.iter().filter(is_earlier);
            if now < self.forced_until && forced.any(|it| it.cancel_hooks.is_any_registered()) {
                continue;
            }
            // Where several records of a key run at once, the lane of a record does not keep it from
            // its own earlier attempt.
            let mut unawaited = self.unawaited.iter().filter(is_earlier);
            if *has_limits && unawaited.any(|earlier| earlier.running() > 0) {
                continue;
            }
            let each = |admitted| match admitted {
                AdmittedRecord::Lanes(lanes, in_flight) => batch.push((lanes, in_flight)),
                AdmittedRecord::Rejected(in_flight, why) => reject.push((in_flight, why)),
            };
            let pauses = &self.pauses;
            let rules = AdmissionRules { order, unkeyed: *unkeyed, limits: *limits, pauses };
            self.counts.repeated += state.admit(rules, &mut self.held, now, each);
            if state.may_pause() {
                state.paused = Some(now);
                self.source.pause(&state.assignment.partition);
            } else if state.may_resume(*limits, now) {
                state.paused = None;
                self.source.resume(&state.assignment.partition);
            }
        }
        if !batch.is_empty() {
            // The pool has capacity for all partitions together and is open while this thread runs.
            let sent = self.lanes.send(batch, &mut self.replaced);
            assert!(sent, "the pool is closed only after this thread has ended");
            self.complete_replaced(now);
        }
        for (in_flight, why) in reject {
            self.shared.reject(in_flight, why);
        }
    }

    /// Completes records that later ones have replaced. If the process dies before such a later record
    /// is complete, that one is delivered again, and with it the state of its key.
    pub(super) fn complete_replaced(&mut self, now: Instant) {
        let mut replaced = std::mem::take(&mut self.replaced);
        for in_flight in replaced.drain(..) {
            let RecordContext { assignment, delivered, index, .. } = &*in_flight.context;
            let (slot, epoch) = (assignment.slot, assignment.epoch);
            // One of an earlier assignment was left to this one, which has delivered it again.
            if self.current(slot, epoch).is_some() {
                let place = (delivered.position, *index);
                self.completed((slot, epoch), place, CompletionKind::Replaced, now);
            }
        }
        self.replaced = replaced;
    }
}
