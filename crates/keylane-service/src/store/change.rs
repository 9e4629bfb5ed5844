//! What the writer is asked to do.

use std::fmt;
use std::sync::Arc;

use keylane::admit::OwnedPermit;

use super::alias::Alias;
use super::audit::{self, AuditKept, AuditRecord};
use super::chunk::Chunk;
use super::draft;
use super::error::WriteError;
use super::logs::AttemptLog;
use super::marks::{Mark, Stage};
use super::outcome::{Outcome, OutcomeKind};
use super::parts::UploadState;
use super::schedules::ScheduleChange;
use super::status::JobStatus;
use super::upload::MOST_INLINE_BYTES;
use crate::ids::{JobId, JobNumber, Key, SubtaskId, SubtaskNumber};

/// Changes that are written together or not at all. Nothing happens before they are
/// [submitted](super::Store::submit).
///
/// # Examples
/// ```
/// use keylane_service::store::{Changes, JobState, JobStatus, Outcome, OutcomeKind};
/// use keylane_service::{JobNumber, SubtaskId};
///
/// let job = JobNumber(7);
/// let mut changes = Changes::new();
/// changes.ended(job, Outcome {
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
    /// None yet.
    pub fn new() -> Self {
        Changes::default()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// An attempt has begun, so that it counts if the process does not survive it.
    pub fn started(&mut self, subtask: SubtaskId, attempt: u32) {
        self.mark(subtask, Mark::started(attempt));
    }

    /// Replaces the mark of a subtask. It goes when the subtask ends or its job is over.
    pub fn mark(&mut self, subtask: SubtaskId, mark: Mark) {
        self.push(Change::Mark { subtask, mark });
    }

    /// Raises the number of the store's opening to at least `boot`: the next opening has a higher one.
    pub fn raise_boot(&mut self, boot: u64) {
        self.push(Change::RaiseBoot(boot));
    }

    /// A subtask has ended for good. All of a job's in a transaction make up one row.
    pub fn ended(&mut self, job: JobNumber, outcome: Outcome) {
        self.push(Change::Outcome { job, outcome });
    }

    /// What an attempt said, whatever became of it. If its job is gone, nothing is kept of it; it keeps no other change
    /// from being made.
    pub fn said(&mut self, job: JobNumber, log: AttemptLog) {
        self.push(Change::Log { job, log: Box::new(log) });
    }

    /// A job is paused, resumed, scheduled, being cancelled, or over. Once it is over, only
    /// [`reopen`](Self::reopen) changes that.
    pub fn status(&mut self, job: JobNumber, status: JobStatus) {
        self.push(Change::Status { job, status });
    }

    /// The subtasks of a job that was accepted to begin later, and does now, enter the order: behind all others. This is
    /// its status from now on.
    pub fn enter(&mut self, job: JobNumber, status: JobStatus) {
        self.push(Change::Enter { job, status });
    }

    /// Subtasks that have ended are to be done again, and so their job, which is over, goes on with this status, and
    /// enters the order again, behind all others.
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

    /// More subtasks that have ended are to be done again, of a job that was [reopened](Self::reopen) and goes on.
    pub fn reopen_more(
        &mut self,
        job: JobNumber,
        subtasks: impl IntoIterator<Item = SubtaskNumber>,
        now_ms: u64,
    ) {
        for number in subtasks {
            let (kind, result) = (OutcomeKind::Reopened, Vec::new());
            let (started_ms, ended_ms) = (now_ms, now_ms);
            let outcome = Outcome { number, attempt: 0, kind, started_ms, ended_ms, result };
            self.push(Change::Outcome { job, outcome });
        }
    }

    /// Subtasks of a job that is over have ended like this, and had no outcome of their own.
    pub fn settle(&mut self, job: JobNumber, outcomes: impl IntoIterator<Item = Outcome>) {
        self.push(Change::Settle(job));
        outcomes.into_iter().for_each(|outcome| self.ended(job, outcome));
    }

    /// A job that has ended goes, with all it has. It is gone at once; its room is given back bit by
    /// bit, so that nobody waits for it.
    pub fn purge(&mut self, job: JobNumber) {
        self.push(Change::Purge(job));
    }

    /// A job that is damaged goes, with all it has, whatever its row says. `now_ms` is when that was decided.
    pub fn remove_damaged(&mut self, job: JobNumber, now_ms: u64) {
        self.push(Change::SetAside { job, status: draft::set_aside(now_ms) });
        self.push(Change::Purge(job));
    }

    /// A key is paused or stopped; or, with none, neither any more.
    pub fn key(&mut self, key: Key, record: Option<KeyRecord>) {
        self.push(Change::Key { key, record });
    }

    /// What the caller keeps of a job is something else from now on.
    pub fn head(&mut self, job: JobNumber, head: Vec<u8>) {
        self.push(Change::Reform { job, head: Some(head), total: None, upload: None });
    }

    /// What these changes do was asked for under this key, and is about this job if it is about one.
    pub fn idempotency(&mut self, entry: Idempotency, id: JobId) {
        self.push(Change::Idempotency { entry, id });
    }

    /// Idempotency keys that are no longer to be kept at this time go.
    pub fn forget_idempotency(&mut self, now_ms: u64) {
        self.push(Change::ForgetIdempotency { now_ms });
    }

    /// A schedule, which has the version `was`, or is not there if that is none, becomes this: its next version
    /// and its body; or goes, if that is none. If it is not as `was` says, none of these changes is made.
    pub fn schedule(&mut self, name: &str, was: Option<u64>, then: Option<(u64, Vec<u8>)>) {
        self.push(Change::Schedule(Box::new(ScheduleChange { name: name.to_owned(), was, then })));
    }

    /// A client's own name for a job that is accepted with these changes. If it is taken, none of them is made.
    pub fn alias(&mut self, alias: Alias) {
        self.push(Change::Alias(alias));
    }

    /// What somebody has done: an entry of the log, with the next number.
    pub fn audit(&mut self, record: AuditRecord) {
        self.push(Change::Audit { number: None, record: Box::new(record) });
    }

    /// The oldest entries of the log go that are not to be kept, some of them if they are many.
    pub fn forget_audit(&mut self, kept: AuditKept) {
        self.push(Change::ForgetAudit(kept));
    }

    /// Each of them by itself, the last first.
    pub(crate) fn singles(self) -> Vec<Changes> {
        self.list.into_iter().rev().map(|change| Changes { list: vec![change] }).collect()
    }

    /// These changes, and behind them the others.
    pub(crate) fn followed_by(mut self, others: Changes) -> Changes {
        self.list.extend(others.list);
        self
    }

    pub(super) fn push(&mut self, change: Change) {
        self.list.push(change);
    }
}

/// What of a job does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// What is to be done with its subtasks: the name of something that the service has.
    pub kind: String,
    /// When it came, in milliseconds since 1970.
    pub created_ms: u64,
    /// What else is to be known of it: name, labels, settings. The store does not look into it.
    pub head: Vec<u8>,
    /// Waiting, or paused; perhaps scheduled.
    pub status: JobStatus,
    /// Under which key the client may send it again.
    pub idempotency: Option<Idempotency>,
}

/// Under which key a client may ask again for the same, and get the same job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// Whose keys these are.
    pub scope: String,
    /// The client's key.
    pub key: String,
    /// Of what was asked for, so that another request under this key is noticed.
    pub body_hash: [u8; 32],
    /// How long it is kept: milliseconds since 1970.
    pub expires_ms: u64,
}

/// Why nothing of a key is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeyState {
    /// Somebody has paused it.
    Paused,
    /// A subtask of it has failed, and the rule is to stop.
    Stopped,
}

/// That nothing of a key is started, why, and since when.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRecord {
    /// Why.
    pub state: KeyState,
    /// Since when, in milliseconds since 1970.
    pub since_ms: u64,
    /// In the words of whoever has done it.
    pub reason: String,
}

/// That changes are on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// The number of their transaction. Later ones are higher, and so are those after a restart.
    pub commit: u64,
    /// The job's place in the order, if one has entered it with these changes; of several, the last one's.
    pub entered: Option<u64>,
}

/// What one transaction can do.
#[derive(Clone, Debug)]
pub(super) enum Change {
    /// Subtasks of a job that is being uploaded.
    Chunk {
        chunk: Arc<Chunk>,
        upload: Arc<UploadState>,
    },
    Accept(Box<Accept>),
    /// What was uploaded of a job is not wanted.
    Abandon(JobNumber),
    Mark {
        subtask: SubtaskId,
        mark: Mark,
    },
    /// See [`Changes::raise_boot`].
    RaiseBoot(u64),
    Outcome {
        job: JobNumber,
        outcome: Outcome,
    },
    Log {
        job: JobNumber,
        log: Box<AttemptLog>,
    },
    Status {
        job: JobNumber,
        status: JobStatus,
    },
    /// As `Status`, and with a new place in the order.
    Enter {
        job: JobNumber,
        status: JobStatus,
    },
    /// The same, of a job that was over. The outcomes that say which subtasks follow.
    Reopen {
        job: JobNumber,
        status: JobStatus,
    },
    /// Outcomes follow of a job, which takes them although it is over.
    Settle(JobNumber),
    /// As `Status`, of a job of which nothing is believed.
    SetAside {
        job: JobNumber,
        status: JobStatus,
    },
    /// Another head; or more subtasks, whose chunks were written before, and with them a new place in the order.
    Reform {
        job: JobNumber,
        head: Option<Vec<u8>>,
        total: Option<u32>,
        upload: Option<Arc<UploadState>>,
    },
    Purge(JobNumber),
    Key {
        key: Key,
        record: Option<KeyRecord>,
    },
    Idempotency {
        entry: Idempotency,
        id: JobId,
    },
    ForgetIdempotency {
        now_ms: u64,
    },
    Schedule(Box<ScheduleChange>),
    Alias(Alias),
    Audit {
        /// The next one, unless it has one already: then that is beyond all others.
        number: Option<u64>,
        record: Box<AuditRecord>,
    },
    ForgetAudit(AuditKept),
}

/// A job whose subtasks are there.
#[derive(Clone, Debug)]
pub(super) struct Accept {
    pub(super) job: JobNumber,
    pub(super) id: JobId,
    pub(super) new: NewJob,
    pub(super) total: u32,
    /// All subtasks, if they are in one small chunk; otherwise they were written before.
    pub(super) inline: Option<Arc<Chunk>>,
    pub(super) upload: Arc<UploadState>,
}

impl Change {
    /// About how many bytes it writes.
    pub(super) fn bytes(&self) -> usize {
        const ROW: usize = 64;
        /// A job's row with its head and, at most, its own chunk.
        const WHOLE_ROW: usize = MOST_INLINE_BYTES;
        ROW + match self {
            Change::Chunk { chunk, .. } => chunk.sealed().len(),
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
            Change::Mark { mark: Mark { stage: Stage::Stopped { reason, .. }, .. }, .. } => {
                reason.len()
            }
            Change::Schedule(change) => change.then.as_ref().map_or(0, |(_, body)| body.len()),
            _ => 0,
        }
    }
}

/// Where the answer goes: told once, or when it is dropped that nothing was written.
pub(super) struct Answer(Option<Box<Callback>>);

type Callback = dyn FnOnce(Result<Committed, WriteError>) + Send;

impl Answer {
    pub(super) fn new(tell: impl FnOnce(Result<Committed, WriteError>) + Send + 'static) -> Self {
        Answer(Some(Box::new(tell)))
    }

    /// Nobody wants to know.
    pub(super) fn to_nobody() -> Self {
        Answer(None)
    }

    pub(super) fn tell(mut self, result: Result<Committed, WriteError>) {
        if let Some(tell) = self.0.take() {
            tell(result);
        }
    }
}

impl Drop for Answer {
    fn drop(&mut self) {
        if let Some(tell) = self.0.take() {
            tell(Err(WriteError::Failed { cause: "the writer has ended".into() }));
        }
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Answer").field(&self.0.is_some()).finish()
    }
}

/// Changes on their way to the writer.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) changes: Vec<Change>,
    pub(super) answer: Answer,
    /// The room that it takes in the queue, if it takes some; given back when it was written.
    pub(super) _room: Option<OwnedPermit>,
}
