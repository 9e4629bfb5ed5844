//! Errors of the store. Each names the affected job, file or limit, and damage names its place.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use keylane_storage::sqlite::{self, HighWaterMarkError, LockError, WriteRefused};
use rusqlite::types::FromSqlError;

use crate::ids::{JobId, JobNumber, SubtaskNumber};

mod damage;

pub use damage::StoreDamage;

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
