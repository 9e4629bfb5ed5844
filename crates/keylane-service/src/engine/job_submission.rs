//! Submission of a job: validates it, writes its subtasks to the disk in chunks, and accepts it
//! when all of it is there.

use std::sync::{Arc, MutexGuard, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::capacity::CapacityReservation;
use super::engine_state::ActiveJob;
use super::failures::LastErrors;
use super::name_locks::NameLock;
use super::scheduler_job::new_job;
use super::step_numbers::StepNumbers;
use super::store_status::StoreHealth;
use super::submit_reply::{PendingReply, Reply, SubmitResult};
use super::{Core, SubmitTicket, client_id};
use crate::job_definition::{self, JobDefinition, ValidatedSubmission};
use crate::request_error::RequestError;
use crate::scheduler::{NewSubtask, PackedSubtasks};
use crate::store::{
    Changes, IdempotencyEntry, JobAlias, JobState as Stored, JobStatus, JobUpload, NewJob,
    WriteError,
};
use crate::trace_context::TraceContext;
use crate::wire::{Object, SubmitJob, SubmitSubtask, Timestamp};
use crate::{JobId, JobNumber};

/// Submission in progress. If it is dropped, nothing of the job remains.
#[derive(Debug)]
pub(crate) struct JobSubmission {
    core: Arc<Core>,
    kind: u32,
    head: JobDefinition,
    upload: JobUpload,
    subtasks: PackedSubtasks,
    /// Capacity reserved for the job.
    room: CapacityReservation,
    now: Timestamp,
    /// Hash of all bytes sent, if there is an idempotency key.
    hash: Sha256,
}

/// Extra changes in the transaction of a job, with an action that runs when they are on the disk.
#[derive(Default)]
pub(crate) struct ExtraWrites {
    changes: Changes,
    then: Option<Box<AfterCommit>>,
}

type AfterCommit = dyn FnOnce(&Core) + Send;

impl ExtraWrites {
    /// Creates extra writes. `then` is called on the writer's thread.
    pub(crate) fn new(changes: Changes, then: impl FnOnce(&Core) + Send + 'static) -> Self {
        ExtraWrites { changes, then: Some(Box::new(then)) }
    }
}

/// Complete job, ready to enter the order.
#[derive(Debug)]
pub(super) struct AcceptedJob {
    number: JobNumber,
    id: JobId,
    total: u32,
    kind: u32,
    head: JobDefinition,
    subtasks: PackedSubtasks,
    room: CapacityReservation,
    created: Timestamp,
}

/// NDJSON line with a subtask. Borrows all of its content.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SubtaskLine<'a> {
    #[serde(default, borrow)]
    key: Option<std::borrow::Cow<'a, str>>,
    #[serde(default, borrow)]
    keys: Option<Vec<std::borrow::Cow<'a, str>>>,
    #[serde(default, borrow)]
    payload: Option<&'a RawValue>,
}

impl Core {
    /// Starts a submission. With `more`, the subtasks follow, one per line. The capacity limits are
    /// checked when the job is complete and known to be new: a repeated request gets the answer of
    /// the accepted job even when the service is full.
    pub(crate) fn begin_intake(
        self: &Arc<Self>,
        job: SubmitJob,
        more: bool,
    ) -> Result<JobSubmission, RequestError> {
        let now = self.clock.now();
        let ValidatedSubmission { kind, head, subtasks } =
            job_definition::check(job, more, &self.kinds, &self.settings.bounds, now)?;
        let upload = self.store.upload(now.0).map_err(|error| self.status.write_refused(error))?;
        let mut intake = JobSubmission {
            core: Arc::clone(self),
            kind,
            head,
            upload,
            subtasks: PackedSubtasks::default(),
            room: CapacityReservation::new(&self.incoming),
            now,
            hash: Sha256::new(),
        };
        if let Some(payload) = intake.split_payload() {
            intake.put(&[], payload.get())?;
        }
        subtasks.iter().try_for_each(|subtask| intake.push(subtask))?;
        Ok(intake)
    }

    /// Returns an error if the service cannot accept another job.
    pub(crate) fn may_take_more(&self) -> Result<(), RequestError> {
        match &*self.status.health() {
            StoreHealth::Well => {}
            StoreHealth::Full => return Err(RequestError::StoreFull),
            StoreHealth::Failed(why) => return Err(RequestError::StoreFailed(why.clone())),
        }
        if self.is_draining() {
            return Err(RequestError::Draining);
        }
        Ok(())
    }

    /// Locks the names of a request, its idempotency key and its client id. Also returns the job
    /// that an equal request created before, if there is one.
    async fn claim_names(
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
        let before = self.look_up(move |core| {
            let by_key = scope.map(|(scope, key)| core.submitted_before(&scope, &key, hash));
            if let Some(before) = by_key.transpose()?.flatten() {
                return Ok(Some(before));
            }
            Ok(name.map(|name| core.called_before(&name, hash)).transpose()?.flatten())
        });
        let before = before.await?;
        Ok((claims, before))
    }

    /// Runs a blocking read of the store.
    pub(super) async fn look_up<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Core) -> Result<T, RequestError> + Send + 'static,
    ) -> Result<T, RequestError> {
        let core = Arc::clone(self);
        let found = self.executor.blocking(move || work(&core)).await;
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
}

impl JobSubmission {
    /// Adds `bytes` to the request hash, by which an equal request is recognized. Needed only with
    /// an idempotency key.
    pub(crate) fn hash(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    fn push(&mut self, subtask: &SubmitSubtask) -> Result<(), RequestError> {
        let keys: Vec<&[u8]> =
            subtask.keys.iter().flatten().chain(&subtask.key).map(|key| key.as_bytes()).collect();
        let payload = subtask.payload.as_ref().map_or("null", |payload| payload.get());
        self.add(&keys, payload)
    }

    /// Returns the payload of the split step, if there is one. The split is the job's first subtask
    /// in the store.
    fn split_payload(&self) -> Option<Box<RawValue>> {
        let payload = || self.head.payload.clone().unwrap_or_else(super::split_result::null);
        self.head.split.then(payload)
    }

    /// Adds a subtask that clients see.
    fn add(&mut self, keys: &[&[u8]], payload: &str) -> Result<(), RequestError> {
        self.room.take(1, keys.iter().map(|key| key.len() as u64).sum())?;
        let number = u32::try_from(self.subtasks.count()).expect("the bound on subtasks is a u32");
        let keys_of = keys.iter().copied();
        self.subtasks.push(NewSubtask { number, keys: keys_of, attempts_made: 0 });
        self.put(keys, payload)
    }

    fn put(&mut self, keys: &[&[u8]], payload: &str) -> Result<(), RequestError> {
        let put = self.upload.push(keys, payload.as_bytes());
        put.map(drop).map_err(|error| self.core.status.write_refused(error))
    }

    /// Adds the subtask in an NDJSON line.
    pub(crate) fn push_line(&mut self, text: &[u8], number: u64) -> Result<(), RequestError> {
        let wrong = |at: &str, why: String| {
            RequestError::Invalid(vec![(format!("line {number}{at}"), why)])
        };
        let bounds = &self.core.settings.bounds;
        if self.upload.total() >= bounds.job_subtasks {
            return Err(wrong("", format!("a job has at most {} subtasks", bounds.job_subtasks)));
        }
        let Object(line): Object<SubtaskLine<'_>> =
            serde_json::from_slice(text).map_err(|error| wrong("", error.to_string()))?;
        if line.key.is_some() && line.keys.is_some() {
            return Err(wrong("/keys", "`key` and `keys` are both set; keep one".into()));
        }
        let payload = line.payload.map_or("null", RawValue::get);
        // Most subtasks have at most one key: then nothing is allocated.
        let one: [&[u8]; 1];
        let many: Vec<&[u8]>;
        let keys: &[&[u8]] = match (&line.key, &line.keys) {
            (Some(key), _) => {
                one = [key.as_bytes()];
                &one
            }
            (None, Some(keys)) => {
                many = keys.iter().map(|key| key.as_bytes()).collect();
                &many
            }
            (None, None) => &[],
        };
        job_definition::fits(keys.iter().copied(), payload.len(), bounds)
            .map_err(|(at, why)| wrong(at, why))?;
        self.add(keys, payload)
    }

    /// Returns true if there is enough data for a write to the disk.
    pub(crate) fn is_full(&self) -> bool {
        self.upload.is_full()
    }

    /// Writes the buffered subtasks to the disk, when the writer has capacity.
    pub(crate) async fn flush(&mut self) -> Result<(), RequestError> {
        let core = Arc::clone(&self.core);
        self.upload.flush_async().await.map_err(|error| core.status.write_refused(error))
    }

    /// Sets the client id.
    pub(crate) fn call(&mut self, client_id: String) {
        self.head.client_id = Some(client_id);
    }

    /// Sets the trace that the job is part of.
    pub(crate) fn trace(&mut self, context: TraceContext) {
        self.head.trace = Some(context);
    }

    /// Returns the id that the job will have.
    pub(crate) fn id(&self) -> JobId {
        self.upload.id()
    }

    /// Submits the complete job. Returns when it is on the disk and accepted.
    pub(crate) async fn finish(
        self,
        scope: Option<(String, String)>,
    ) -> Result<SubmitResult, RequestError> {
        self.finish_with(scope, ExtraWrites::default()).await
    }

    /// Submits the complete job together with extra writes, in one transaction. For a job that was
    /// submitted before, the extra writes are not applied.
    pub(crate) async fn finish_with(
        self,
        scope: Option<(String, String)>,
        also: ExtraWrites,
    ) -> Result<SubmitResult, RequestError> {
        self.hand_over_with(scope, also).await?.outcome().await
    }

    /// Submits the complete job. Returns when the store has it in its queue, which fixes its place
    /// in the order.
    pub(crate) async fn hand_over(
        self,
        scope: Option<(String, String)>,
    ) -> Result<SubmitTicket, RequestError> {
        self.hand_over_with(scope, ExtraWrites::default()).await
    }

    async fn hand_over_with(
        self,
        scope: Option<(String, String)>,
        mut also: ExtraWrites,
    ) -> Result<SubmitTicket, RequestError> {
        let core = Arc::clone(&self.core);
        let hash: [u8; 32] = self.hash.clone().finalize().into();
        let name = self.head.client_id.clone();
        let (claims, before) = core.claim_names(scope.clone(), name.clone(), hash).await?;
        if let Some(before) = before {
            return Ok(SubmitTicket::Before(before.into()));
        }
        core.may_take_more()?;
        if let Some(name) = name {
            also.changes.alias(JobAlias { name, job: self.id(), body_hash: hash });
        }
        let (reply, replied) = oneshot::channel();
        self.bring(scope, hash, also, Reply { reply, claims }).await?;
        Ok(SubmitTicket::Coming(replied))
    }

    async fn bring(
        self,
        scope: Option<(String, String)>,
        hash: [u8; 32],
        also: ExtraWrites,
        answering: Reply,
    ) -> Result<(), RequestError> {
        let core = Arc::clone(&self.core);
        let expires_ms = core.idempotency.ends();
        let idempotency =
            scope.map(|(scope, key)| IdempotencyEntry { scope, key, body_hash: hash, expires_ms });
        let (upload, new, entering) = self.into_parts(idempotency)?;
        let ExtraWrites { changes, then } = also;
        let store = core.store.clone();
        let accept = move |committed: Result<_, WriteError>| {
            let Reply { reply, claims } = answering;
            let answer = match committed {
                Ok(_) => {
                    if let Some(then) = then {
                        then(&core);
                    }
                    let submitted = core.accept(entering);
                    return core.answers().push(PendingReply { reply, submitted, claims });
                }
                Err(error) => Err(core.status.write_refused(error)),
            };
            drop(claims);
            // A client that no longer waits can query the job by its idempotency key.
            let _ = reply.send(answer);
        };
        store.accept_with_async(vec![(upload, new)], changes, accept).await;
        Ok(())
    }

    /// Splits the submission into the part for the store and the part for the scheduler.
    ///
    /// Returns an error if the capacity limits are exceeded.
    pub(super) fn into_parts(
        mut self,
        idempotency: Option<IdempotencyEntry>,
    ) -> Result<(JobUpload, NewJob, AcceptedJob), RequestError> {
        self.room.check()?;
        // The fan-in is numbered now, unless its number depends on the result of a split.
        if self.head.fan_in && !self.head.split {
            self.put(&[], "null")?;
        }
        let JobSubmission { kind, head, upload, subtasks, room, now, .. } = self;
        let status =
            JobStatus { start_at_ms: head.run_at.map(|at| at.0), ..JobStatus::of(Stored::Waiting) };
        let new = NewJob {
            kind: head.kind.clone(),
            created_ms: now.0,
            head: serde_json::to_vec(&head).expect("a head can be written as JSON"),
            status,
            idempotency,
        };
        let (number, id, total) = (upload.job(), upload.id(), upload.total());
        let entering = AcceptedJob { number, id, total, kind, head, subtasks, room, created: now };
        Ok((upload, new, entering))
    }
}

impl Core {
    /// Accepts a job whose commit is done: its subtasks enter the order. Called on the writer's
    /// thread, in commit order.
    pub(super) fn accept(self: &Arc<Self>, entering: AcceptedJob) -> SubmitResult {
        self.status.found_room();
        let AcceptedJob { number, id, total, kind, head, subtasks, room, created } = entering;
        let (count, key_bytes) = (subtasks.count(), subtasks.key_bytes());
        let has_keys = subtasks.has_keys();
        let mut engine = self.state.lock();
        let now = self.clock.now();
        let new = new_job(number, kind, &head, subtasks);
        let live = ActiveJob {
            id,
            begins_at: head.run_at,
            is_entering: false,
            plan: StepNumbers::new(&head, total),
            head: Arc::new(head),
            created,
            started: None,
            pace: None,
            key_bytes,
            ended: crate::store::OutcomeCounts::default(),
            recorded: crate::store::OutcomeCounts::default(),
            error: None,
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
        engine.live.insert(number, live);
        engine.totals.jobs_accepted += 1;
        engine.unfinished += count;
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
        self.write_next(&mut engine);
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
}
