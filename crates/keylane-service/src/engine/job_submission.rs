//! A job on its way in: its subtasks are checked and written to the disk in chunks, and the job is
//! submitted when it is complete.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};
use tokio::sync::oneshot;

use super::SubmitTicket;
use super::capacity::CapacityReservation;
use super::dependencies::Registration;
use super::submission::{AcceptedJob, ExtraWrites, Submission};
use super::unique_jobs::{UniqueHash, UniqueName};
use super::webhooks;
use crate::job_definition::{self, JobDefinition, ValidatedSubmission};
use crate::request_error::RequestError;
use crate::scheduler::{NewSubtask, PackedSubtasks};
use crate::store::{IdempotencyEntry, JobAlias, JobState as Stored, JobStatus, JobUpload, NewJob};
use crate::trace_context::TraceContext;
use crate::wire::{Object, SubmitJob, SubmitSubtask, Timestamp};
use crate::{JobId, KeyClaim};

/// Submission in progress. If it is dropped, nothing of the job remains.
#[derive(Debug)]
pub(crate) struct JobSubmission {
    service: Arc<Submission>,
    kind: u32,
    head: JobDefinition,
    upload: JobUpload,
    subtasks: PackedSubtasks,
    /// Capacity reserved for the job.
    room: CapacityReservation,
    now: Timestamp,
    /// Hash of all bytes sent, if there is an idempotency key.
    hash: Sha256,
    /// Hash of the subtasks, if the job is unique for a time.
    unique: Option<UniqueHash>,
    /// Ids of the jobs for which it waits.
    after: Vec<String>,
    /// Its registration at these jobs.
    registration: Option<Registration>,
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
    shared_keys: Option<Vec<std::borrow::Cow<'a, str>>>,
    #[serde(default)]
    barrier: bool,
    #[serde(default)]
    latest: bool,
    #[serde(default, borrow)]
    payload: Option<&'a RawValue>,
}

impl Submission {
    /// Starts a submission. With `more`, the subtasks follow, one per line. The capacity limits are
    /// checked when the job is complete and known to be new: a repeated request gets the answer of
    /// the accepted job even when the service is full.
    pub(crate) fn begin_intake(
        self: &Arc<Self>,
        job: SubmitJob,
        more: bool,
    ) -> Result<JobSubmission, RequestError> {
        let now = self.clock.now();
        let unique = job.unique_ms.map(UniqueHash::new);
        let ValidatedSubmission { kind, head, subtasks, after } =
            job_definition::check(job, more, &self.kinds, &self.tenants, &self.bounds, now)?;
        if head.webhook.is_some() && !self.state.lock().deliveries.is_enabled {
            return Err(webhooks::not_configured());
        }
        let upload = self.store.upload(now.0).map_err(|error| self.status.write_refused(error))?;
        let mut intake = JobSubmission {
            service: Arc::clone(self),
            kind,
            upload,
            subtasks: PackedSubtasks::default(),
            room: CapacityReservation::new(&self.incoming, head.tenant.as_deref()),
            head,
            now,
            hash: Sha256::new(),
            unique,
            after,
            registration: None,
        };
        if let Some(payload) = intake.split_payload() {
            intake.put(&[], payload.get())?;
        }
        subtasks.iter().try_for_each(|subtask| intake.push(subtask))?;
        Ok(intake)
    }
}

impl JobSubmission {
    /// Adds `bytes` to the request hash, by which an equal request is recognized. Needed only with
    /// an idempotency key.
    pub(crate) fn hash(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
    }

    fn push(&mut self, subtask: &SubmitSubtask) -> Result<(), RequestError> {
        let keys: Vec<KeyClaim<'_>> = subtask.claims().collect();
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
    fn add(&mut self, keys: &[KeyClaim<'_>], payload: &str) -> Result<(), RequestError> {
        self.room.take(1, keys.iter().map(|claim| claim.key.len() as u64).sum())?;
        let number = u32::try_from(self.subtasks.count()).expect("the bound on subtasks is a u32");
        let keys_of = keys.iter().copied();
        self.subtasks.push(NewSubtask { number, keys: keys_of, attempts_made: 0 });
        self.put(keys, payload)
    }

    fn put(&mut self, keys: &[KeyClaim<'_>], payload: &str) -> Result<(), RequestError> {
        if let Some(unique) = &mut self.unique {
            unique.add(keys, payload);
        }
        let put = self.upload.push_claims(keys, payload.as_bytes());
        put.map(drop).map_err(|error| self.service.status.write_refused(error))
    }

    /// Adds the subtask in an NDJSON line.
    pub(crate) fn push_line(&mut self, text: &[u8], number: u64) -> Result<(), RequestError> {
        let wrong = |at: &str, why: String| {
            RequestError::Invalid(vec![(format!("line {number}{at}"), why)])
        };
        let bounds = &self.service.bounds;
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
        let one: [KeyClaim<'_>; 1];
        let many: Vec<KeyClaim<'_>>;
        let is_marked = line.barrier || line.latest;
        let keys: &[KeyClaim<'_>] = match (&line.key, &line.keys, &line.shared_keys) {
            (Some(key), None, None) if !is_marked => {
                one = [KeyClaim::exclusive(key.as_bytes())];
                &one
            }
            (None, None, None) if !is_marked => &[],
            (key, keys, shared) => {
                let exclusive = keys.iter().flatten().chain(key);
                let exclusive = exclusive.map(|key| KeyClaim::exclusive(key.as_bytes()));
                let shared = shared.iter().flatten();
                let shared = shared.map(|key| KeyClaim::shared(key.as_bytes()));
                let barrier = line.barrier.then_some(KeyClaim::BARRIER);
                let latest = line.latest.then_some(KeyClaim::LATEST);
                many = exclusive.chain(shared).chain(barrier).chain(latest).collect();
                &many
            }
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
        let status = Arc::clone(&self.service.status);
        self.upload.flush_async().await.map_err(|error| status.write_refused(error))
    }

    /// Sets the client id.
    pub(crate) fn call(&mut self, client_id: String) {
        self.head.client_id = Some(client_id);
    }

    /// Sets the trace that the job is part of.
    pub(crate) fn trace(&mut self, context: TraceContext) {
        self.head.trace = Some(context);
    }

    /// Returns the client id as an alias of a job, if it was set.
    pub(super) fn alias_of(&self, job: JobId) -> Option<JobAlias> {
        let name = self.head.client_id.clone()?;
        let body_hash = self.hash.clone().finalize().into();
        Some(JobAlias { name, job, body_hash })
    }

    /// Returns the id that the job will have.
    pub(crate) fn id(&self) -> JobId {
        self.upload.id()
    }

    /// Submits the complete job, with extra writes in its transaction. Returns when the store has it
    /// in its queue, which fixes its place in the order. For a job that was submitted before, the
    /// extra writes are not applied.
    pub(crate) async fn submit(
        mut self,
        scope: Option<(String, String)>,
        also: ExtraWrites,
    ) -> Result<SubmitTicket, RequestError> {
        let service = Arc::clone(&self.service);
        let ExtraWrites { mut changes, then } = also;
        let hash: [u8; 32] = self.hash.clone().finalize().into();
        let name = self.head.client_id.clone();
        let (mut claims, before) = service.claim_names(scope.clone(), name, hash).await?;
        if let Some(before) = before {
            return Ok(SubmitTicket::Before(before.into()));
        }
        service.may_take_more()?;
        let expires_ms = service.idempotency.ends();
        let idempotency =
            scope.map(|(scope, key)| IdempotencyEntry { scope, key, body_hash: hash, expires_ms });
        if let Some(unique) = self.unique_name() {
            claims.push(service.idempotency.claim(&unique.scope, &unique.key).await);
            let wanted = unique.clone();
            if let Some(equal) = service.look_up(move |this| this.equal_job(&wanted)).await? {
                service.note_equal(idempotency, self.alias_of(equal.id), &equal).await?;
                return Ok(SubmitTicket::Before(equal.into()));
            }
            changes.idempotency(self.unique_entry(unique), self.id());
        }
        if let Some(alias) = self.alias_of(self.id()) {
            changes.alias(alias);
        }
        self.register_after().await?;
        let (upload, new, entering) = self.into_parts(idempotency)?;
        let (reply, replied) = oneshot::channel();
        let store = service.store.clone();
        let accept = move |committed| service.committed(committed, entering, then, reply, claims);
        store.accept_with_async(vec![(upload, new)], changes, accept).await;
        Ok(SubmitTicket::Coming(replied))
    }

    /// Registers the job at those for which it waits. Called before the job is handed to the store.
    pub(super) async fn register_after(&mut self) -> Result<(), RequestError> {
        if self.after.is_empty() {
            return Ok(());
        }
        let (job, names) = (self.upload.job(), std::mem::take(&mut self.after));
        let registered = self.service.look_up(move |this| this.register_after(job, &names));
        let registration = registered.await?;
        self.head.after = registration.after().to_vec();
        self.registration = Some(registration);
        Ok(())
    }

    /// Returns the name that equal jobs have in common, if the job is unique for a time.
    pub(super) fn unique_name(&self) -> Option<UniqueName> {
        let unique = self.unique.as_ref()?;
        Some(unique.name(&self.head.kind, self.head.tenant.as_deref()))
    }

    /// Returns the stored form of the job's name.
    pub(super) fn unique_entry(&self, name: UniqueName) -> IdempotencyEntry {
        self.unique.as_ref().expect("a unique job has a name").entry(name, self.now)
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
        self.head.barriers = self.subtasks.has_barriers();
        let JobSubmission { kind, head, upload, subtasks, room, now, registration, .. } = self;
        let start_at_ms = head.begins_at(now).map(|at| at.0);
        let status = JobStatus { start_at_ms, ..JobStatus::of(Stored::Waiting) };
        let new = NewJob {
            kind: head.kind.clone(),
            created_ms: now.0,
            head: serde_json::to_vec(&head).expect("a head can be written as JSON"),
            status,
            idempotency,
        };
        let (number, id, total) = (upload.job(), upload.id(), upload.total());
        let entering = AcceptedJob {
            number,
            id,
            total,
            kind,
            head,
            subtasks,
            room,
            created: now,
            registration,
        };
        Ok((upload, new, entering))
    }
}
