//! Submission of jobs: looks for an equal request, locks its names, and accepts jobs whose commit is
//! done.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane_storage::ThreadNotify;
use tokio::sync::oneshot;

use super::capacity::{CapacityReservation, CapacityReservations};
use super::client_id;
use super::clock::Clock;
use super::dependencies::Registration;
use super::engine_state::{ActiveJob, SharedState};
use super::events::EventHub;
use super::executor::Executor;
use super::failures::LastErrors;
use super::idempotency::IdempotencyKeys;
use super::name_locks::NameLock;
use super::persistence::Persistence;
use super::query::Query;
use super::scheduler_job::new_job;
use super::step_numbers::StepNumbers;
use super::store_status::StoreStatus;
use super::submit_reply::{PendingReply, SubmitResult};
use crate::job_definition::{JobDefinition, SubmissionLimits};
use crate::kind_registry::KindRegistry;
use crate::request_error::RequestError;
use crate::scheduler::{NewJob, PackedSubtasks};
use crate::store::{Changes, CommitReceipt, JobAlias, OutcomeCounts, Store, WriteError};
use crate::tenant::TenantRegistry;
use crate::wire::{EventKind, Job, Timestamp};
use crate::{JobId, JobNumber};

/// Acceptance of jobs.
#[derive(Debug)]
pub(crate) struct Submission {
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) tenants: Arc<TenantRegistry>,
    pub(crate) bounds: SubmissionLimits,
    pub(super) store: Store,
    pub(super) status: Arc<StoreStatus>,
    pub(super) clock: Arc<Clock>,
    pub(super) executor: Executor,
    pub(super) state: Arc<SharedState>,
    /// Capacity used by jobs whose submission is in progress.
    pub(super) incoming: Arc<CapacityReservations>,
    pub(super) idempotency: Arc<IdempotencyKeys>,
    pub(super) query: Arc<Query>,
    pub(super) events: Arc<EventHub>,
    pub(super) persistence: Arc<Persistence>,
    /// Wakes the dispatcher.
    pub(super) wake: Arc<ThreadNotify>,
    /// Replies to clients whose jobs are accepted, sent when their commit has ended. Locked alone,
    /// or after every other lock.
    pub(super) answers: Mutex<Vec<PendingReply>>,
}

/// Extra changes in the transaction of a job, with an action that runs when they are on the disk.
#[derive(Default)]
pub(crate) struct ExtraWrites {
    pub(super) changes: Changes,
    pub(super) then: Option<Box<AfterCommit>>,
}

type AfterCommit = dyn FnOnce() + Send;

impl ExtraWrites {
    /// Creates extra writes. `then` is called on the writer's thread.
    pub(crate) fn new(changes: Changes, then: impl FnOnce() + Send + 'static) -> Self {
        ExtraWrites { changes, then: Some(Box::new(then)) }
    }
}

/// Complete job, ready to enter the order.
#[derive(Debug)]
pub(super) struct AcceptedJob {
    pub(super) number: JobNumber,
    pub(super) id: JobId,
    pub(super) total: u32,
    pub(super) kind: u32,
    pub(super) head: JobDefinition,
    pub(super) subtasks: PackedSubtasks,
    pub(super) room: CapacityReservation,
    pub(super) created: Timestamp,
    /// Registration at the jobs for which it waits.
    pub(super) registration: Option<Registration>,
}

impl Submission {
    /// Returns an error if the service cannot accept another job.
    pub(crate) fn may_take_more(&self) -> Result<(), RequestError> {
        if let Some(refusal) = self.status.health().refusal() {
            return Err(refusal);
        }
        if self.state.lock().is_draining {
            return Err(RequestError::Draining);
        }
        Ok(())
    }

    /// Locks the names of a request, its idempotency key and its client id. Also returns the job
    /// that an equal request created before, if there is one.
    pub(super) async fn claim_names(
        self: &Arc<Self>,
        scope: Option<(String, String)>,
        name: Option<String>,
        hash: [u8; 32],
    ) -> Result<(Vec<NameLock>, Option<SubmitResult>), RequestError> {
        let mut claims = Vec::new();
        if let Some((scope, key)) = &scope {
            claims.push(self.idempotency.claim(scope, key).await);
        }
        if let Some(name) = &name {
            claims.push(self.idempotency.claim(client_id::SCOPE, name).await);
        }
        if claims.is_empty() {
            return Ok((claims, None));
        }
        let before = self.look_up(move |this| {
            let by_key = scope.map(|(scope, key)| this.submitted_before(&scope, &key, hash));
            if let Some(before) = by_key.transpose()?.flatten() {
                return Ok(Some(before));
            }
            Ok(name.map(|name| this.called_before(&name, hash)).transpose()?.flatten())
        });
        let before = before.await?;
        Ok((claims, before))
    }

    /// Runs a blocking read of the store.
    pub(super) async fn look_up<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Submission) -> Result<T, RequestError> + Send + 'static,
    ) -> Result<T, RequestError> {
        let this = Arc::clone(self);
        let found = self.executor.blocking(move || work(&this)).await;
        found.unwrap_or_else(|panic| Err(RequestError::StoreFailed(panic.to_string())))
    }

    /// Returns the job that was submitted under this key, if there is one. Reads the store.
    pub(super) fn submitted_before(
        &self,
        scope: &str,
        key: &str,
        hash: [u8; 32],
    ) -> Result<Option<SubmitResult>, RequestError> {
        let Some((found, id)) = self.idempotency.find(scope, key)? else { return Ok(None) };
        if found.body_hash != hash {
            return Err(RequestError::OtherRequest);
        }
        Ok(Some(SubmitResult { id, job: self.query.job(id)?, replayed: true }))
    }

    /// Returns the job that has this client id already, if an equal request created it. Reads the
    /// store.
    fn called_before(
        &self,
        name: &str,
        hash: [u8; 32],
    ) -> Result<Option<SubmitResult>, RequestError> {
        let Some(JobAlias { job: id, body_hash, .. }) = self.query.alias(name)? else {
            return Ok(None);
        };
        if body_hash != hash {
            let why = format!(
                "`{name}` is {id}, which was created by a different request; use another id"
            );
            return Err(RequestError::Conflict(why));
        }
        Ok(Some(SubmitResult { id, job: self.query.job(id)?, replayed: true }))
    }

    /// Handles the result of a job's commit: accepts the job, and replies to its client at the end
    /// of the commit. Called on the writer's thread, in commit order.
    pub(super) fn committed(
        self: &Arc<Self>,
        committed: Result<CommitReceipt, WriteError>,
        entering: AcceptedJob,
        then: Option<Box<AfterCommit>>,
        reply: oneshot::Sender<Result<SubmitResult, RequestError>>,
        claims: Vec<NameLock>,
    ) {
        if let Err(error) = committed {
            let refused = self.status.write_refused(error);
            drop(claims);
            // A client that no longer waits can query the job by its idempotency key.
            let _ = reply.send(Err(refused));
            return;
        }
        if let Some(then) = then {
            then();
        }
        let submitted = self.accept(entering);
        self.answers().push(PendingReply { reply, submitted, claims });
    }

    /// Accepts a job whose commit is done: its subtasks enter the order. Called on the writer's
    /// thread, in commit order.
    pub(super) fn accept(self: &Arc<Self>, entering: AcceptedJob) -> SubmitResult {
        self.status.found_room();
        let AcceptedJob { number, id, total, kind, head, subtasks, room, created, .. } = entering;
        let (count, key_bytes) = (subtasks.count(), subtasks.key_bytes());
        let (has_keys, has_latest) = (subtasks.has_keys(), subtasks.has_latest());
        let mut engine = self.state.lock();
        let now = self.clock.now();
        let begins_at = head.begins_at(created);
        let start_at = head.due_ms();
        let new = NewJob { start_at, ..new_job(number, kind, &head, subtasks) };
        let live = ActiveJob {
            id,
            placed_ms: begins_at.is_none().then(|| self.clock.steady_ms()),
            begins_at,
            is_due: false,
            is_entering: false,
            plan: StepNumbers::new(&head, total),
            head: Arc::new(head),
            created,
            started: None,
            pace: None,
            key_bytes,
            ended: OutcomeCounts::default(),
            recorded: OutcomeCounts::default(),
            error: None,
            unwritten_error: None,
            failures: LastErrors::default(),
            result: None,
            paused: false,
            cancelling: false,
            is_closing: false,
            version: engine.versions.take(),
            end_version: None,
            notify: None,
            end_notify: None,
        };
        let tenant = live.head.tenant.clone();
        engine.live.insert(number, live);
        engine.watch_expiry(number);
        if let Some(registration) = entering.registration {
            registration.keep();
            engine.decide_later(number);
        }
        if has_latest {
            engine.careful.insert(number);
        }
        engine.totals.jobs_accepted += 1;
        engine.unfinished.add(tenant.as_deref(), count);
        engine.key_bytes += key_bytes;
        engine.order.entered(number);
        let accepted = engine.scheduler.accept_packed(new, now.0);
        engine.hold_if_behind(number, has_keys, now);
        engine.hold_if_kind_is_missing(number, &self.kinds, now);
        engine.apply_accepted(number, &accepted, now);
        let job = super::query::live_view(&self.kinds, &engine, number, &self.clock)
            .expect("the job was just added");
        // Announced under the lock, so that no change to the job is published before.
        self.announce(job.clone(), now);
        self.persistence.write_next(&mut engine);
        drop(engine);
        // Released only here, because the engine state now counts the job.
        drop(room);
        SubmitResult { id, job, replayed: false }
    }

    fn answers(&self) -> MutexGuard<'_, Vec<PendingReply>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finishes a commit: starts ready subtasks and replies to clients, once for all jobs of the
    /// commit. Waking a runtime task from another thread wakes a thread; one wake-up serves all
    /// replies.
    pub(super) fn commit_ended(&self) {
        self.wake.notify();
        let mut answers = std::mem::take(&mut *self.answers());
        if answers.len() <= 1 {
            return answers.drain(..).for_each(PendingReply::reply);
        }
        self.executor.spawn(async move { answers.into_iter().for_each(PendingReply::reply) });
    }

    /// Publishes a new job.
    fn announce(&self, job: Job, now: Timestamp) {
        self.events.publish(|id| crate::wire::Event {
            job: Some(Box::new(job)),
            ..super::events::event(id, EventKind::JobAccepted, now)
        });
    }
}
