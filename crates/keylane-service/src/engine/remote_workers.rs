//! API for remote workers: claim leases, renew them with heartbeats, and end them.

use std::sync::Arc;
use std::time::Duration;

use keylane_storage::ThreadNotify;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::attempt_ends::AttemptEnds;
use super::clock::Clock;
use super::dispatch::payload_of;
use super::engine_state::{EngineState, RunningAttempt, SharedState};
use super::leases::Leases;
use super::persistence::Persistence;
use super::scheduler_job::admit_leases;
use super::timer::timeout;
use crate::handle::{AttemptFailure, AttemptOutput};
use crate::kind::KindExecutor;
use crate::kind_registry::KindRegistry;
use crate::request_error::RequestError;
use crate::scheduler::Step;
use crate::store::Store;
use crate::wire::{HeartbeatResponse, Lease, Timestamp};

/// Maximum wait for work in one request: below the timeout of most proxies.
pub(crate) const MAX_CLAIM_WAIT: Duration = Duration::from_secs(60);

/// Maximum number of leases in one request.
pub(crate) const MAX_LEASES: u32 = 1000;

/// Timeout of a closed claim for leases that were promised to it and are on their way to the disk.
const GRANT_TIMEOUT: Duration = Duration::from_secs(5);

/// Open claim for work. If it is dropped before its [end](Self::end), because the client has
/// disconnected, the claim is removed and its leases are withdrawn for another worker.
struct WorkClaim {
    workers: Arc<RemoteWorkers>,
    number: u64,
    kinds: Vec<u32>,
    given: Arc<super::work_claims::GrantQueue>,
    is_over: bool,
}

impl WorkClaim {
    /// Removes the claim and returns its leases. Leases are handed over under the lock of the
    /// engine state, so none arrives later.
    fn end(&mut self, engine: &mut EngineState, now: Timestamp) -> Vec<u64> {
        self.is_over = true;
        engine.claimers.leave(self.number);
        admit_leases(&self.workers.kinds, engine, self.kinds.iter().copied(), now);
        self.given.take()
    }

    /// Stops promises to the claim. Returns true if a promised lease is still on its way to the
    /// disk.
    fn close(&self) -> bool {
        let mut engine = self.workers.state.lock();
        let now = self.workers.clock.now();
        let awaits = engine.claimers.close(self.number);
        admit_leases(&self.workers.kinds, &mut engine, self.kinds.iter().copied(), now);
        awaits
    }
}

impl Drop for WorkClaim {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let workers = Arc::clone(&self.workers);
        let mut engine = workers.state.lock();
        let now = workers.clock.now();
        for fence in self.end(&mut engine, now) {
            workers.leases.withdraw(&mut engine, fence, now);
        }
        workers.persistence.write_next(&mut engine);
        drop(engine);
        workers.wake.notify();
    }
}

/// API for remote workers.
#[derive(Debug)]
pub(crate) struct RemoteWorkers {
    pub(super) state: Arc<SharedState>,
    pub(super) clock: Arc<Clock>,
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) store: Store,
    pub(super) leases: Arc<Leases>,
    pub(super) ends: Arc<AttemptEnds>,
    pub(super) persistence: Arc<Persistence>,
    /// Wakes the dispatcher.
    pub(super) wake: Arc<ThreadNotify>,
    /// Cancelled when the service starts to shut down.
    pub(super) draining: CancellationToken,
}

impl RemoteWorkers {
    /// Grants at most `most` subtasks of these kinds to a remote worker. Waits up to `wait` for the
    /// first one, and no longer than until `closing`.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        kinds: &[String],
        most: u32,
        wait: Duration,
        worker: Option<String>,
        closing: &CancellationToken,
    ) -> Result<Vec<Lease>, RequestError> {
        let kinds = self.leased_kinds(kinds)?;
        let mut ask = {
            let mut engine = self.state.lock();
            let now = self.clock.now();
            if engine.is_draining {
                return Err(RequestError::Draining);
            }
            let (number, given) = engine.claimers.ask(kinds.clone(), most, worker);
            admit_leases(&self.kinds, &mut engine, kinds.iter().copied(), now);
            WorkClaim { workers: Arc::clone(self), number, kinds, given, is_over: false }
        };
        self.wake.notify();
        // A minimum wait, so that the dispatcher can respond.
        let wait = wait.max(Duration::from_millis(5));
        tokio::select! {
            biased;
            _ = timeout(wait, ask.given.arrived.notified()) => {}
            () = closing.cancelled() => {}
            () = self.draining.cancelled() => {}
        }
        let granted = async {
            while ask.close() {
                ask.given.arrived.notified().await;
            }
        };
        let _ = timeout(GRANT_TIMEOUT, granted).await;
        let fences = ask.end(&mut self.state.lock(), self.clock.now());
        Ok(fences.into_iter().filter_map(|fence| self.lease(fence)).collect())
    }

    fn leased_kinds(&self, names: &[String]) -> Result<Vec<u32>, RequestError> {
        let wrong = |index: usize, why: String| {
            RequestError::Invalid(vec![(format!("/kinds/{index}"), why)])
        };
        if names.is_empty() {
            return Err(RequestError::Invalid(vec![(
                "/kinds".into(),
                "`kinds` is empty; name at least one kind".into(),
            )]));
        }
        let mut kinds = Vec::new();
        for (index, name) in names.iter().enumerate() {
            let number = self.kinds.number(name);
            let number =
                number.ok_or_else(|| wrong(index, format!("there is no kind `{name}`")))?;
            if !matches!(self.kinds.get(number).work, KindExecutor::Lease { .. }) {
                return Err(wrong(index, format!("`{name}` is not for remote workers")));
            }
            kinds.push(number);
        }
        kinds.sort_unstable();
        kinds.dedup();
        Ok(kinds)
    }

    /// Returns the API form of a lease. `None` if it has ended meanwhile, or ends here because its
    /// payload cannot be read.
    fn lease(self: &Arc<Self>, fence: u64) -> Option<Lease> {
        let (job, number, mut lease) = {
            let engine = self.state.lock();
            let running = engine.running.get(&fence)?;
            let (live, held) = (engine.live.get(&running.job)?, running.lease.as_ref()?);
            let shown = super::step_numbers::shown(running.step);
            let trace = live.head.trace.as_ref();
            let lease = Lease {
                id: format!("lease_{fence}_{shown}_{}", live.id),
                job: live.id.to_string(),
                kind: live.head.kind.clone(),
                number: shown,
                keys: running.keys.exclusive.iter().map(super::query::text_of).collect(),
                shared_keys: running.keys.shared.iter().map(super::query::text_of).collect(),
                attempt: running.attempt,
                fence,
                payload: super::split_result::null(),
                traceparent: trace.map(|trace| trace.traceparent().to_owned()),
                tracestate: trace.and_then(|trace| trace.tracestate().map(str::to_owned)),
                expires_at: held.ends(),
            };
            (running.job, running.number, lease)
        };
        let payload = match payload_of(&self.store, job, number) {
            Ok(payload) => payload,
            Err(failure) => {
                self.ends.finished(fence, Err(failure));
                return None;
            }
        };
        if let Ok(raw) = RawValue::from_string(String::from_utf8_lossy(&payload).into_owned()) {
            lease.payload = raw;
        }
        Some(lease)
    }

    /// Returns the fence in a lease's id, if the lease is held.
    fn held(engine: &EngineState, id: &str) -> Result<u64, RequestError> {
        let mut words = id.strip_prefix("lease_").unwrap_or_default().splitn(3, '_');
        let fence = words.next().and_then(|word| word.parse().ok());
        let number: Option<u32> = words.next().and_then(|word| word.parse().ok());
        let (Some(fence), Some(number), Some(job)) = (fence, number, words.next()) else {
            return Err(RequestError::Unknown { what: format!("lease {id}") });
        };
        let is_held = |running: &&RunningAttempt| {
            running.lease.as_ref().is_some_and(|held| held.promised_to.is_none())
        };
        let running = engine.running.get(&fence).filter(is_held);
        let is_this = running.is_some_and(|running| {
            let live = engine.live.get(&running.job);
            running.step == Step::Subtask(number)
                && live.is_some_and(|live| live.id.to_string() == job)
        });
        if is_this { Ok(fence) } else { Err(RequestError::LeaseLost) }
    }

    /// Renews a lease.
    pub(crate) fn heartbeat(&self, id: &str) -> Result<HeartbeatResponse, RequestError> {
        let mut engine = self.state.lock();
        let now = self.clock.now();
        let fence = Self::held(&engine, id)?;
        let running = engine.running.get_mut(&fence).expect("the lease was just found");
        let cancel = running.cancel.is_cancelled();
        let held = running.lease.as_mut().expect("the run has a lease");
        held.renew(now);
        Ok(HeartbeatResponse { expires_at: held.ends(), cancel })
    }

    /// Completes a lease with success. Returns when that is on the disk.
    pub(crate) async fn complete(
        self: &Arc<Self>,
        id: &str,
        result: Option<Box<RawValue>>,
        log: Option<String>,
    ) -> Result<(), RequestError> {
        let fence = self.held_saying(id, log)?;
        self.end_lease(fence, Ok(result)).await
    }

    /// Completes a lease with a failure. Returns when that is on the disk.
    pub(crate) async fn fail(
        self: &Arc<Self>,
        id: &str,
        failure: AttemptFailure,
        log: Option<String>,
    ) -> Result<(), RequestError> {
        let fence = self.held_saying(id, log)?;
        self.end_lease(fence, Err(failure)).await
    }

    /// Returns the fence of a held lease, after adding the worker's log to its attempt.
    fn held_saying(&self, id: &str, log: Option<String>) -> Result<u64, RequestError> {
        let mut engine = self.persistence.writable_engine()?;
        let fence = Self::held(&engine, id)?;
        if let Some(said) = log {
            let running = engine.running.get_mut(&fence).expect("the lease was just found");
            running.log = AttemptOutput::keeping(self.kinds.get(running.kind).log_bytes);
            running.log.say(said.as_bytes());
        }
        Ok(fence)
    }

    async fn end_lease(
        self: &Arc<Self>,
        fence: u64,
        answer: crate::handle::AttemptResult,
    ) -> Result<(), RequestError> {
        if !self.ends.finished(fence, answer) {
            return Err(RequestError::LeaseLost);
        }
        self.persistence.all_written().await
    }
}
