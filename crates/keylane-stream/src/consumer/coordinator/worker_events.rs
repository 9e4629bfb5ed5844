//! Events of workers and handles: ended and failed attempts, and the order to stop.

use std::time::{Duration, Instant};

use super::super::StopReason;
use super::super::event::{AfterFailure, ConsumerEvent};
use super::super::partition::PartitionState;
use super::super::revocation::RevocationStage;
use super::super::worker_event::{
    CompletionKind, FailedAttempt, FailureAction, StopCancellation, WorkerEvent,
};
use super::{Coordinator, slot_of};
use crate::Position;

impl Coordinator {
    pub(super) fn read_events(&mut self) {
        self.shared.mailbox.take(&mut self.worker_events);
        self.handle_worker_events();
    }

    pub(super) fn handle_worker_events(&mut self) {
        let now = self.now();
        let mut worker_events = std::mem::take(&mut self.worker_events);
        for event in worker_events.drain(..) {
            match event {
                WorkerEvent::Ended { slot, epoch, position, index, completion } => {
                    self.completed((slot, epoch), (position, index), completion, now);
                }
                WorkerEvent::Failed(failed) => self.failed(*failed),
                WorkerEvent::Cancelled => self.counts.cancelled += 1,
                WorkerEvent::Stop { within, cancellation } => {
                    self.stop(StopReason::Asked, within, cancellation);
                }
                WorkerEvent::Status(reply) => {
                    // The receiver is gone if the caller's timeout has passed.
                    let _ = reply.send(self.status());
                }
                WorkerEvent::Operate(command) => self.operate(*command),
            }
        }
        self.worker_events = worker_events;
    }

    /// Returns the state of the partition if the epoch is its current one and is not fenced.
    pub(super) fn current(&mut self, slot: usize, epoch: u64) -> Option<&mut PartitionState> {
        let state = self.slots[slot].as_mut()?;
        (state.assignment.epoch == epoch && !state.assignment.is_fenced()).then_some(state)
    }

    pub(super) fn completed(
        &mut self,
        (slot, epoch): (usize, u64),
        (position, index): (Position, usize),
        completion: CompletionKind,
        now: Instant,
    ) {
        let Some(state) = self.current(slot, epoch) else {
            self.counts.fenced += 1;
            self.tainted |= completion == CompletionKind::Produced;
            return;
        };
        if !state.completed(position, index, now) {
            return;
        }
        match completion {
            CompletionKind::Handled | CompletionKind::Produced => self.counts.handled += 1,
            CompletionKind::Skipped => self.counts.skipped += 1,
            CompletionKind::DeadLettered => self.counts.dead_lettered += 1,
            CompletionKind::Replaced => self.counts.replaced += 1,
        }
    }

    fn failed(&mut self, failed: FailedAttempt) {
        let assignment = failed.context.assignment.clone();
        let (position, attempt) = (failed.context.delivered.position, failed.attempt);
        let (failure, then) = (failed.failure.clone(), AfterFailure::from(&failed.then));
        if attempt > 0 && !matches!(then, AfterFailure::DeadLetterRefused(_)) {
            self.counts.failed_attempts += 1;
        }
        let partition = assignment.partition.clone();
        let stops = then == AfterFailure::Stop;
        self.emit(&ConsumerEvent::Failed {
            partition: partition.clone(),
            position,
            attempt,
            failure: failure.clone(),
            then,
        });
        let order = (&self.config.order.clone(), self.config.unkeyed);
        let has_stopped = matches!(failed.then, FailureAction::StopKey(_));
        let Some(state) = self.current(assignment.slot, assignment.epoch) else { return };
        state.failed(failed, order);
        if has_stopped && self.config.order.is_over_partitions() {
            self.mark_held();
        }
        if stops {
            let why = StopReason::Failed { partition, position, failure };
            self.stop_in_time(why);
        }
    }

    /// Starts the shutdown with the configured time for running attempts.
    pub(super) fn stop_in_time(&mut self, why: StopReason) {
        self.stop(why, self.config.shutdown_timeout, StopCancellation::BeforeDeadline);
    }

    /// Starts the shutdown, or brings its deadline forward.
    fn stop(&mut self, why: StopReason, within: Duration, cancellation: StopCancellation) {
        let now = self.now();
        let by = now + within;
        let cancel_at = match cancellation {
            StopCancellation::BeforeDeadline => self.cancel_at(now, within),
            StopCancellation::Now => now,
        };
        self.ending.get_or_insert(why);
        self.stop_by = Some(self.stop_by.map_or(by, |sooner| sooner.min(by)));
        self.stop_cancels_at =
            Some(self.stop_cancels_at.map_or(cancel_at, |sooner| sooner.min(cancel_at)));
        let until = self.last_commit_until(self.now());
        for revocation in &mut self.revocations {
            if let RevocationStage::Committing { deadline } = &mut revocation.stage {
                *deadline = until.min(*deadline);
            }
        }
        let left: Vec<_> = self.partitions().filter(|state| !state.closing).map(slot_of).collect();
        if !left.is_empty() {
            self.start_revocation(left, within, Vec::new());
        }
    }

    /// Returns when running attempts that have a time `within` from `now` are cancelled.
    pub(super) fn cancel_at(&self, now: Instant, within: Duration) -> Instant {
        now + (within - self.config.cancel_grace.min(within / 2))
    }
}
