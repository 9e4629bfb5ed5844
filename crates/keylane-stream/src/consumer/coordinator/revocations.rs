//! Revocations: ends the attempts of partitions, waits for their last commit, and releases them.

use std::time::{Duration, Instant};

use super::super::assignment::Assignment;
use super::super::cancellation::Cancellation;
use super::super::event::ConsumerEvent;
use super::super::partition::PartitionState;
use super::super::revocation::{Revocation, RevocationStage};
use super::super::{StopReason, StoppedKey};
use super::{Coordinator, FORCED_END_TIMEOUT, FenceCause, MIN_CLOSE_TIMEOUT};
use crate::Partition;

/// Timeout of the last commit of a partition. After it the partition is released without that
/// commit.
const LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(10);

/// Minimum timeout of the last commit when the shutdown deadline has passed.
const MIN_LAST_COMMIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout of the reports of attempts whose end was forced, when they have no effects any more.
const REPORT_TIMEOUT: Duration = Duration::from_secs(1);

impl Coordinator {
    pub(super) fn start_revocation(
        &mut self,
        slots: Vec<usize>,
        within: Duration,
        release: Vec<Partition>,
    ) {
        let now = self.now();
        let stage = RevocationStage::Awaiting {
            cancel_at: self.cancel_at(now, within),
            deadline: now + within,
        };
        for slot in &slots {
            let Some(state) = self.slots[*slot].as_mut() else { continue };
            state.close();
            self.shared.timer.purge(state.assignment.epoch);
            self.withdraw(*slot);
        }
        self.revocations.push(Revocation { slots, release, stage });
    }

    /// Drops the records of a closed partition that wait for the rates: they would not start, but each
    /// would take its time from others.
    pub(super) fn withdraw(&self, slot: usize) {
        let Some(state) = self.slots[slot].as_ref().filter(|_| self.lanes.has_rates()) else {
            return;
        };
        let order = (&self.config.order, self.config.unkeyed);
        state.lanes(order).iter().for_each(|lane| self.lanes.withdraw(lane));
    }

    /// Stops the consumer if no partition can make progress any more.
    pub(super) fn stop_if_finished(&mut self) {
        let limits = self.config.limits;
        let is_left = self.partitions().next().is_none()
            || self.partitions().any(|state| !state.is_finished(limits));
        if self.ending.is_none() && !is_left {
            return self.stop_in_time(StopReason::Exhausted);
        }
        self.tell_of_pauses();
    }

    /// Advances each revocation by the steps that are possible now.
    pub(super) fn advance_revocations(&mut self) {
        for mut revocation in std::mem::take(&mut self.revocations) {
            if !self.advance(&mut revocation) {
                self.revocations.push(revocation);
            }
        }
    }

    /// Advances a revocation and returns whether it is finished.
    fn advance(&mut self, revocation: &mut Revocation) -> bool {
        let now = self.now();
        if revocation.is_awaiting() {
            if !self.have_ended(revocation, now) {
                return false;
            }
            self.fence(&revocation.slots, FenceCause::Released);
            revocation.stage =
                RevocationStage::Committing { deadline: self.last_commit_until(now) };
        }
        let RevocationStage::Committing { deadline } = revocation.stage else { return true };
        if !self.is_committed(&revocation.slots, now) && now < deadline && !self.source_is_dead {
            return false;
        }
        if self.ending.is_some() {
            let left = self.of(revocation).filter(|state| state.has_uncommitted());
            let left: Vec<_> = left.map(|state| state.assignment.partition.clone()).collect();
            self.uncommitted.extend(left);
        }
        for slot in &revocation.slots {
            self.drop_partition(*slot);
        }
        if !revocation.release.is_empty() {
            self.source.release(&revocation.release);
        }
        true
    }

    /// Advances the wait for the running attempts of a revocation, and returns whether it is over:
    /// they have ended, or are not awaited any longer.
    fn have_ended(&mut self, revocation: &mut Revocation, now: Instant) -> bool {
        if self.awaits_lost(revocation, now) {
            return false;
        }
        if let RevocationStage::Awaiting { cancel_at, deadline } = revocation.stage {
            if self.of(revocation).all(|state| state.assignment.running() == 0) {
                return true;
            }
            let (cancel_at, deadline) = self.before_stop(cancel_at, deadline);
            if now >= cancel_at {
                self.cancel(&revocation.slots, Cancellation::Requested);
            }
            if now < deadline {
                return false;
            }
            let report_by = now + self.cancel(&revocation.slots, Cancellation::Forced);
            revocation.stage =
                RevocationStage::Forcing { deadline: now + FORCED_END_TIMEOUT, report_by };
        }
        let RevocationStage::Forcing { deadline, report_by } = revocation.stage else {
            return true;
        };
        if self.has_cancelled(revocation) {
            return now >= deadline;
        }
        now >= report_by || self.of(revocation).all(|state| state.assignment.running() == 0)
    }

    /// Returns whether attempts of earlier assignments of its partitions, which were lost, are still being
    /// ended.
    fn awaits_lost(&self, revocation: &Revocation, now: Instant) -> bool {
        let mut lost = self.forced.iter().filter(|it| revocation.release.contains(&it.partition));
        now < self.forced_until && lost.any(|it| it.cancel_hooks.is_any_registered())
    }

    /// Returns whether cancelled attempts of a revocation have not ended.
    fn has_cancelled(&self, revocation: &Revocation) -> bool {
        self.of(revocation).any(|state| state.assignment.cancel_hooks.is_any_registered())
    }

    /// Cancels the running attempts of these partitions. Returns the time for the reports of their
    /// ends: none if none has a hook.
    pub(super) fn cancel(&self, slots: &[usize], stage: Cancellation) -> Duration {
        let states = slots.iter().filter_map(|slot| self.slots[*slot].as_ref());
        let count: usize = states.map(|it| self.cancel_assignment(&it.assignment, stage)).sum();
        if count > 0 { REPORT_TIMEOUT } else { Duration::ZERO }
    }

    /// Cancels the running attempts of an assignment, and returns their number.
    fn cancel_assignment(&self, assignment: &Assignment, stage: Cancellation) -> usize {
        let is_first = !assignment.cancel_hooks.is_cancelled();
        let attempts = assignment.cancel_hooks.cancel(stage);
        if is_first && attempts > 0 {
            let partition = assignment.partition.clone();
            self.emit(&ConsumerEvent::Cancelled { partition, attempts });
        }
        attempts
    }

    /// Returns the times at which attempts are cancelled, and no longer awaited. A stop brings them
    /// forward.
    fn before_stop(&self, cancel_at: Instant, deadline: Instant) -> (Instant, Instant) {
        let sooner = |at: Instant, stop: Option<Instant>| stop.map_or(at, |stop| stop.min(at));
        (sooner(cancel_at, self.stop_cancels_at), sooner(deadline, self.stop_by))
    }

    /// Returns the deadline of the last commit. During shutdown it leaves time to close the source.
    pub(super) fn last_commit_until(&self, now: Instant) -> Instant {
        let longest = now + LAST_COMMIT_TIMEOUT;
        let Some(by) = self.stop_by else { return longest };
        let before = by.checked_sub(MIN_CLOSE_TIMEOUT).unwrap_or(now);
        before.max(now + MIN_LAST_COMMIT_TIMEOUT).min(longest)
    }

    /// Returns the partitions of a revocation that are still assigned.
    pub(super) fn of<'a>(
        &'a self,
        revocation: &'a Revocation,
    ) -> impl Iterator<Item = &'a PartitionState> {
        revocation.slots.iter().filter_map(|slot| self.slots[*slot].as_ref())
    }

    /// Returns the time of the next step of a revocation.
    pub(super) fn next_step(&self, revocation: &Revocation, now: Instant) -> Instant {
        if revocation.is_awaiting() && self.awaits_lost(revocation, now) {
            return self.forced_until;
        }
        match revocation.stage {
            RevocationStage::Awaiting { cancel_at, deadline } => {
                let (cancel_at, deadline) = self.before_stop(cancel_at, deadline);
                let mut running = self.of(revocation).filter(|s| s.assignment.running() > 0);
                let is_cancelled = |s: &PartitionState| s.assignment.cancel_hooks.is_cancelled();
                match running.next() {
                    None => now,
                    Some(first) if is_cancelled(first) && running.all(is_cancelled) => deadline,
                    Some(_) => cancel_at,
                }
            }
            RevocationStage::Forcing { deadline, .. } if self.has_cancelled(revocation) => deadline,
            RevocationStage::Forcing { report_by, .. } => {
                let runs = self.of(revocation).any(|state| state.assignment.running() > 0);
                if runs { report_by } else { now }
            }
            RevocationStage::Committing { .. }
                if self.of(revocation).all(PartitionState::has_nothing_to_commit) =>
            {
                now
            }
            // A transactional commit is scheduled by `next_transaction`.
            RevocationStage::Committing { deadline } if self.source.is_transactional() => deadline,
            RevocationStage::Committing { deadline } => self
                .of(revocation)
                .filter_map(PartitionState::committable_at)
                .fold(deadline, Instant::min),
        }
    }

    /// Fences these partitions: later answers of their attempts are ignored.
    pub(super) fn fence(&mut self, slots: &[usize], cause: FenceCause) {
        // Attempts that ended before the fence have put their events into the mailbox
        // (`assignment.rs`).
        self.read_events();
        let now = self.now();
        for slot in slots {
            // A partition that is revoked during shutdown is in two revocations; the second finds
            // it fenced.
            let Some(state) =
                self.slots[*slot].as_ref().filter(|state| !state.assignment.is_fenced())
            else {
                continue;
            };
            state.assignment.fence();
            let awaited = match cause {
                FenceCause::Released => 0,
                FenceCause::Lost => state.assignment.cancel_hooks.registered(),
            };
            let running = state.assignment.running();
            self.shared.timer.purge(state.assignment.epoch);
            self.shared.dead_letters.purge_fenced();
            if self.ending.is_some() {
                self.abandoned += running.saturating_sub(awaited);
            } else {
                self.unawaited.retain(|assignment| assignment.running() > 0);
                self.unawaited.push(state.assignment.clone());
            }
            let partition = state.assignment.partition.clone();
            if self.ending.is_some() {
                let stopped = state.stopped(now);
                let partition = partition.clone();
                let stopped =
                    stopped.map(|record| StoppedKey { partition: partition.clone(), record });
                self.stopped.extend(stopped);
            }
            self.emit(&ConsumerEvent::Released { partition, running });
        }
    }

    pub(super) fn drop_partition(&mut self, slot: usize) {
        let state = self.slots[slot].take();
        self.tainted |= state.as_ref().is_some_and(PartitionState::has_uncommitted);
        if self.ending.is_none() && self.config.order.is_over_partitions() {
            self.mark_held();
        }
        // Dropping the guards lets the next records of their keys start; these find the assignment
        // closed.
        drop(state);
    }
}
