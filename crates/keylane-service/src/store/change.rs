//! Changes and requests for the writer thread. The changes of a request are written together or not
//! at all.

use std::fmt;
use std::sync::Arc;

use keylane::admit::OwnedPermit;

use super::alias::JobAlias;
use super::audit::{self, AuditRecord, AuditRetention};
use super::chunk::Chunk;
use super::chunk::MAX_INLINE_BYTES;
use super::error::WriteError;
use super::inbox::InboxEnd;
use super::job_status::{self, JobStatus};
use super::logs::AttemptLog;
use super::outcome::{OutcomeKind, SubtaskOutcome};
use super::schedules::ScheduleChange;
use super::started_attempts::{AttemptStage, LatestAttempt};
use super::upload_state::UploadState;
use crate::ids::{JobId, JobNumber, Key, SubtaskId, SubtaskNumber};

/// List of changes that are written in one transaction, or not at all. They take effect when
/// [submitted](super::Store::submit).
///
/// # Examples
/// ```
/// use keylane_service::store::{Changes, JobState, JobStatus, SubtaskOutcome, OutcomeKind};
/// use keylane_service::{JobNumber, SubtaskId};
///
/// let job = JobNumber(7);
/// let mut changes = Changes::new();
/// changes.ended(job, SubtaskOutcome {
///     number: 0,
///     attempt: 1,
///     kind: OutcomeKind::Succeeded,
///     started_ms: 1_763_000_000_000,
///     ended_ms: 1_763_000_000_250,
///     result: b"done".to_vec(),
/// });
/// changes.status(job, JobStatus::of(JobState::Succeeded));
/// assert_eq!(changes.len(), 2);
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "nothing happens before they are submitted"]
pub struct Changes {
    pub(super) list: Vec<Change>,
}

impl Changes {
    /// Creates an empty list.
    pub fn new() -> Self {
        Changes::default()
    }

    /// Returns the number of changes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Returns whether the list is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Records the start of an attempt, so that it counts even if the process crashes.
    pub fn started(&mut self, subtask: SubtaskId, attempt: u32) {
        self.mark(subtask, LatestAttempt::started(attempt));
    }

    /// Replaces the attempt mark of a subtask. The mark is removed when the subtask or its job
    /// ends.
    pub fn mark(&mut self, subtask: SubtaskId, mark: LatestAttempt) {
        self.push(Change::Mark { subtask, mark });
    }

    /// Raises the boot number of the store to at least `boot`. The next opening has a higher one.
    pub fn raise_boot(&mut self, boot: u64) {
        self.push(Change::RaiseBoot(boot));
    }

    /// Records the final outcome of a subtask. The outcomes of a job in one transaction share a
    /// row.
    pub fn ended(&mut self, job: JobNumber, outcome: SubtaskOutcome) {
        self.push(Change::Outcome { job, outcome });
    }

    /// Records the output of an attempt. Without its job, the log is dropped, and the other changes
    /// are still made.
    pub fn said(&mut self, job: JobNumber, log: AttemptLog) {
        self.push(Change::Log { job, log: Box::new(log) });
    }

    /// Sets the status of a job: paused, resumed, scheduled, cancelling or ended. After its end,
    /// only [`reopen`](Self::reopen) changes it.
    pub fn status(&mut self, job: JobNumber, status: JobStatus) {
        self.push(Change::Status { job, status });
    }

    /// Gives a scheduled job that begins now its position in the order, behind all others, and sets
    /// its status.
    pub fn enter(&mut self, job: JobNumber, status: JobStatus) {
        self.push(Change::Enter { job, status });
    }

    /// Reopens ended subtasks of an ended job. The job continues with this status, at a new
    /// position behind all others.
    pub fn reopen(
        &mut self,
        job: JobNumber,
        subtasks: impl IntoIterator<Item = SubtaskNumber>,
        now_ms: u64,
        status: JobStatus,
    ) {
        self.push(Change::Reopen { job, status });
        self.reopen_more(job, subtasks, now_ms);
    }

    /// Reopens further ended subtasks of a job that was [reopened](Self::reopen).
    pub fn reopen_more(
        &mut self,
        job: JobNumber,
        subtasks: impl IntoIterator<Item = SubtaskNumber>,
        now_ms: u64,
    ) {
        for number in subtasks {
            let (kind, result) = (OutcomeKind::Reopened, Vec::new());
            let (started_ms, ended_ms) = (now_ms, now_ms);
            let outcome = SubtaskOutcome { number, attempt: 0, kind, started_ms, ended_ms, result };
            self.push(Change::Outcome { job, outcome });
        }
    }

    /// Replaces the stored subtasks of a job that these changes [reopen](Self::reopen) by others with the same numbers
    /// and keys, from [`Chunk::with_payloads`].
    pub fn edit(&mut self, chunk: Chunk) {
        self.push(Change::Edit(Arc::new(chunk)));
    }

    /// Records outcomes for subtasks of an ended job that have none of their own.
    pub fn settle(&mut self, job: JobNumber, outcomes: impl IntoIterator<Item = SubtaskOutcome>) {
        self.push(Change::Settle(job));
        outcomes.into_iter().for_each(|outcome| self.ended(job, outcome));
    }

    /// Deletes an ended job with all its data. It disappears at once; its space is freed in small
    /// steps, so that no other write waits for a large deletion.
    pub fn purge(&mut self, job: JobNumber) {
        self.push(Change::Purge(job));
    }

    /// Deletes a damaged job with all its data, regardless of the state in its row. `now_ms` is the
    /// time of the decision.
    pub fn remove_damaged(&mut self, job: JobNumber, now_ms: u64) {
        self.push(Change::SetAside { job, status: job_status::set_aside(now_ms) });
        self.push(Change::Purge(job));
    }

    /// Pauses or stops a key, or releases it if `record` is `None`.
    pub fn key(&mut self, key: Key, record: Option<KeyRecord>) {
        self.push(Change::Key { key, record });
    }

    /// Replaces the caller's own record of a job.
    pub fn head(&mut self, job: JobNumber, head: Vec<u8>) {
        self.push(Change::Reform { job, head: Some(head), total: None, upload: None });
    }

    /// Stores an idempotency key for these changes, with the job that they concern.
    pub fn idempotency(&mut self, entry: IdempotencyEntry, id: JobId) {
        self.push(Change::Idempotency { entry, id });
    }

    /// Deletes idempotency keys that have expired at `now_ms`.
    pub fn forget_idempotency(&mut self, now_ms: u64) {
        self.push(Change::ForgetIdempotency { now_ms });
    }

    /// Replaces a setting, or removes it.
    pub fn setting(&mut self, name: &str, body: Option<Vec<u8>>) {
        self.push(Change::Setting { name: name.to_owned(), body });
    }

    /// Replaces or removes a schedule if its version is `was` (`None`: the schedule does not
    /// exist). `then` is the next version with its body, or `None` to remove it. With another
    /// version, none of these changes is made.
    pub fn schedule(&mut self, name: &str, was: Option<u64>, then: Option<(u64, Vec<u8>)>) {
        self.push(Change::Schedule(Box::new(ScheduleChange { name: name.to_owned(), was, then })));
    }

    /// Stores a client's own identifier for a job that is accepted with these changes. If the
    /// identifier is taken, none of them is made.
    pub fn alias(&mut self, alias: JobAlias) {
        self.push(Change::Alias(alias));
    }

    /// Removes a row from the inbox, whose job is accepted with these changes, or was refused at a time in milliseconds since 1970.
    pub(crate) fn end_inbox(&mut self, id: u64, refusal: Option<(String, u64)>) {
        self.push(Change::EndInbox(InboxEnd { id, refusal }));
    }

    /// Appends an entry to the audit log, with the next number.
    pub fn audit(&mut self, record: AuditRecord) {
        self.push(Change::Audit { number: None, record: Box::new(record) });
    }

    /// Deletes the oldest audit entries beyond the retention, a bounded number per call.
    pub fn forget_audit(&mut self, kept: AuditRetention) {
        self.push(Change::ForgetAudit(kept));
    }

    /// Splits the list into lists of one change each, in reverse order.
    pub(crate) fn singles(self) -> Vec<Changes> {
        self.list.into_iter().rev().map(|change| Changes { list: vec![change] }).collect()
    }

    /// Appends the changes of another list.
    pub(crate) fn followed_by(mut self, others: Changes) -> Changes {
        self.list.extend(others.list);
        self
    }

    pub(super) fn push(&mut self, change: Change) {
        self.list.push(change);
    }
}

/// Immutable properties of a job, with its initial status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Kind, which names the handler of the subtasks.
    pub kind: String,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Caller's own record: name, labels, settings. Opaque to the store.
    pub head: Vec<u8>,
    /// Initial status: waiting, paused or scheduled.
    pub status: JobStatus,
    /// Idempotency key of the request, if it has one.
    pub idempotency: Option<IdempotencyEntry>,
}

/// Idempotency key: a repeated request with this key returns the first one's job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdempotencyEntry {
    /// Namespace of the key, for example the client.
    pub scope: String,
    /// Client's key.
    pub key: String,
    /// Hash of the request, to detect another request with this key.
    pub body_hash: [u8; 32],
    /// Expiry time, in milliseconds since 1970.
    pub expires_ms: u64,
}

/// Reason why the tasks of a key do not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyBlockReason {
    /// Paused by an operator.
    Paused,
    /// Stopped by the failure policy after a subtask failed.
    Stopped,
}

/// Record of a paused or stopped key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Reason for the pause or stop.
    pub state: KeyBlockReason,
    /// Time of the pause or stop, in milliseconds since 1970.
    pub since_ms: u64,
    /// Operator's explanation.
    pub reason: String,
}

/// Receipt for changes that are on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommitReceipt {
    /// Number of the transaction. It grows with every commit, also over restarts.
    pub commit: u64,
    /// New position of the job in the order, if one entered with these changes; the last one's if
    /// several did.
    pub entered: Option<u64>,
}

/// Single change of a transaction.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Subtasks of a job whose upload is in progress.
    Chunk {
        chunk: Arc<Chunk>,
        upload: Arc<UploadState>,
    },
    Accept(Box<JobAcceptance>),
    /// Discards an unfinished upload.
    Abandon(JobNumber),
    Mark {
        subtask: SubtaskId,
        mark: LatestAttempt,
    },
    /// Raises the boot number; see [`Changes::raise_boot`].
    RaiseBoot(u64),
    Outcome {
        job: JobNumber,
        outcome: SubtaskOutcome,
    },
    Log {
        job: JobNumber,
        log: Box<AttemptLog>,
    },
    Status {
        job: JobNumber,
        status: JobStatus,
    },
    /// Sets the status and gives the job a new position in the order.
    Enter {
        job: JobNumber,
        status: JobStatus,
    },
    /// Reopens an ended job with a new position in the order. The outcomes that name its subtasks
    /// follow.
    Reopen {
        job: JobNumber,
        status: JobStatus,
    },
    /// Replaces a chunk of a job that was reopened before.
    Edit(Arc<Chunk>),
    /// Admits the outcomes that follow, although the job has ended.
    Settle(JobNumber),
    /// Sets the status of a damaged job without reading its row.
    SetAside {
        job: JobNumber,
        status: JobStatus,
    },
    /// Replaces the head; or adds subtasks, whose chunks were written before, with a new position
    /// in the order.
    Reform {
        job: JobNumber,
        head: Option<Vec<u8>>,
        total: Option<u32>,
        upload: Option<Arc<UploadState>>,
    },
    Purge(JobNumber),
    EndInbox(InboxEnd),
    Key {
        key: Key,
        record: Option<KeyRecord>,
    },
    Idempotency {
        entry: IdempotencyEntry,
        id: JobId,
    },
    ForgetIdempotency {
        now_ms: u64,
    },
    Schedule(Box<ScheduleChange>),
    Setting {
        name: String,
        /// Removes it if `None`.
        body: Option<Vec<u8>>,
    },
    Alias(JobAlias),
    Audit {
        /// Assigned number, beyond all others; `None` for the next one.
        number: Option<u64>,
        record: Box<AuditRecord>,
    },
    ForgetAudit(AuditRetention),
}

/// Acceptance of a job whose subtasks are stored.
#[derive(Clone, Debug)]
pub(super) struct JobAcceptance {
    pub(super) job: JobNumber,
    pub(super) id: JobId,
    pub(super) new: NewJob,
    pub(super) total: u32,
    /// All subtasks, if they fit in one small chunk; larger jobs have their chunks written before.
    pub(super) inline: Option<Arc<Chunk>>,
    pub(super) upload: Arc<UploadState>,
}

impl Change {
    /// Returns whether the change is a chunk, or completes or discards an upload that has chunks.
    /// The writer receives these in their order, behind all chunks of the same upload.
    pub(super) fn is_of_upload(&self) -> bool {
        match self {
            Change::Chunk { .. } | Change::Abandon(_) => true,
            Change::Accept(accept) => accept.inline.is_none() && accept.total > 0,
            Change::Reform { upload, .. } => upload.is_some(),
            _ => false,
        }
    }

    /// Returns the approximate size of the write, in bytes.
    pub(super) fn bytes(&self) -> usize {
        const ROW: usize = 64;
        /// Bound for a job's row: its head and at most its inline chunk.
        const WHOLE_ROW: usize = MAX_INLINE_BYTES;
        ROW + match self {
            Change::Chunk { chunk, .. } => chunk.sealed().len(),
            Change::Edit(chunk) => WHOLE_ROW + chunk.sealed().len(),
            Change::Accept(accept) => {
                let inline = accept.inline.as_ref().map_or(0, |chunk| chunk.sealed().len());
                accept.new.head.len() + accept.new.kind.len() + inline + ROW
            }
            Change::Outcome { outcome, .. } => outcome.result.len(),
            Change::Log { log, .. } => log.text.len(),
            Change::Reform { head, .. } => WHOLE_ROW + head.as_ref().map_or(0, Vec::len),
            Change::Enter { .. } | Change::Reopen { .. } => WHOLE_ROW,
            Change::Key { key, record } => {
                key.0.len() + record.as_ref().map_or(0, |record| record.reason.len())
            }
            Change::Audit { record, .. } => audit::bytes(record),
            Change::Mark {
                mark: LatestAttempt { stage: AttemptStage::Stopped { reason, .. }, .. },
                ..
            } => reason.len(),
            Change::Schedule(change) => change.then.as_ref().map_or(0, |(_, body)| body.len()),
            Change::Setting { body, .. } => body.as_ref().map_or(0, Vec::len),
            _ => 0,
        }
    }
}

/// Callback for the result of a request and its changes, called exactly once. Dropped without a
/// call, it reports that nothing was written, without the changes.
pub(super) struct WriteReply(Option<Box<CommitCallback>>);

type CommitCallback = dyn FnOnce(Result<CommitReceipt, WriteError>, Changes) + Send;

impl WriteReply {
    pub(super) fn new(
        tell: impl FnOnce(Result<CommitReceipt, WriteError>) + Send + 'static,
    ) -> Self {
        WriteReply::with_changes(move |result, _| tell(result))
    }

    /// Creates a reply that returns the changes with the result.
    pub(super) fn with_changes(
        tell: impl FnOnce(Result<CommitReceipt, WriteError>, Changes) + Send + 'static,
    ) -> Self {
        WriteReply(Some(Box::new(tell)))
    }

    /// Creates a reply that calls `first` before this one.
    pub(super) fn after(mut self, first: impl FnOnce() + Send + 'static) -> Self {
        let then = self.0.take();
        WriteReply::with_changes(move |result, changes| {
            first();
            if let Some(then) = then {
                then(result, changes);
            }
        })
    }

    /// Creates a reply that is discarded.
    pub(super) fn to_nobody() -> Self {
        WriteReply(None)
    }

    pub(super) fn tell(mut self, result: Result<CommitReceipt, WriteError>, changes: Vec<Change>) {
        if let Some(tell) = self.0.take() {
            tell(result, Changes { list: changes });
        }
    }
}

impl Drop for WriteReply {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            let error = WriteError::Failed { cause: "the writer has ended".into() };
            tell(Err(error), Changes::new());
        }
    }
}

impl fmt::Debug for WriteReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WriteReply").field(&self.0.is_some()).finish()
    }
}

/// Request in the writer's queue.
#[derive(Debug)]
pub(super) struct WriteRequest {
    pub(super) changes: Vec<Change>,
    pub(super) answer: WriteReply,
    /// Admission permit for new work, released after the write.
    pub(super) _room: Option<OwnedPermit>,
}

impl WriteRequest {
    /// Returns the approximate size of the write, in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.changes.iter().map(Change::bytes).sum()
    }
}
