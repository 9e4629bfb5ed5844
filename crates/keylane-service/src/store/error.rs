use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use keylane_stream::sqlite::{self, HighWaterMarkError, LockError, WriteRefused};
use rusqlite::types::FromSqlError;

use super::outcome::OutcomePlace;
use crate::ids::{JobId, JobNumber, SubtaskNumber};

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// It is open already, here or in another process.
    #[error("{} is in use{}", path.display(), by.map(|by| format!(" by process {by}")).unwrap_or_default())]
    InUse {
        /// The store.
        path: PathBuf,
        /// The process that has it open, as far as is known.
        by: Option<u32>,
    },
    /// A later version of this program has written it.
    #[error("{} has a layout of version {version}, which a later keylane has written", path.display())]
    Later {
        /// The file.
        path: PathBuf,
        /// The version of its layout.
        version: i32,
    },
    /// An earlier version of this program has written it, and it was only to be looked at. Opening it brings it
    /// forward.
    #[error(
        "{} has a layout of version {version}, of an earlier keylane; the server brings it forward when it starts",
        path.display()
    )]
    Earlier {
        /// The file.
        path: PathBuf,
        /// The version of its layout.
        version: i32,
    },
    /// The file is something else.
    #[error("{} is not a store of keylane's: {why}", path.display())]
    NotAStore {
        /// The file.
        path: PathBuf,
        /// What was found in it.
        why: String,
    },
    /// Something was acknowledged that the file no longer has: its write-ahead log was damaged, or not
    /// copied with it.
    #[error(
        "commits {} to {acknowledged} were acknowledged and are gone; to go on without them, delete {}",
        has + 1, mark.display()
    )]
    Lost {
        /// The last commit that is there.
        has: u64,
        /// The last one that was acknowledged.
        acknowledged: u64,
        /// The file that says so.
        mark: PathBuf,
    },
    /// Something in it is not what was written, and it is not a job's own.
    #[error(
        "the store is damaged: {0}; `keylane store salvage FROM TO` copies all that can be read into a new store, and \
         names what cannot"
    )]
    Damaged(Damage),
    /// A file could not be opened, read or written.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// It could not be locked.
    #[error("cannot {doing} of the store {}", path.display())]
    Lock {
        /// The store.
        path: PathBuf,
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// SQLite could not.
    #[error("cannot open {}: {why}", path.display())]
    Sqlite {
        /// The store.
        path: PathBuf,
        /// What it said.
        why: Arc<str>,
    },
}

/// Why something was not written. Unless it says otherwise, nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The disk, or the size that the store may have, is full. It works on as soon as there is room.
    #[error("the store is full, nothing was written")]
    Full,
    /// Another program holds SQLite's lock on the file.
    #[error("another program keeps the store locked, nothing was written")]
    Busy,
    /// The disk has failed, now or before. What was being written may or may not be there. Nothing
    /// more is written until the store is opened again.
    #[error("the store has failed and must be opened again: {cause}")]
    Failed {
        /// What failed first.
        cause: Arc<str>,
    },
    /// There is no such job.
    #[error("there is no job {}", job.0)]
    NoSuchJob {
        /// Its number.
        job: JobNumber,
    },
    /// The job has no such subtask.
    #[error("job {} has {total} subtasks, and none with number {number}", job.0)]
    NoSuchSubtask {
        /// The job.
        job: JobNumber,
        /// The number.
        number: SubtaskNumber,
        /// How many it has.
        total: u32,
    },
    /// The job has ended, and this is for one that has not.
    #[error("job {} has ended", job.0)]
    Ended {
        /// The job.
        job: JobNumber,
    },
    /// The job has not ended, and this is for one that has.
    #[error("job {} has not ended", job.0)]
    NotEnded {
        /// The job.
        job: JobNumber,
    },
    /// A job was accepted before with the same idempotency key, or has the name that this one was to have.
    #[error("{job} was accepted before with this idempotency key or name")]
    Duplicate {
        /// That job.
        job: JobId,
        /// The hash of what was asked for then.
        body_hash: [u8; 32],
    },
    /// The schedule is not, or no longer, as the change takes it to be.
    #[error("schedule {schedule:?} has changed meanwhile")]
    OtherVersion {
        /// Its name.
        schedule: String,
    },
    /// It takes more than the store can number or hold at once.
    #[error("{what}: no more than {most}")]
    TooLarge {
        /// What there is too much of.
        what: &'static str,
        /// How much there can be.
        most: u64,
    },
}

impl From<&WriteRefused> for WriteError {
    fn from(refused: &WriteRefused) -> Self {
        match refused {
            WriteRefused::Full => WriteError::Full,
            WriteRefused::Busy => WriteError::Busy,
            WriteRefused::Failed(cause) => WriteError::Failed { cause: Arc::clone(cause) },
        }
    }
}

/// Why something was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// There is no such job.
    #[error("there is no job {}", job.0)]
    NoSuchJob {
        /// Its number.
        job: JobNumber,
    },
    /// The job has no such subtask.
    #[error("job {} has no subtask {number}", job.0)]
    NoSuchSubtask {
        /// The job.
        job: JobNumber,
        /// The number.
        number: SubtaskNumber,
    },
    /// What was asked for is not what was written.
    #[error("the store is damaged: {0}")]
    Damaged(Damage),
    /// SQLite could not.
    #[error("cannot read the store: {why}")]
    Sqlite {
        /// What it said.
        why: Arc<str>,
    },
}

/// What in a store is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// A job's own row.
    Job {
        /// Its number.
        job: JobNumber,
    },
    /// The chunk with this subtask.
    Chunk {
        /// The job.
        job: JobNumber,
        /// The subtask.
        number: SubtaskNumber,
    },
    /// There is no chunk with these subtasks.
    MissingSubtasks {
        /// The job.
        job: JobNumber,
        /// The first of them.
        from: SubtaskNumber,
        /// One past the last of them.
        until: SubtaskNumber,
    },
    /// The outcomes from here on, up to those of the next row.
    Outcomes {
        /// The job.
        job: JobNumber,
        /// The first of them.
        from: OutcomePlace,
    },
    /// What is said of a job's subtasks at its end is not what became of them.
    Counts {
        /// The job.
        job: JobNumber,
    },
    /// A subtask has ended twice, without having been reopened between.
    Twice {
        /// The job.
        job: JobNumber,
        /// The subtask.
        number: SubtaskNumber,
    },
    /// What an attempt at a subtask said.
    Log {
        /// The job.
        job: JobNumber,
        /// The subtask.
        number: SubtaskNumber,
    },
    /// Chunks, outcomes or logs of a job that is not there.
    Orphans {
        /// The job.
        job: JobNumber,
    },
    /// Which attempts have begun.
    Marks {
        /// The number of the row.
        row: u64,
    },
    /// What is said of a key.
    Key {
        /// The key, with what cannot be printed escaped.
        key: String,
    },
    /// An idempotency key.
    Idempotency {
        /// Its scope.
        scope: String,
        /// The key.
        key: String,
    },
    /// What a client calls a job.
    Alias {
        /// The name.
        name: String,
    },
    /// A schedule.
    Schedule {
        /// Its name.
        name: String,
    },
    /// An entry of the log of what operators have done.
    Audit {
        /// Its number.
        number: u64,
    },
    /// Entries of that log that are not there.
    MissingAudit {
        /// The first one.
        from: u64,
        /// The one after the last.
        until: u64,
    },
    /// What the store knows of itself.
    Meta,
    /// Jobs that are not over are not there.
    MissingJobs {
        /// How many.
        count: u64,
    },
    /// Jobs that are there and that the index lacks: nothing would run them.
    Index {
        /// The job.
        job: JobNumber,
    },
    /// A job's rows are in pages of the file that are not what was written.
    Pages {
        /// The job.
        job: JobNumber,
        /// What SQLite says about it.
        why: String,
    },
    /// Rows of a table are in pages of the file that cannot be read.
    Rows {
        /// The table.
        table: String,
        /// The number of the first row that may be lost.
        first: i64,
        /// The number of the last one.
        last: i64,
        /// What SQLite says about it.
        why: String,
    },
    /// Something was acknowledged that the file no longer has.
    Lost {
        /// The last commit that is there.
        has: u64,
        /// The last one that was acknowledged.
        acknowledged: u64,
    },
    /// The file that says how much was acknowledged.
    Mark {
        /// Which it is.
        path: PathBuf,
    },
    /// The file itself.
    File {
        /// What SQLite says about it.
        why: String,
    },
}

impl Damage {
    /// Whose it is, if it is a job's.
    #[must_use]
    pub fn job(&self) -> Option<JobNumber> {
        match self {
            Damage::Job { job }
            | Damage::Chunk { job, .. }
            | Damage::MissingSubtasks { job, .. }
            | Damage::Outcomes { job, .. }
            | Damage::Counts { job }
            | Damage::Twice { job, .. }
            | Damage::Log { job, .. }
            | Damage::Index { job }
            | Damage::Pages { job, .. }
            | Damage::Orphans { job } => Some(*job),
            _ => None,
        }
    }
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Damage::Job { job } => write!(f, "the row of job {}", job.0),
            Damage::Chunk { job, number } => {
                write!(f, "the chunk of job {} with subtask {number}", job.0)
            }
            Damage::MissingSubtasks { job, from, until } => {
                write!(f, "subtasks {from} to before {until} of job {} are missing", job.0)
            }
            Damage::Outcomes { job, from } => {
                write!(f, "the outcomes of job {} from place {} on", job.0, from.get())
            }
            Damage::Counts { job } => {
                write!(f, "the counts of job {} are not its outcomes'", job.0)
            }
            Damage::Twice { job, number } => {
                write!(f, "subtask {number} of job {} has ended twice", job.0)
            }
            Damage::Log { job, number } => {
                write!(f, "what an attempt at subtask {number} of job {} said", job.0)
            }
            Damage::Orphans { job } => write!(f, "parts of job {}, which is not there", job.0),
            Damage::Marks { row } => write!(f, "row {row} of the attempts that have begun"),
            Damage::Key { key } => write!(f, "what is said of key {key:?}"),
            Damage::Idempotency { scope, key } => {
                write!(f, "the idempotency key {key:?} in {scope:?}")
            }
            Damage::Alias { name } => write!(f, "the job's name {name:?}"),
            Damage::Schedule { name } => write!(f, "the schedule {name:?}"),
            Damage::Audit { number } => write!(f, "entry {number} of the audit log"),
            Damage::MissingAudit { from, until } => {
                write!(f, "entries {from} to before {until} of the audit log are missing")
            }
            Damage::Meta => f.write_str("what the store knows of itself"),
            Damage::MissingJobs { count } => write!(f, "{count} unfinished jobs are missing"),
            Damage::Index { job } => {
                write!(f, "the index lacks job {}, which the next start puts right", job.0)
            }
            Damage::Pages { job, why } => write!(f, "pages with rows of job {}: {why}", job.0),
            Damage::Rows { table, first: i64::MIN, last: i64::MAX, why } => {
                write!(f, "rows of the table {table}: {why}")
            }
            Damage::Rows { table, first, last, why } => {
                write!(f, "rows {first} to {last} of the table {table}: {why}")
            }
            Damage::Lost { has, acknowledged } => {
                write!(f, "commits {} to {acknowledged} were acknowledged and are gone", has + 1)
            }
            Damage::Mark { path } => write!(
                f,
                "{} belongs to another store or is damaged; if this store replaced another one, delete that file, too",
                path.display()
            ),
            Damage::File { why } => write!(f, "the file: {why}"),
        }
    }
}

/// Why there is no backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// There is such a file already.
    #[error("{} is there already", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// A file could not be written.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// SQLite could not.
    #[error("cannot copy the store: {why}")]
    Sqlite {
        /// What it said.
        why: String,
    },
}

/// Why a store was not salvaged.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// The new file is there already.
    #[error("{} is there already; name a new file", path.display())]
    Exists {
        /// The file.
        path: PathBuf,
    },
    /// The store could not be opened, or a file could not be written.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// What was read could not be understood.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The new file could not get its name.
    #[error(transparent)]
    Name(#[from] BackupError),
}

impl From<rusqlite::Error> for SalvageError {
    fn from(error: rusqlite::Error) -> Self {
        SalvageError::Read(ReadError::from(error))
    }
}

/// Why an export has stopped. What was written until then is no whole export: its last line is missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What was read could not be written.
    #[error("cannot write the export")]
    Write(#[from] io::Error),
}

/// Why an import has stopped. What came before is in the store, except the job that was being read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// There are jobs in the store already, or entries of its log.
    #[error("an import needs an empty store")]
    NotEmpty,
    /// A line is not what an export has there.
    #[error("line {line}: {why}")]
    Line {
        /// Its number, from 1.
        line: u64,
        /// What is wrong.
        why: String,
    },
    /// The export has no last line, so something is missing.
    #[error("the export ends early, after line {line}")]
    Truncated {
        /// The last line there is.
        line: u64,
    },
    /// It could not be read.
    #[error("cannot read the export")]
    Read(#[from] io::Error),
    /// What was read could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] ReadError),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        match sqlite::failure(&error) {
            (true, why) => ReadError::Damaged(Damage::File { why }),
            (false, why) => ReadError::Sqlite { why: why.into() },
        }
    }
}

/// A column that has another type than the one it is written with.
impl From<FromSqlError> for ReadError {
    fn from(error: FromSqlError) -> Self {
        ReadError::Damaged(Damage::File { why: error.to_string() })
    }
}

impl OpenError {
    /// Why a store was not locked.
    pub(super) fn locked(path: &std::path::Path) -> impl FnOnce(LockError) -> OpenError {
        move |error| match error {
            LockError::InUse(by) => OpenError::InUse { path: path.to_owned(), by },
            LockError::Io { doing, source } => {
                OpenError::Lock { path: path.to_owned(), doing, source }
            }
        }
    }

    /// Why a read that belongs to opening has failed.
    pub(super) fn reading(path: &std::path::Path) -> impl Fn(ReadError) -> OpenError + use<> {
        let path = path.to_owned();
        move |error| match error {
            ReadError::Damaged(damage) => OpenError::Damaged(damage),
            other => OpenError::Sqlite { path: path.clone(), why: other.to_string().into() },
        }
    }

    pub(super) fn io(doing: &'static str) -> impl Fn(io::Error) -> OpenError {
        move |source| OpenError::Io { doing, source }
    }
}

impl From<HighWaterMarkError> for OpenError {
    fn from(error: HighWaterMarkError) -> Self {
        match error {
            HighWaterMarkError::Damaged(path) => OpenError::Damaged(Damage::Mark { path }),
            HighWaterMarkError::Io { doing, source } => OpenError::Io { doing, source },
        }
    }
}
