//! Dispatcher thread: starts the next subtask whenever a slot, a key and its start time allow it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keylane_process::Registry;
use keylane_storage::ThreadNotify;
use parking_lot::MutexGuard;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attempt::{AttemptRunner, PreparedAttempt};
use super::attempt_ends::AttemptEnds;
use super::attempt_signals::AttemptSignals;
use super::clock::Clock;
use super::engine_state::{CommitEffect, EngineState, RunningAttempt, SharedState};
use super::executor::{Dispatcher, Executor};
use super::leases::Leases;
use super::logs::log_of;
use super::persistence::Persistence;
use super::query::Query;
use super::store_status::{StoreHealth, StoreStatus};
use super::traces::Traces;
use crate::handle::{Attempt, AttemptFailure, Step as Handled};
use crate::kind::KindExecutor;
use crate::kind_registry::KindRegistry;
use crate::scheduler::{RunStart, Step};
use crate::store::Store;
use crate::wire::Timestamp;
use crate::{SubtaskId, TaskKeys};

/// Maximum number of starts per critical section, so that other threads get the lock.
pub(super) const AT_ONCE: usize = 64;

/// Maximum number of effects on their way to the disk while subtasks are started: more than a slow
/// disk writes at a time, and little memory.
const MAX_UNWRITTEN: usize = 20_000;

/// Dispatcher of the service.
pub(super) struct SubtaskDispatcher {
    pub(super) state: Arc<SharedState>,
    pub(super) clock: Arc<Clock>,
    pub(super) status: Arc<StoreStatus>,
    pub(super) kinds: Arc<KindRegistry>,
    /// Registry of the processes that handlers start.
    pub(super) children: Registry,
    /// Local attempts, from their start until their handlers end.
    pub(super) tasks: TaskTracker,
    pub(super) executor: Executor,
    pub(super) store: Store,
    pub(super) query: Arc<Query>,
    pub(super) persistence: Arc<Persistence>,
    pub(super) ends: Arc<AttemptEnds>,
    pub(super) leases: Arc<Leases>,
    pub(super) traces: Arc<Traces>,
    pub(super) runner: Arc<AttemptRunner>,
    /// Wakes the dispatcher.
    pub(super) wake: Arc<ThreadNotify>,
    /// Cancelled when the service has stopped.
    pub(super) stopped: CancellationToken,
    /// Runs to start; empty between two steps.
    pub(super) starts: Vec<PreparedAttempt>,
}

impl Dispatcher for SubtaskDispatcher {
    fn step(&mut self) -> Option<Duration> {
        if self.stopped.is_cancelled() {
            return None;
        }
        let mut starts = std::mem::take(&mut self.starts);
        let wait = self.next_starts(&mut starts);
        let is_idle = starts.is_empty();
        for begin in starts.drain(..) {
            self.launch(begin);
        }
        self.starts = starts;
        Some(if is_idle { wait } else { Duration::ZERO })
    }

    fn notify(&self) -> &ThreadNotify {
        &self.wake
    }
}

impl SubtaskDispatcher {
    /// Returns the duration for which nothing can start, and adds the runs that can start now to
    /// `starts`.
    fn next_starts(&self, starts: &mut Vec<PreparedAttempt>) -> Duration {
        /// Maximum sleep: the dispatcher also checks for expired leases.
        const MAX_SLEEP: Duration = Duration::from_secs(1);
        let mut guard = self.state.lock();
        let engine = &mut *guard;
        engine.follow_clock(&self.clock);
        let now = self.clock.now();
        // A batch that failed must be written before new work starts. While it is retried it is not
        // in `refused`, so the health is checked too.
        let is_full = engine.refused.is_some()
            || matches!(*self.status.health(), StoreHealth::Full | StoreHealth::Unavailable);
        let has_database = self.store.may_start_work();
        if !std::mem::replace(&mut engine.has_database, has_database) && has_database {
            engine.renew_leases(now);
        }
        // The end of a lease could not be written either.
        if !is_full && has_database {
            self.leases.end_expired(engine, now);
        }
        self.leases.hand_granted(engine, now);
        // Before anything starts.
        let more_expire = engine.expire_due(now);
        let more_decisions = engine.decide_about_dependents(now);
        engine.take_due(now);
        engine.enter_slice(now);
        self.admit_held_back(engine, starts);
        let next = engine.scheduler.next_fence().max(engine.versions.next());
        if let Some(boot) = engine.fences.next_reservation(next) {
            engine.unwritten.changes.raise_boot(boot);
            engine.unwritten.effects.push(CommitEffect::Reserved { boot });
        }
        let may_start = !is_full
            // Asked again: it is about this moment.
            && self.store.may_start_work()
            && engine.unwritten.effects.len() < MAX_UNWRITTEN;
        while may_start
            && starts.len() < AT_ONCE
            && engine.fences.has(engine.scheduler.next_fence())
        {
            let Some(start) = engine.scheduler.poll_start(now.0) else { break };
            if let Some(begin) = self.register(engine, start, now) {
                starts.push(begin);
            }
        }
        self.persistence.write_next(engine);
        let next =
            engine.scheduler.next_timeout().into_iter().chain(engine.next_job_expiry()).min();
        let next = next.map_or(MAX_SLEEP, |at| self.clock.until(at));
        let is_left = engine.scheduler.has_work() || more_expire || more_decisions;
        let trash = engine.scheduler.take_trash();
        // Fair, so that waiting threads get the lock between two slices.
        MutexGuard::unlock_fair(guard);
        drop(trash);
        if is_left { Duration::ZERO } else { next.min(MAX_SLEEP) }
    }

    /// Registers a start in the engine state. Returns `None` if no run begins here now: the subtask
    /// was leased, or its start mark must be written first.
    fn register(
        &self,
        engine: &mut EngineState,
        start: RunStart,
        now: Timestamp,
    ) -> Option<PreparedAttempt> {
        let (kind, steady_ms) = (start.kind.0, self.clock.steady_ms());
        engine.totals.starts += 1;
        let mut keys: TaskKeys = engine.scheduler.keys_of(start.fence).collect();
        keys.limit = engine.live.get(&start.job).map_or(0, |live| live.head.limit());
        if let Step::Subtask(number) = start.step {
            engine.check_order(SubtaskId { job: start.job, number }, &keys);
        }
        let number = engine.live.get(&start.job).map_or(0, |live| live.plan.number(start.step));
        let leased = match &self.kinds.get(kind).work {
            KindExecutor::Lease { lasts, .. } if matches!(start.step, Step::Subtask(_)) => {
                Some(*lasts)
            }
            _ => None,
        };
        let mut running = RunningAttempt {
            job: start.job,
            step: start.step,
            number,
            attempt: start.attempt,
            kind,
            rule: start.rule,
            slot: engine.slots.take(),
            since: now,
            since_steady_ms: Some(steady_ms),
            keys,
            signals: leased.map_or_else(AttemptSignals::local, |_| AttemptSignals::leased()),
            log: log_of(&self.kinds.get(kind), start.step),
            lease: None,
            awaited: None,
        };
        if let Some(live) = engine.live.get_mut(&start.job) {
            if let Some(placed_ms) = live.placed_ms.take_if(|_| live.started.is_none()) {
                engine.durations.job_waits.record(steady_ms.saturating_sub(placed_ms));
            }
            live.started.get_or_insert(now);
            live.note_start(steady_ms, engine.released_ms);
            live.touch(&mut engine.versions);
        }
        engine.changed.insert(start.job);
        let subtask = SubtaskId { job: start.job, number };
        if let Some(lasts) = leased {
            self.leases.promise(engine, start.fence, running, lasts, now);
            return None;
        }
        engine.unwritten.changes.started(subtask, start.attempt);
        running.awaited = Some(self.tasks.token());
        // A fan-in reads all results, so its start waits until they are on the disk.
        if engine.careful.contains(&start.job) || start.step == Step::FanIn {
            engine.running.insert(start.fence, running);
            engine.unwritten.effects.push(CommitEffect::Marked { fence: start.fence });
            return None;
        }
        let begin = self.begin_of(engine, start.fence, &running);
        engine.running.insert(start.fence, running);
        begin
    }

    /// Starts the attempts whose start marks are on the disk.
    fn admit_held_back(&self, engine: &mut EngineState, starts: &mut Vec<PreparedAttempt>) {
        while let Some(fence) = engine.held_back.pop_front() {
            let Some(running) = engine.running.get(&fence) else { continue };
            starts.extend(self.begin_of(engine, fence, running));
        }
    }

    /// Returns what a handler of this process gets. `None` for a lease, and for a job that is gone.
    fn begin_of(
        &self,
        engine: &EngineState,
        fence: u64,
        running: &RunningAttempt,
    ) -> Option<PreparedAttempt> {
        let AttemptSignals::Local { cancel, progress } = &running.signals else { return None };
        let live = engine.live.get(&running.job)?;
        let timeout = live.head.timeout();
        let attempt = Attempt {
            job: live.id,
            kind: self.kinds.name(running.kind),
            step: match running.step {
                Step::Split => Handled::Split,
                Step::Subtask(number) => Handled::Subtask(number),
                Step::FanIn => Handled::FanIn,
            },
            keys: running.keys.exclusive.clone(),
            shared_keys: running.keys.shared.clone(),
            number: running.attempt,
            fence,
            payload: Bytes::new(),
            trace: self.traces.context_of(live, running, fence),
            log: running.log.clone(),
            progress: progress.clone(),
            cancelled: cancel.clone(),
            children: self.children.clone(),
        };
        Some(PreparedAttempt {
            fence,
            attempt,
            number: running.number,
            kind: running.kind,
            timeout,
        })
    }

    /// Loads the payload and passes the attempt to the runtime. The read may take a moment and
    /// holds no lock.
    fn launch(&self, mut begin: PreparedAttempt) {
        let runner = Arc::clone(&self.runner);
        if begin.attempt.step == Handled::FanIn {
            let run = attempt_fan_in(runner, Arc::clone(&self.query), self.executor.clone(), begin);
            self.tasks.spawn_on(run, self.executor.handle());
            return;
        }
        match payload_of(&self.store, begin.attempt.job.number(), begin.number) {
            Ok(payload) => {
                begin.attempt.payload = payload;
                self.tasks.spawn_on(runner.run(begin), self.executor.handle());
            }
            Err(failure) => drop(self.ends.finished(begin.fence, Err(failure))),
        }
    }
}

/// Runs a fan-in attempt. Its payload is all results of the job; reading them takes a while and
/// delays no other attempt.
async fn attempt_fan_in(
    runner: Arc<AttemptRunner>,
    query: Arc<Query>,
    executor: Executor,
    mut begin: PreparedAttempt,
) {
    let job = begin.attempt.job;
    let read = executor.blocking(move || query.results_for_fan_in(job)).await;
    let failed = |panic: tokio::task::JoinError| Err(AttemptFailure::passing(panic.to_string()));
    match read.unwrap_or_else(failed) {
        Ok(payload) => {
            begin.attempt.payload = payload;
            runner.run(begin).await;
        }
        Err(failure) => drop(runner.ends.finished(begin.fence, Err(failure))),
    }
}

/// Returns a subtask's payload from the store, or from the cache.
pub(super) fn payload_of(
    store: &Store,
    job: crate::JobNumber,
    number: u32,
) -> Result<Bytes, AttemptFailure> {
    let chunk = store.chunk(job, number);
    let chunk = chunk
        .map_err(|error| AttemptFailure::passing(format!("its payload cannot be read: {error}")))?;
    let subtask = chunk.subtask(number);
    let subtask =
        subtask.ok_or_else(|| AttemptFailure::lasting("its payload is not in the store"))?;
    Ok(Bytes::copy_from_slice(subtask.payload()))
}
