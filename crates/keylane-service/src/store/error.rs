//! Errors of the store. Each names the affected job, file or limit, and damage names its place.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use keylane_storage::files::NewFileError;
use keylane_storage::sqlite::{self, HighWaterMarkError, LockError, SqliteError, WriteRefused};
use rusqlite::types::FromSqlError;

use super::outcome::OutcomePosition;
use crate::ids::{JobId, JobNumber, SubtaskNumber};

/// Error of opening a store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreOpenError {
    /// The store is open already, in this process or another one.
    #[error("{} is in use{}", path.display(), by.map(|by| format!(" by process {by}")).unwrap_or_default())]
    InUse {
        /// Path of the store.
        path: PathBuf,
        /// Identifier of the process that has it open, if known.
        by: Option<u32>,
    },
    /// A later version of this program has written the file.
    #[error("{} has a layout of version {version}, which a later keylane has written", path.display())]
    Later {
        /// Path of the file.
        path: PathBuf,
        /// Version of the layout.
        version: i32,
    },
    /// An earlier version of this program has written the file, and it was opened read-only.
    /// Opening it for writing migrates it.
    #[error(
        "{} has a layout of version {version}, of an earlier keylane; the server brings it forward when it starts",
        path.display()
    )]
    Earlier {
        /// Path of the file.
        path: PathBuf,
        /// Version of the layout.
        version: i32,
    },
    /// The file is not a store.
    #[error("{} is not a keylane store: {why}", path.display())]
    NotAStore {
        /// Path of the file.
        path: PathBuf,
        /// Reason.
        why: String,
    },
    /// Acknowledged commits are missing in the file: its write-ahead log was damaged, or not copied
    /// with it.
    #[error(
        "commits {} to {acknowledged} were acknowledged and are gone: the write-ahead log is damaged, or was not copied \
         with the store; restore a backup, or go on without these commits: `keylane store salvage FROM TO` copies all \
         that can be read into a new store, or delete {} to use this one",
        has + 1, mark.display()
    )]
    Lost {
        /// Last commit in the file.
        has: u64,
        /// Last acknowledged commit.
        acknowledged: u64,
        /// Path of the high-water mark file.
        mark: PathBuf,
    },
    /// Data that belongs to no single job is damaged.
    #[error(
        "the store is damaged: {0}; `keylane store salvage FROM TO` copies all that can be read into a new store, and \
         names what cannot"
    )]
    Damaged(StoreDamage),
    /// A file could not be opened, read or written.
    #[error("cannot {doing} {}", path.display())]
    Io {
        /// Failed action.
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Cause.
        source: io::Error,
    },
    /// The store could not be locked.
    #[error("cannot {doing} of the store {}", path.display())]
    Lock {
        /// Path of the store.
        path: PathBuf,
        /// Failed action.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The store in a database could not be opened.
    #[error("cannot open the store in {address}: {why}")]
    Database {
        /// Address of the database, without the password.
        address: String,
        /// Message of the database or of its client.
        why: Arc<str>,
    },
    /// SQLite could not open the file.
    #[error("cannot open {}: {why}", path.display())]
    Sqlite {
        /// Path of the store.
        path: PathBuf,
        /// SQLite's message.
        why: Arc<str>,
    },
}

/// Error of a write. Nothing was written, except where a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The disk is full, or the store has its maximum size. Writes succeed again as soon as there
    /// is room.
    #[error("the store is full; nothing was written")]
    Full,
    /// Another program holds SQLite's lock on the file, or the database cannot be reached now.
    #[error(
        "the store cannot be written now, because another program locks it or its database is away; nothing was written"
    )]
    Busy,
    /// The disk has failed, now or earlier. The current write may or may not be on the disk. No
    /// further write succeeds until the store is opened again.
    #[error("the store has failed and must be opened again: {cause}")]
    Failed {
        /// First failure.
        cause: Arc<str>,
    },
    /// The job does not exist.
    #[error("job {} does not exist", job.0)]
    NoSuchJob {
        /// Number of the job.
        job: JobNumber,
    },
    /// The subtask does not exist.
    #[error("job {} has {total} subtasks; subtask {number} does not exist", job.0)]
    NoSuchSubtask {
        /// Number of the job.
        job: JobNumber,
        /// Number of the subtask.
        number: SubtaskNumber,
        /// Number of subtasks of the job.
        total: u32,
    },
    /// The change requires an unfinished job, and the job has ended.
    #[error("job {} has ended", job.0)]
    Ended {
        /// Number of the job.
        job: JobNumber,
    },
    /// The change requires an ended job, and the job has not ended.
    #[error("job {} has not ended", job.0)]
    NotEnded {
        /// Number of the job.
        job: JobNumber,
    },
    /// The idempotency key or the client's identifier belongs to an earlier job.
    #[error("{job} was accepted before with this idempotency key or name")]
    Duplicate {
        /// Identifier of the earlier job.
        job: JobId,
        /// Hash of the earlier request.
        body_hash: [u8; 32],
    },
    /// The schedule's version is not the one that the change expects.
    #[error("schedule {schedule:?} has changed meanwhile")]
    OtherVersion {
        /// Name of the schedule.
        schedule: String,
    },
    /// The write exceeds a limit of the store.
    #[error("{what}: the maximum is {most}")]
    TooLarge {
        /// Name of the limited quantity.
        what: &'static str,
        /// Maximum.
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

/// Error of a read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The job does not exist.
    #[error("job {} does not exist", job.0)]
    NoSuchJob {
        /// Number of the job.
        job: JobNumber,
    },
    /// The subtask does not exist.
    #[error("subtask {number} of job {} does not exist", job.0)]
    NoSuchSubtask {
        /// Number of the job.
        job: JobNumber,
        /// Number of the subtask.
        number: SubtaskNumber,
    },
    /// The requested data is damaged.
    #[error("the store is damaged: {0}")]
    Damaged(StoreDamage),
    /// SQLite could not read the file.
    #[error("cannot read the store: {why}")]
    Sqlite {
        /// SQLite's message.
        why: Arc<str>,
    },
    /// The database cannot be reached now. The read can be repeated.
    #[error("the database cannot be reached: {why}")]
    Unavailable {
        /// Message of the database or of its client.
        why: Arc<str>,
    },
    /// Only a store in a file has this.
    #[error("this is for a store in a file; use the tools of the database")]
    NotInFile,
    /// The read was ended, because it kept the write-ahead log beyond its bound.
    #[error(
        "the read took so long that the write-ahead log has reached its bound of 256 MiB; repeat it while less is \
         written, or stop the server and use `keylane store`"
    )]
    TooLong,
}

/// Damage in a store: a part whose checksum or content is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreDamage {
    /// Main row of a job.
    Job {
        /// Number of the job.
        job: JobNumber,
    },
    /// Chunk that contains a subtask.
    Chunk {
        /// Number of the job.
        job: JobNumber,
        /// Number of the subtask.
        number: SubtaskNumber,
    },
    /// Subtasks without a chunk.
    MissingSubtasks {
        /// Number of the job.
        job: JobNumber,
        /// First missing subtask.
        from: SubtaskNumber,
        /// One past the last missing subtask.
        until: SubtaskNumber,
    },
    /// Outcomes from a place on, up to the next row.
    Outcomes {
        /// Number of the job.
        job: JobNumber,
        /// Place of the first of them.
        from: OutcomePosition,
    },
    /// Final counts of a job that do not agree with its outcomes.
    Counts {
        /// Number of the job.
        job: JobNumber,
    },
    /// Subtask with two outcomes and no reopening between them.
    Twice {
        /// Number of the job.
        job: JobNumber,
        /// Number of the subtask.
        number: SubtaskNumber,
    },
    /// Log of an attempt.
    Log {
        /// Number of the job.
        job: JobNumber,
        /// Number of the subtask.
        number: SubtaskNumber,
    },
    /// Chunks, outcomes or logs without a job.
    Orphans {
        /// Number of the job.
        job: JobNumber,
    },
    /// Record of started attempts.
    Marks {
        /// Number of the row.
        row: u64,
    },
    /// Record of a paused or stopped key.
    Key {
        /// Key, with unprintable bytes escaped.
        key: String,
    },
    /// Idempotency key.
    Idempotency {
        /// Scope of the key.
        scope: String,
        /// Key.
        key: String,
    },
    /// Client's identifier of a job.
    Alias {
        /// Identifier.
        name: String,
    },
    /// Setting that an operator has changed.
    Setting {
        /// Name of the setting.
        name: String,
    },
    /// Schedule.
    Schedule {
        /// Name of the schedule.
        name: String,
    },
    /// Entry of the audit log.
    Audit {
        /// Number of the entry.
        number: u64,
    },
    /// Missing entries of the audit log.
    MissingAudit {
        /// First missing entry.
        from: u64,
        /// One past the last missing entry.
        until: u64,
    },
    /// The store's own settings and counters.
    Meta,
    /// Missing unfinished jobs.
    MissingJobs {
        /// Number of missing jobs.
        count: u64,
    },
    /// Job that is missing in the index, and would therefore never run.
    Index {
        /// Number of the job.
        job: JobNumber,
    },
    /// Damaged pages of the file, with rows of a job.
    Pages {
        /// Number of the job.
        job: JobNumber,
        /// SQLite's message.
        why: String,
    },
    /// Unreadable pages of the file, with rows of a table.
    Rows {
        /// Name of the table.
        table: String,
        /// First row that may be lost.
        first: i64,
        /// Last row that may be lost.
        last: i64,
        /// SQLite's message.
        why: String,
    },
    /// Acknowledged commits are missing in the file.
    Lost {
        /// Last commit in the file.
        has: u64,
        /// Last acknowledged commit.
        acknowledged: u64,
    },
    /// High-water mark file.
    Mark {
        /// Path of the mark file.
        path: PathBuf,
    },
    /// Damage of the file as a whole.
    File {
        /// SQLite's message.
        why: String,
    },
}

impl StoreDamage {
    /// Returns the number of the damaged job, if the damage concerns one.
    #[must_use]
    pub fn job(&self) -> Option<JobNumber> {
        match self {
            StoreDamage::Job { job }
            | StoreDamage::Chunk { job, .. }
            | StoreDamage::MissingSubtasks { job, .. }
            | StoreDamage::Outcomes { job, .. }
            | StoreDamage::Counts { job }
            | StoreDamage::Twice { job, .. }
            | StoreDamage::Log { job, .. }
            | StoreDamage::Index { job }
            | StoreDamage::Pages { job, .. }
            | StoreDamage::Orphans { job } => Some(*job),
            _ => None,
        }
    }
}

impl std::fmt::Display for StoreDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreDamage::Job { job } => write!(f, "the row of job {}", job.0),
            StoreDamage::Chunk { job, number } => {
                write!(f, "the chunk of job {} with subtask {number}", job.0)
            }
            StoreDamage::MissingSubtasks { job, from, until } => {
                write!(f, "subtasks {from} to before {until} of job {} are missing", job.0)
            }
            StoreDamage::Outcomes { job, from } => {
                write!(f, "the outcomes of job {} from place {} on", job.0, from.get())
            }
            StoreDamage::Counts { job } => {
                write!(f, "the counts of job {} do not match its outcomes", job.0)
            }
            StoreDamage::Twice { job, number } => {
                write!(f, "subtask {number} of job {} has ended twice", job.0)
            }
            StoreDamage::Log { job, number } => {
                write!(f, "the log of an attempt at subtask {number} of job {}", job.0)
            }
            StoreDamage::Orphans { job } => {
                write!(f, "parts of job {}, which does not exist", job.0)
            }
            StoreDamage::Marks { row } => write!(f, "row {row} of the started attempts"),
            StoreDamage::Key { key } => write!(f, "the record of key {key:?}"),
            StoreDamage::Idempotency { scope, key } => {
                write!(f, "the idempotency key {key:?} in {scope:?}")
            }
            StoreDamage::Alias { name } => write!(f, "the job identifier {name:?}"),
            StoreDamage::Setting { name } => write!(f, "the setting {name:?}"),
            StoreDamage::Schedule { name } => write!(f, "the schedule {name:?}"),
            StoreDamage::Audit { number } => write!(f, "entry {number} of the audit log"),
            StoreDamage::MissingAudit { from, until } => {
                write!(f, "entries {from} to before {until} of the audit log are missing")
            }
            StoreDamage::Meta => f.write_str("the store's own counters"),
            StoreDamage::MissingJobs { count } => write!(f, "{count} unfinished jobs are missing"),
            StoreDamage::Index { job } => {
                write!(f, "the index lacks job {}; the next start repairs it", job.0)
            }
            StoreDamage::Pages { job, why } => write!(f, "pages with rows of job {}: {why}", job.0),
            StoreDamage::Rows { table, first: i64::MIN, last: i64::MAX, why } => {
                write!(f, "rows of the table {table}: {why}")
            }
            StoreDamage::Rows { table, first, last, why } => {
                write!(f, "rows {first} to {last} of the table {table}: {why}")
            }
            StoreDamage::Lost { has, acknowledged } => {
                write!(f, "commits {} to {acknowledged} were acknowledged and are gone", has + 1)
            }
            StoreDamage::Mark { path } => write!(
                f,
                "{} belongs to another store or is damaged; if this store replaced another one, delete that file, too",
                path.display()
            ),
            StoreDamage::File { why } => write!(f, "the file: {why}"),
        }
    }
}

/// Error of a backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BackupError {
    /// The store is in a database.
    #[error("the store is in PostgreSQL: back it up by the means of the database, such as pg_dump")]
    NotInFile,
    /// The destination exists.
    #[error("{} exists; name a new file", path.display())]
    Exists {
        /// Path of the destination.
        path: PathBuf,
    },
    /// A file could not be written.
    #[error("cannot {doing}")]
    Io {
        /// Failed action.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// The log of the store reached its bound during the copy, because so much was written.
    #[error(
        "the store's log has reached its bound during the copy; back up when less is written, or take a snapshot of \
         the file system"
    )]
    TooSlow,
    /// The service has stopped.
    #[error("the service has stopped during the copy")]
    Stopped,
    /// SQLite could not copy the store.
    #[error("cannot copy the store: {why}")]
    Sqlite {
        /// SQLite's message.
        why: String,
    },
}

impl From<rusqlite::Error> for BackupError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => BackupError::Io {
                doing: "write the copy",
                source: io::ErrorKind::StorageFull.into(),
            },
            _ => BackupError::Sqlite { why: error.to_string() },
        }
    }
}

impl From<NewFileError> for BackupError {
    fn from(error: NewFileError) -> Self {
        match error {
            NewFileError::Exists(path) => BackupError::Exists { path },
            NewFileError::Io { doing, source } => BackupError::Io { doing, source },
        }
    }
}

/// Error of a salvage.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SalvageError {
    /// The destination exists.
    #[error("{} exists; name a new file", path.display())]
    Exists {
        /// Path of the destination.
        path: PathBuf,
    },
    /// The store could not be opened, or a file could not be written.
    #[error(transparent)]
    Open(#[from] StoreOpenError),
    /// The store could not be decoded.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The new store could not be written.
    #[error("cannot {doing}")]
    Io {
        /// Failed action.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
}

impl From<NewFileError> for SalvageError {
    fn from(error: NewFileError) -> Self {
        match error {
            NewFileError::Exists(path) => SalvageError::Exists { path },
            NewFileError::Io { doing, source } => SalvageError::Io { doing, source },
        }
    }
}

impl From<rusqlite::Error> for SalvageError {
    fn from(error: rusqlite::Error) -> Self {
        SalvageError::Read(ReadError::from(error))
    }
}

impl From<SqliteError> for SalvageError {
    fn from(error: SqliteError) -> Self {
        let why = match error {
            SqliteError::Full => "the disk is full".into(),
            SqliteError::Busy => "another program locks the new store".into(),
            SqliteError::Broken(why) => why,
        };
        SalvageError::Read(ReadError::Sqlite { why })
    }
}

/// Error of an export. The partial output is recognizable: its last line is missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The store could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The output could not be written.
    #[error("cannot write the export")]
    Write(#[from] io::Error),
    /// The destination exists.
    #[error("{} exists; name a new file", path.display())]
    Exists {
        /// Path of the destination.
        path: PathBuf,
    },
    /// The new file could not be created or named.
    #[error("cannot {doing}")]
    Io {
        /// Failed action.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
}

impl From<NewFileError> for ExportError {
    fn from(error: NewFileError) -> Self {
        match error {
            NewFileError::Exists(path) => ExportError::Exists { path },
            NewFileError::Io { doing, source } => ExportError::Io { doing, source },
        }
    }
}

/// Error of an import. Jobs before the failed one stay in the store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The store has jobs or audit entries already.
    #[error("the store is not empty; import into a new one")]
    NotEmpty,
    /// A line of the export is invalid.
    #[error("line {line}: {why}")]
    Line {
        /// Number of the line, from 1.
        line: u64,
        /// Reason.
        why: String,
    },
    /// The export is incomplete: its last line is missing.
    #[error("the export ends early, after line {line}")]
    Truncated {
        /// Number of the last line present.
        line: u64,
    },
    /// The export could not be read.
    #[error("cannot read the export")]
    Read(#[from] io::Error),
    /// A job or entry could not be written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// The store could not be read.
    #[error(transparent)]
    Store(#[from] ReadError),
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        if error.sqlite_error_code() == Some(rusqlite::ErrorCode::OperationInterrupted) {
            return ReadError::TooLong;
        }
        match sqlite::failure(&error) {
            (true, why) => ReadError::Damaged(StoreDamage::File { why }),
            (false, why) => ReadError::Sqlite { why: why.into() },
        }
    }
}

/// Column of another type than written.
impl From<FromSqlError> for ReadError {
    fn from(error: FromSqlError) -> Self {
        ReadError::Damaged(StoreDamage::File { why: error.to_string() })
    }
}

impl StoreOpenError {
    /// Converts the error of a lock.
    pub(super) fn locked(path: &std::path::Path) -> impl FnOnce(LockError) -> StoreOpenError {
        move |error| match error {
            LockError::InUse(by) => StoreOpenError::InUse { path: path.to_owned(), by },
            LockError::Io { doing, source } => {
                StoreOpenError::Lock { path: path.to_owned(), doing, source }
            }
        }
    }

    /// Converts the error of a read during opening.
    pub(super) fn reading(path: &std::path::Path) -> impl Fn(ReadError) -> StoreOpenError + use<> {
        let path = path.to_owned();
        move |error| match error {
            ReadError::Damaged(damage) => StoreOpenError::Damaged(damage),
            other => StoreOpenError::Sqlite { path: path.clone(), why: other.to_string().into() },
        }
    }

    pub(super) fn io(
        doing: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> StoreOpenError {
        let path = path.into();
        move |source| StoreOpenError::Io { doing, path, source }
    }
}

impl From<HighWaterMarkError> for StoreOpenError {
    fn from(error: HighWaterMarkError) -> Self {
        match error {
            HighWaterMarkError::Damaged(path) => {
                StoreOpenError::Damaged(StoreDamage::Mark { path })
            }
            HighWaterMarkError::Io { doing, path, source } => {
                StoreOpenError::Io { doing, path, source }
            }
        }
    }
}
