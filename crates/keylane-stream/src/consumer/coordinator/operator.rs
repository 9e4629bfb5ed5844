//! Commands of the operator: pause, resume, retry.

use super::super::event::ConsumerEvent;
use super::super::in_flight::InFlight;
use super::super::ordering::LaneSet;
use super::super::partition::{OperatorRetries, PartitionState};
use super::super::target::{ControlError, Target};
use super::super::worker_event::OperatorCommand;
use super::Coordinator;

impl Coordinator {
    pub(super) fn operate(&mut self, command: OperatorCommand) {
        // The receiver of an answer is gone if the caller's timeout has passed.
        match command {
            OperatorCommand::Pause(target, reply) => _ = reply.send(self.pause(&target)),
            OperatorCommand::Resume(target, reply) => _ = reply.send(self.resume(&target)),
            OperatorCommand::Retry(target, reply) => _ = reply.send(self.retry(&target)),
        }
    }

    fn pause(&mut self, target: &Target) -> Result<bool, ControlError> {
        let is_new = self.pauses.add(target, self.now())?;
        if is_new {
            self.apply_pauses(target);
            self.emit(&ConsumerEvent::Paused(target.clone()));
        }
        Ok(is_new)
    }

    fn resume(&mut self, target: &Target) -> bool {
        let was_paused = self.pauses.remove(target);
        if was_paused {
            self.apply_pauses(target);
            // After the flags of the records have changed.
            self.shared.timer.unpark(self.now());
            self.emit(&ConsumerEvent::Resumed(target.clone()));
        }
        was_paused
    }

    /// Applies the pauses after that of `target` has begun or ended.
    fn apply_pauses(&mut self, target: &Target) {
        self.told_of_pauses = false;
        let now = self.now();
        let order = (&self.config.order, self.config.unkeyed);
        for state in self.slots.iter_mut().flatten() {
            if target.concerns(&state.assignment.partition) {
                state.apply_pauses(&self.pauses, order, now);
            }
        }
    }

    /// Tries the records of a target again that wait for that, and returns their number.
    fn retry(&mut self, target: &Target) -> usize {
        let now = self.now();
        let order = (&self.config.order, self.config.unkeyed);
        let mut retries = OperatorRetries::default();
        for state in self.slots.iter_mut().flatten() {
            if !state.closing && target.concerns(&state.assignment.partition) {
                state.retry(target, order, now, &mut retries);
            }
        }
        let OperatorRetries { waiting, stopped, behind } = retries;
        let records = waiting.len() + stopped.len();
        self.shared.timer.hurry(&waiting, now);
        if !stopped.is_empty() {
            self.retry_stopped(stopped, behind);
        }
        if records > 0 {
            self.emit(&ConsumerEvent::Retried { target: target.clone(), records });
        }
        records
    }

    /// Lets stopped records be tried again, each in the turn that it has kept.
    fn retry_stopped(&mut self, stopped: Vec<InFlight>, mut behind: Vec<(LaneSet, InFlight)>) {
        let now = self.now();
        if self.config.order.is_over_partitions() {
            self.mark_held();
        }
        // At the ends of their lanes, before any record that is admitted from now on.
        let sent = self.lanes.send(&mut behind, &mut self.replaced);
        assert!(sent, "the pool is closed only after this thread has ended");
        self.complete_replaced(now);
        stopped.into_iter().for_each(|in_flight| self.shared.timer.schedule(now, in_flight));
        // Records that an earlier one does not hold any more.
        self.shared.timer.unpark(now);
    }

    /// Reports that the consumer does not end because paused records are left, once for each change of
    /// the pauses.
    pub(super) fn tell_of_pauses(&mut self) {
        if self.told_of_pauses || self.pauses.is_empty() || self.ending.is_some() {
            return;
        }
        let limits = self.config.limits;
        let is_over =
            |state: &PartitionState| state.waits_for_resume(limits) || state.is_finished(limits);
        // A consumer without any exhausted partition is not about to end.
        if self.partitions().any(|state| state.exhausted) && self.partitions().all(is_over) {
            self.told_of_pauses = true;
            self.emit(&ConsumerEvent::WaitsForResume);
        }
    }
}
