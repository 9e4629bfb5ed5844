//! Requests of remote workers about the leases that they hold: heartbeats, and reports of ends.
//!
//! A request names any number of leases, and each counts by itself. All ends of a request enter the
//! next batch together, so that they are one transaction. A request that also claims the next
//! subtasks opens its claim before that batch is written: a subtask behind one that has just ended is
//! promised meanwhile, and its start is in the same transaction as the end of its predecessor.

use std::sync::Arc;

use parking_lot::MutexGuard;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::engine_state::EngineState;
use super::persistence::PendingWrite;
use super::remote_workers::{RemoteWorkers, WorkRequest, WorkerToken};
use super::work_claims::LeaseState;
use crate::handle::{AttemptFailure, AttemptOutput};
use crate::kind_registry::KindRegistry;
use crate::request_error::RequestError;
use crate::scheduler::Step;
use crate::wire::{HeartbeatResponse, Lease, Timestamp};

/// Maximum number of leases in a critical section, so that other threads get the lock.
const AT_ONCE: usize = 256;

/// Report of a worker: the end of a lease.
#[derive(Debug)]
pub(crate) struct LeaseReport {
    /// Id of the lease.
    pub(crate) id: String,
    pub(crate) outcome: LeaseOutcome,
    /// Log for humans.
    pub(crate) log: Option<String>,
}

#[cfg(test)]
impl LeaseReport {
    /// Creates the report of a success without a result.
    pub(super) fn success(id: &str) -> Self {
        LeaseReport { id: id.to_owned(), outcome: LeaseOutcome::Succeeded(None), log: None }
    }
}

/// End of a lease by its worker.
#[derive(Debug)]
pub(crate) enum LeaseOutcome {
    Succeeded(Option<Box<RawValue>>),
    Failed(AttemptFailure),
    /// The worker has not begun: the attempt does not count.
    Released,
}

/// Result of each report of a request, in its order.
pub(crate) type ReportResults = Vec<Result<(), RequestError>>;

impl RemoteWorkers {
    /// Renews leases for a caller with this token, and records the progress of their attempts. Returns the result of each.
    ///
    /// A node that has lost the database renews none: another one may own the store by now, and gives a subtask to another worker when the lease is
    /// over that this one has known. It counts from the takeover, which comes later than the last renewal here (`store/postgres/README.md`).
    pub(crate) fn heartbeat(
        &self,
        leases: &[(Option<f64>, String)],
        token: &WorkerToken,
    ) -> Result<Vec<Result<HeartbeatResponse, RequestError>>, RequestError> {
        let mut engine = self.state.lock();
        let mut results = Vec::with_capacity(leases.len());
        for part in leases.chunks(AT_ONCE) {
            if !self.store.may_start_work() {
                return Err(RequestError::StoreUnavailable(
                    "the database does not answer, and another server may own the store by now; \
                     leases are not extended"
                        .into(),
                ));
            }
            let at = self.heard(token);
            results.extend(part.iter().map(|(progress, id)| beat(&mut engine, id, *progress, at)));
            MutexGuard::bump(&mut engine);
        }
        Ok(results)
    }

    /// Ends a lease. Returns when that is on the disk.
    pub(crate) async fn report_one(
        self: &Arc<Self>,
        report: LeaseReport,
        token: &WorkerToken,
    ) -> Result<(), RequestError> {
        self.report(vec![report], token).await?.remove(0)
    }

    /// Ends leases. Returns when all ends that count are on the disk.
    pub(crate) async fn report(
        self: &Arc<Self>,
        reports: Vec<LeaseReport>,
        token: &WorkerToken,
    ) -> Result<ReportResults, RequestError> {
        let (results, written) = {
            let mut engine = self.persistence.writable_engine()?;
            let (results, written) = self.end_all(&mut engine, reports, token)?;
            self.persistence.write_next(&mut engine);
            (results, written)
        };
        self.wake.notify();
        if let Some(written) = written {
            written.done().await?;
        }
        Ok(results)
    }

    /// Ends leases, and grants the next ones. Returns when all ends that count are on the disk, and the
    /// claim has leases or has waited long enough.
    ///
    /// An invalid claim is refused before anything is done. Another refusal of the claim, which is in
    /// place of its leases, affects no end.
    pub(crate) async fn report_and_claim(
        self: &Arc<Self>,
        reports: Vec<LeaseReport>,
        request: WorkRequest,
        closing: &CancellationToken,
    ) -> Result<(ReportResults, Result<Vec<Lease>, RequestError>), RequestError> {
        let kinds = self.leased_kinds(&request.kinds)?;
        let (results, written, claim) = {
            let mut engine = self.persistence.writable_engine()?;
            let (results, written) = self.end_all(&mut engine, reports, &request.token)?;
            let claim = self.open_claim(&mut engine, kinds, &request);
            // With a claim the dispatcher writes, after it has promised all that it can.
            if claim.is_err() {
                self.persistence.write_next(&mut engine);
            }
            (results, written, claim)
        };
        self.wake.notify();
        if let Some(written) = written {
            // An error drops the claim, which withdraws its leases.
            written.done().await?;
        }
        let leases = match claim {
            Ok(claim) => Ok(self.fulfil(claim, request.wait, closing).await),
            Err(refused) => Err(refused),
        };
        Ok((results, leases))
    }

    /// Applies the ends of leases. Returns the result of each, and the wait for the disk if one of them
    /// counts.
    fn end_all(
        &self,
        engine: &mut MutexGuard<'_, EngineState>,
        reports: Vec<LeaseReport>,
        token: &WorkerToken,
    ) -> Result<(ReportResults, Option<PendingWrite>), RequestError> {
        let mut results = Vec::with_capacity(reports.len());
        let mut reports = reports.into_iter();
        while reports.len() > 0 {
            let at = self.heard(token);
            results.extend(reports.by_ref().take(AT_ONCE).map(|it| self.end_one(engine, it, at)));
            if reports.len() > 0 {
                MutexGuard::bump(engine);
            }
        }
        let counts = results.iter().any(Result::is_ok);
        let written = counts.then(|| self.persistence.await_written(engine)).transpose()?;
        Ok((results, written))
    }

    /// Returns the moment, under the lock of the engine state, of a request with this token.
    fn heard<'r>(&'r self, token: &'r WorkerToken) -> Heard<'r> {
        let (now, steady_ms) = (self.clock.now(), self.clock.steady_ms());
        Heard { now, steady_ms, token, kinds: &self.kinds }
    }

    fn end_one(
        &self,
        engine: &mut EngineState,
        report: LeaseReport,
        at: Heard<'_>,
    ) -> Result<(), RequestError> {
        let fence = held(engine, &report.id, at)?;
        if let Some(log) = report.log {
            let running = engine.running.get_mut(&fence).expect("the lease was just found");
            running.log = AttemptOutput::keeping(self.kinds.get(running.kind).log_bytes);
            running.log.say(log.as_bytes());
        }
        let answer = match report.outcome {
            LeaseOutcome::Succeeded(result) => Ok(result),
            LeaseOutcome::Failed(failure) => Err(failure),
            LeaseOutcome::Released => {
                self.leases.withdraw(engine, fence, at.now);
                return Ok(());
            }
        };
        let ends = self.ends.end_answered(engine, fence, answer, at.now);
        assert!(ends, "the lease was just found");
        Ok(())
    }
}

/// Moment and token of a request about leases.
#[derive(Clone, Copy)]
struct Heard<'r> {
    now: Timestamp,
    steady_ms: u64,
    token: &'r WorkerToken,
    kinds: &'r KindRegistry,
}

/// Renews a lease.
fn beat(
    engine: &mut EngineState,
    id: &str,
    progress: Option<f64>,
    at: Heard<'_>,
) -> Result<HeartbeatResponse, RequestError> {
    let fence = held(engine, id, at)?;
    let running = engine.running.get_mut(&fence).expect("the lease was just found");
    progress.into_iter().for_each(|fraction| running.signals.report(fraction));
    let lease = running.lease.as_mut().expect("the run has a lease");
    lease.renew(at.now);
    let expires_at = lease.ends();
    Ok(HeartbeatResponse {
        expires_at,
        expires_in_ms: expires_at.0.saturating_sub(at.now.0),
        // The lease of a killed job has ended, and gets another answer.
        cancel: false,
    })
}

/// Returns the fence in a lease's id, if the lease is held, and notes that its worker was heard of.
fn held(engine: &mut EngineState, id: &str, at: Heard<'_>) -> Result<u64, RequestError> {
    let mut words = id.strip_prefix("lease_").unwrap_or_default().splitn(3, '_');
    let fence = words.next().and_then(|word| word.parse().ok());
    let number: Option<u32> = words.next().and_then(|word| word.parse().ok());
    let (Some(fence), Some(number), Some(job)) = (fence, number, words.next()) else {
        return Err(RequestError::Unknown { what: format!("lease {id}") });
    };
    let running = engine.running.get_mut(&fence).ok_or(RequestError::LeaseLost)?;
    let live = engine.live.get(&running.job);
    // For a token, there are no leases of other kinds.
    if !at.token.is_for(&at.kinds.name(running.kind)) {
        return Err(RequestError::Unknown { what: format!("lease {id}") });
    }
    let is_this = running.step == Step::Subtask(number)
        && live.is_some_and(|live| live.id.to_string() == job);
    let is_held = |lease: &&mut LeaseState| is_this && lease.promised_to.is_none();
    let lease = running.lease.as_mut().filter(is_held).ok_or(RequestError::LeaseLost)?;
    lease.worker = engine.workers.heard_of_lease(lease.worker, &at.token.name, at.steady_ms);
    Ok(fence)
}
