//! Events of the source: assigned, revoked and lost partitions, ends of commits, and errors.

use super::super::StopReason;
use super::super::assignment::Assignment;
use super::super::cancellation::Cancellation;
use super::super::event::ConsumerEvent;
use super::super::partition::PartitionState;
use super::{Coordinator, FORCED_END_TIMEOUT, FenceCause, slot_of};
use crate::Partition;
use crate::source::{CommitError, PartitionAssignment, SourceError, SourceEvent};

impl Coordinator {
    /// Stops the consumer, or, if it is stopping already, gives up on the source.
    pub(super) fn source_failed(&mut self, error: SourceError) {
        if self.ending.is_none() {
            self.stop_in_time(StopReason::Source(error));
        } else {
            self.source_is_dead = true;
        }
    }

    pub(super) fn handle_events(&mut self) {
        let mut events = std::mem::take(&mut self.events);
        let moves = |event: &SourceEvent| {
            matches!(
                event,
                SourceEvent::Assigned(_) | SourceEvent::Revoked(_) | SourceEvent::Lost(_)
            )
        };
        self.counts.rebalances += u64::from(events.iter().any(moves));
        for event in events.drain(..) {
            match event {
                SourceEvent::Assigned(assigned) => self.assigned(&assigned),
                SourceEvent::Records { partition, records } => {
                    self.with(&partition, |state| state.push_records(records));
                }
                SourceEvent::Reached { partition, position } => {
                    self.with(&partition, |state| state.reached(position));
                }
                SourceEvent::Missed { positions, .. } => self.counts.missed += positions,
                SourceEvent::Exhausted(partition) => {
                    self.with(&partition, |state| state.exhausted = true);
                }
                SourceEvent::Committed { partition, result } => self.committed(&partition, result),
                SourceEvent::Revoked(partitions) => self.revoked(partitions),
                SourceEvent::Lost(partitions) => self.lost(&partitions),
                SourceEvent::Aborted => {
                    self.tainted = false;
                    self.aborting = false;
                }
                SourceEvent::Notice(text) => self.emit(&ConsumerEvent::Source(text)),
            }
        }
        self.events = events;
    }

    /// Applies a function to a partition if it is assigned.
    fn with(&mut self, partition: &Partition, act: impl FnOnce(&mut PartitionState)) {
        let slot = self.slot_of.get(partition).copied();
        if let Some(state) = slot.and_then(|slot| self.slots[slot].as_mut()) {
            act(state);
        }
    }

    fn assigned(&mut self, assigned: &PartitionAssignment) {
        if self.ending.is_some() {
            return;
        }
        let partition = &assigned.partition;
        let slot = *self.slot_of.entry(partition.clone()).or_insert_with(|| {
            self.slots.push(None);
            self.slots.len() - 1
        });
        if self.slots[slot].is_some() {
            // The source has not reported the loss of the earlier assignment; the newer event
            // counts.
            self.lost(std::slice::from_ref(partition));
        }
        self.awaits_all_partitions = self.config.order.is_over_partitions();
        self.epoch += 1;
        let assignment = Assignment::new(partition.clone(), slot, self.epoch);
        let mut state = PartitionState::new(assigned, assignment, self.now());
        let order = (&self.config.order, self.config.unkeyed);
        state.apply_pauses(&self.pauses, order, self.now());
        self.slots[slot] = Some(state);
        self.emit(&ConsumerEvent::Assigned(partition.clone()));
    }

    fn committed(&mut self, partition: &Partition, result: Result<(), CommitError>) {
        match &result {
            Ok(()) => self.counts.commits += 1,
            Err(_) => self.counts.failed_commits += 1,
        }
        self.with(partition, |state| {
            state.committed(&result);
        });
        if let Err(error) = result {
            self.emit(&ConsumerEvent::NotCommitted { partition: partition.clone(), error });
        }
    }

    fn revoked(&mut self, partitions: Vec<Partition>) {
        let slots = partitions.iter().filter_map(|partition| self.slot_of.get(partition).copied());
        // Partitions that are already in revocation are included: they are released only when both
        // have finished.
        let slots: Vec<_> = slots.filter(|slot| self.slots[*slot].is_some()).collect();
        if !self.config.order.is_over_partitions() || self.ending.is_some() {
            return self.start_revocation(slots, self.config.shutdown_timeout, partitions);
        }
        // Records of the other partitions conflict with those that another member will have, so all
        // of them end before it gets these.
        let all = self.partitions().map(slot_of).collect();
        let names = partitions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        self.start_revocation(all, self.config.shutdown_timeout, partitions);
        self.stop_in_time(StopReason::NotAlone(format!(
            "the group gives {names} to another member"
        )));
    }

    fn lost(&mut self, partitions: &[Partition]) {
        let slots = partitions.iter().filter_map(|partition| self.slot_of.get(partition).copied());
        let slots: Vec<_> = slots.filter(|slot| self.slots[*slot].is_some()).collect();
        self.awaits_all_partitions = self.config.order.is_over_partitions();
        self.fence(&slots, FenceCause::Lost);
        for revocation in &mut self.revocations {
            revocation.forget(&slots, partitions);
        }
        // Other members may handle the records already.
        self.cancel(&slots, Cancellation::Forced);
        let assignments = slots.iter().filter_map(|slot| self.slots[*slot].as_ref());
        self.forced.extend(assignments.map(|state| state.assignment.clone()));
        self.forced_until = self.now() + FORCED_END_TIMEOUT;
        for slot in slots {
            // Lanes over all partitions also have records of the others.
            if !self.config.order.is_over_partitions() {
                self.withdraw(slot);
            }
            self.drop_partition(slot);
        }
    }
}
