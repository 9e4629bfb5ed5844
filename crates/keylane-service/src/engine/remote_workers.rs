//! API for remote workers: claims for work. `lease_reports.rs` has heartbeats and ends of leases.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use keylane_storage::ThreadNotify;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::attempt_ends::AttemptEnds;
use super::clock::{Clock, millis};
use super::dispatch::payload_of;
use super::engine_state::{EngineState, SharedState};
use super::leases::Leases;
use super::persistence::Persistence;
use super::scheduler_job::admit_leases;
use super::timer::timeout;
use super::traces::Traces;
use crate::kind::KindExecutor;
use crate::kind_registry::KindRegistry;
use crate::request_error::RequestError;
use crate::store::Store;
use crate::wire::{Lease, Timestamp};
use crate::{JobNumber, SubtaskNumber};

/// Maximum wait for work in one request: below the timeout of most proxies.
pub(crate) const MAX_CLAIM_WAIT: Duration = Duration::from_secs(60);

/// Maximum number of leases in one request.
pub(crate) const MAX_LEASES: u32 = 1000;

/// Timeout of a closed claim for leases that were promised to it and are on their way to the disk.
const GRANT_TIMEOUT: Duration = Duration::from_secs(5);

/// Request of a remote worker for work.
#[derive(Debug)]
pub(crate) struct WorkRequest {
    /// Kinds that the worker accepts.
    pub(crate) kinds: Vec<String>,
    /// Maximum number of leases.
    pub(crate) most: u32,
    /// Time to wait for the first one.
    pub(crate) wait: Duration,
    /// Name of the worker.
    pub(crate) worker: Option<String>,
    /// Token of the worker.
    pub(crate) token: WorkerToken,
}

/// Token with which a worker calls.
#[derive(Clone, Debug)]
pub(crate) struct WorkerToken {
    pub(crate) name: String,
    /// Kinds that it is for; `None` for all.
    pub(crate) kinds: Option<Arc<BTreeSet<String>>>,
}

impl WorkerToken {
    /// Returns whether it is for a kind.
    pub(super) fn is_for(&self, kind: &str) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }

    #[cfg(test)]
    pub(super) fn named(name: &str) -> Self {
        WorkerToken { name: name.to_owned(), kinds: None }
    }
}

/// Open claim for work. If it is dropped before its [end](Self::end), because the client has
/// disconnected, the claim is removed and its leases are withdrawn for another worker.
pub(super) struct WorkClaim {
    workers: Arc<RemoteWorkers>,
    number: u64,
    /// Number of the worker.
    worker: u64,
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
        engine.workers.claim_ends(self.worker, self.workers.clock.steady_ms());
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
    /// Grants subtasks to a remote worker. Waits for the first one, and no longer than until `closing`.
    pub(crate) async fn claim(
        self: &Arc<Self>,
        request: WorkRequest,
        closing: &CancellationToken,
    ) -> Result<Vec<Lease>, RequestError> {
        let kinds = self.leased_kinds(&request.kinds)?;
        let claim = self.open_claim(&mut self.state.lock(), kinds, &request)?;
        self.wake.notify();
        Ok(self.fulfil(claim, request.wait, closing).await)
    }

    /// Opens a claim. The dispatcher must be woken afterwards.
    pub(super) fn open_claim(
        self: &Arc<Self>,
        engine: &mut EngineState,
        kinds: Vec<u32>,
        request: &WorkRequest,
    ) -> Result<WorkClaim, RequestError> {
        if engine.is_draining {
            return Err(RequestError::Draining);
        }
        let now = self.clock.now();
        let (name, steady_ms) = (request.worker.as_deref(), self.clock.steady_ms());
        let worker = engine.workers.heard(&request.token.name, name, steady_ms);
        engine.workers.claim_begins(worker, &kinds);
        let (number, given) = engine.claimers.ask(kinds.clone(), request.most, worker);
        admit_leases(&self.kinds, engine, kinds.iter().copied(), now);
        Ok(WorkClaim { workers: Arc::clone(self), number, worker, kinds, given, is_over: false })
    }

    /// Waits for the first lease of a claim, up to `wait` and no longer than until `closing`, and
    /// returns all that it has then.
    pub(super) async fn fulfil(
        self: &Arc<Self>,
        mut claim: WorkClaim,
        wait: Duration,
        closing: &CancellationToken,
    ) -> Vec<Lease> {
        // A minimum wait, so that the dispatcher can respond.
        let wait = wait.max(Duration::from_millis(5));
        tokio::select! {
            biased;
            _ = timeout(wait, claim.given.arrived.notified()) => {}
            () = closing.cancelled() => {}
            () = self.draining.cancelled() => {}
        }
        let granted = async {
            while claim.close() {
                claim.given.arrived.notified().await;
            }
        };
        let _ = timeout(GRANT_TIMEOUT, granted).await;
        let fences = claim.end(&mut self.state.lock(), self.clock.now());
        self.leases(&fences)
    }

    /// Returns the numbers of the kinds of a request, each of which must be for remote workers.
    pub(super) fn leased_kinds(&self, names: &[String]) -> Result<Vec<u32>, RequestError> {
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

    /// Returns the API forms of leases, without those that have ended meanwhile, or that end here because
    /// their payloads cannot be read.
    fn leases(&self, fences: &[u64]) -> Vec<Lease> {
        let granted: Vec<_> = {
            let engine = self.state.lock();
            let (traces, now) = (&self.ends.traces, self.clock.now());
            fences.iter().filter_map(|fence| granted(traces, &engine, *fence, now)).collect()
        };
        let with_payload =
            |(job, number, mut lease): (JobNumber, SubtaskNumber, Lease)| match payload_of(
                &self.store,
                job,
                number,
            ) {
                Ok(payload) => {
                    let text = String::from_utf8_lossy(&payload).into_owned();
                    lease.payload = RawValue::from_string(text).unwrap_or(lease.payload);
                    Some(lease)
                }
                Err(failure) => {
                    self.ends.finished(lease.fence, Err(failure));
                    None
                }
            };
        granted.into_iter().filter_map(with_payload).collect()
    }
}

/// Returns the place of a leased subtask in the store, and its lease without the payload. `None` if the
/// lease has ended.
fn granted(
    traces: &Traces,
    engine: &EngineState,
    fence: u64,
    now: Timestamp,
) -> Option<(JobNumber, SubtaskNumber, Lease)> {
    let running = engine.running.get(&fence)?;
    let (live, held) = (engine.live.get(&running.job)?, running.lease.as_ref()?);
    let (job, shown) = (live.id.to_string(), super::step_numbers::shown(running.step));
    let trace = traces.context_of(live, running, fence);
    let trace = trace.as_ref();
    let lease = Lease {
        id: format!("lease_{fence}_{shown}_{job}"),
        job,
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
        expires_in_ms: held.ends().0.saturating_sub(now.0),
        timeout_ms: live.head.timeout().map(millis),
    };
    Some((running.job, running.number, lease))
}
