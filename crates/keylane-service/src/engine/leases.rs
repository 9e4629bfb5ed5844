//! Begin and end of leases, except for the workers' own requests: promise, delivery, withdrawal,
//! loss, timeout, cancellation, and recovery after a restart. The two-step grant is explained in
//! `work_claims.rs`.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;

use super::attempt_ends::AttemptEnds;
use super::attempt_signals::AttemptSignals;
use super::clock::millis;
use super::engine_state::{CommitEffect, EngineState, RunningAttempt};
use super::logs::log_of;
use super::scheduler_job::admit_leases;
use super::work_claims::LeaseState;
use crate::handle::AttemptFailure;
use crate::kind::{Kind, KindExecutor};
use crate::kind_registry::KindRegistry;
use crate::scheduler::{RestoredState, RunEnd, Step};
use crate::store::{AttemptStage, LatestAttempt};
use crate::wire::Timestamp;
use crate::{JobNumber, SubtaskId, SubtaskNumber, TaskKeys};

/// Lease that a worker had when the previous process ended.
#[derive(Debug)]
pub(super) struct SurvivingLease {
    pub(super) subtask: SubtaskNumber,
    pub(super) attempt: u32,
    pub(super) fence: u64,
    pub(super) since: Timestamp,
    pub(super) worker: Option<String>,
}

/// Returns the maximum total duration of an attempt under a lease: the smaller of the job's timeout
/// and the kind's maximum.
fn max_duration(kind: &Kind, timeout: Option<Duration>) -> Duration {
    timeout.map_or(kind.max_lease, |timeout| timeout.min(kind.max_lease))
}

/// Leases of remote workers, from the promise to the end.
#[derive(Debug)]
pub(super) struct Leases {
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) ends: Arc<AttemptEnds>,
    /// Tracker of the leases held by remote workers.
    pub(super) held: TaskTracker,
}

impl Leases {
    /// Promises a subtask to the matching claim. The lease is handed over when its start mark is on
    /// the disk.
    pub(super) fn promise(
        &self,
        engine: &mut EngineState,
        fence: u64,
        mut running: RunningAttempt,
        lasts: Duration,
        now: Timestamp,
    ) {
        let promised = running.kind;
        let promise = engine.claimers.promise(promised);
        let promise = promise.expect("a kind starts no more than its open claims take");
        engine.workers.lease_begins(promise.worker);
        let worker = engine.workers.name(promise.worker).map(Into::into);
        let stage = AttemptStage::Leased { fence, since_ms: now.0, worker };
        let subtask = SubtaskId { job: running.job, number: running.number };
        engine.unwritten.changes.mark(subtask, LatestAttempt { attempt: running.attempt, stage });
        engine.unwritten.effects.push(CommitEffect::Granted { fence });
        let never = Timestamp(u64::MAX);
        running.lease = Some(LeaseState {
            worker: promise.worker,
            lasts,
            expires: never,
            deadline: never,
            promised_to: Some(promise.to),
        });
        running.awaited = Some(self.held.token());
        engine.running.insert(fence, running);
        // The promised kind may run as many as before: a claimed place has become a lease.
        let others = promise.kinds.into_iter().filter(|kind| *kind != promised);
        admit_leases(&self.kinds, engine, others, now);
    }

    /// Hands over the leases whose start marks are on the disk.
    pub(super) fn hand_granted(&self, engine: &mut EngineState, now: Timestamp) {
        while let Some(fence) = engine.granted.pop_front() {
            self.hand(engine, fence, now);
        }
    }

    /// Hands over a lease whose start mark is on the disk; its time begins.
    fn hand(&self, engine: &mut EngineState, fence: u64, now: Timestamp) {
        let Some(running) = engine.running.get_mut(&fence) else { return };
        let (job, kind) = (running.job, running.kind);
        let Some(held) = &mut running.lease else { return };
        let Some(ask) = held.promised_to.take() else { return };
        let timeout = engine.live.get(&job).and_then(|live| live.head.timeout());
        let most = max_duration(&self.kinds.get(kind), timeout);
        held.renew(now);
        held.deadline = Timestamp(now.0.saturating_add(millis(most)));
        let ends = held.ends();
        if engine.claimers.hand(ask, fence) {
            engine.expect_expiry(ends);
        } else {
            self.withdraw(engine, fence, now);
        }
    }

    /// Withdraws a lease that no worker has seen, or that its worker returns: its attempt does not
    /// count.
    pub(super) fn withdraw(&self, engine: &mut EngineState, fence: u64, now: Timestamp) {
        let Some(running) = engine.running.remove(&fence) else { return };
        let failure = AttemptFailure::passing("its lease was withdrawn");
        self.ends.end_with(engine, running, fence, RunEnd::Withdrawn, Err(failure), now);
    }

    /// Ends expired leases: as lost, or as failed if they exceeded their maximum duration.
    pub(super) fn end_expired(&self, engine: &mut EngineState, now: Timestamp) {
        if engine.next_expiry.is_none_or(|at| at > now) {
            return;
        }
        let is_late = |running: &RunningAttempt| {
            running.lease.as_ref().is_some_and(|lease| lease.ends() <= now)
        };
        let late = engine.running.iter().filter(|(_, running)| is_late(running));
        let late: Vec<u64> = late.map(|(fence, _)| *fence).collect();
        for fence in late {
            self.lose(engine, fence, now);
        }
        let leases = engine.running.values().filter_map(|running| running.lease.as_ref());
        engine.next_expiry = leases.map(LeaseState::ends).min();
    }

    /// Ends a lease without an answer of its worker, or at its maximum duration.
    pub(super) fn lose(&self, engine: &mut EngineState, fence: u64, now: Timestamp) {
        let Some(running) = engine.running.remove(&fence) else { return };
        let held = running.lease.as_ref().expect("only leases are lost");
        if held.deadline > now {
            engine.totals.leases_lost += 1;
            let failure = AttemptFailure::passing("its lease ended without an answer");
            return self.ends.end_with(engine, running, fence, RunEnd::Lost, Err(failure), now);
        }
        let timeout = engine.live.get(&running.job).and_then(|live| live.head.timeout());
        let most = max_duration(&self.kinds.get(running.kind), timeout);
        let failure = AttemptFailure::passing(format!("it took longer than {most:?}"));
        let end = RunEnd::Failed { retry_at: self.ends.retry_at(&running, &failure, now) };
        self.ends.end_with(engine, running, fence, end, Err(failure), now);
    }

    /// Ends the leases of a cancelled job, regardless of their workers.
    pub(super) fn kill(&self, engine: &mut EngineState, job: JobNumber, now: Timestamp) {
        let of_job = |running: &RunningAttempt| running.job == job && running.lease.is_some();
        let leases = engine.running.iter().filter(|(_, running)| of_job(running));
        let leases: Vec<u64> = leases.map(|(fence, _)| *fence).collect();
        for fence in leases {
            let Some(running) = engine.running.remove(&fence) else { continue };
            let failure = AttemptFailure::passing("its job was cancelled");
            self.ends.end_with(engine, running, fence, RunEnd::Lost, Err(failure), now);
        }
    }

    /// Restores a lease that a worker had when the previous process ended: with its fence and
    /// attempt, and with a full duration as after a heartbeat. The downtime of the server counts
    /// towards the maximum duration, but at least one full duration remains to complete it. Returns
    /// false if the lease is no longer valid.
    pub(super) fn keep(
        &self,
        engine: &mut EngineState,
        job: JobNumber,
        kind: u32,
        keys: TaskKeys,
        survivor: SurvivingLease,
        now: Timestamp,
    ) -> bool {
        let KindExecutor::Lease { lasts, .. } = self.kinds.get(kind).work else { return false };
        let SurvivingLease { subtask, attempt, fence, since, worker } = survivor;
        let was = RestoredState::Running { fence, since: since.0 };
        if !engine.scheduler.restore(job, subtask, was, now.0) {
            return false;
        }
        let step = Step::Subtask(subtask);
        let Some(live) = engine.live.get(&job) else { return false };
        let (number, timeout) = (live.plan.number(step), live.head.timeout());
        let most = max_duration(&self.kinds.get(kind), timeout);
        let expires = Timestamp(now.0.saturating_add(millis(lasts)));
        // The clock may have been set back meanwhile.
        let begun = since.min(now);
        let deadline = Timestamp(begun.0.saturating_add(millis(most))).max(expires);
        engine.check_order(SubtaskId { job, number: subtask }, &keys);
        let slot = engine.slots.take();
        let worker = engine.workers.restore_lease(worker.as_deref(), self.ends.clock.steady_ms());
        let running = RunningAttempt {
            since_steady_ms: None,
            job,
            step,
            number,
            attempt,
            kind,
            rule: keylane_allocate::Rule::Keep,
            slot,
            since,
            keys,
            signals: AttemptSignals::leased(),
            log: log_of(&self.kinds.get(kind), step),
            lease: Some(LeaseState { worker, lasts, expires, deadline, promised_to: None }),
            awaited: Some(self.held.token()),
        };
        engine.running.insert(fence, running);
        engine.expect_expiry(expires);
        engine.claimers.restore(kind);
        admit_leases(&self.kinds, engine, [kind], now);
        true
    }
}

#[cfg(test)]
#[path = "grant_tests.rs"]
mod tests;
