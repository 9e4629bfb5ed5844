//! Errors of journals: opening, writing, reading, and kinds of damage.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use keylane_storage::sqlite::{self, HighWaterMarkError, LockError};

use crate::Position;

/// Error of opening a journal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalOpenError {
    /// The journal is open already, here or in another process. Within a process, clone it instead.
    #[error("{} is in use{}", path.display(), by.map(|by| format!(" by process {by}")).unwrap_or_default())]
    InUse {
        /// Path of the journal.
        path: PathBuf,
        /// Process that has it open, if known.
        by: Option<u32>,
    },
    /// The file is no journal, or was written by a later version.
    #[error("{} is not a journal that this version can read: {why}", path.display())]
    NotAJournal {
        /// Path of the file.
        path: PathBuf,
        /// Content that was found.
        why: String,
    },
    /// The file has lost acknowledged records: its write-ahead log was damaged, or not copied with
    /// it.
    #[error(
        "records {from} to {} were acknowledged and are gone; to go on without them, delete {}",
        acknowledged.get().saturating_sub(1), mark.display()
    )]
    Lost {
        /// First lost record.
        from: Position,
        /// One past the last acknowledged record.
        acknowledged: Position,
        /// File with the high-water mark.
        mark: PathBuf,
    },
    /// The journal is damaged.
    #[error("the journal is damaged: {0}")]
    Damaged(JournalDamage),
    /// The file with the high-water mark is not this journal's, or is damaged.
    #[error(
        "{} belongs to another journal or is damaged; if this journal replaced another one, delete that file, too",
        mark.display()
    )]
    ForeignMark {
        /// Path of the file.
        mark: PathBuf,
    },
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
    /// The journal could not be locked.
    #[error("cannot {doing} of the journal {}", path.display())]
    Lock {
        /// Path of the journal.
        path: PathBuf,
        /// Failed action.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
    /// SQLite has failed.
    #[error("cannot open {}: {why}", path.display())]
    Sqlite {
        /// Path of the journal.
        path: PathBuf,
        /// SQLite's message.
        why: Arc<str>,
    },
}

/// Error of a write. Nothing was written, except perhaps after [`Failed`](Self::Failed).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The disk is full, or the journal has its maximum size. Writes succeed again once there is
    /// room.
    #[error(
        "the disk is full, or the journal has its maximum size; free space, or raise \
         the journal's `max_bytes`"
    )]
    Full,
    /// The records of one call exceed [`Journal::MAX_BYTES`](super::Journal::MAX_BYTES).
    #[error(
        "{bytes} bytes in one call exceed the maximum of a journal; append fewer records per call"
    )]
    TooLarge {
        /// Size of the records, in bytes.
        bytes: usize,
    },
    /// Another program holds SQLite's lock on the file.
    #[error("another program holds the lock of the journal, so nothing was written; retry")]
    Busy,
    /// The disk has failed, now or earlier. The current write may or may not be on the disk.
    /// Nothing more is written until the journal is reopened.
    #[error("the journal has failed; reopen it to continue: {cause}")]
    Failed {
        /// First cause.
        cause: Arc<str>,
    },
    /// The group has already committed a higher position.
    #[error("the group has already committed position {committed}")]
    Stale {
        /// The committed position.
        committed: Position,
    },
    /// The progress includes records that the journal does not have.
    #[error("the journal ends at position {end}, before the end of the progress")]
    BeyondEnd {
        /// One past the last record.
        end: Position,
    },
}

/// Error of a read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JournalReadError {
    /// Retention has removed the requested records.
    #[error("the records were removed by retention: the journal begins at position {head}")]
    Gone {
        /// First remaining record, or position of the next one.
        head: Position,
    },
    /// The requested data is damaged.
    #[error("the journal is damaged: {0}")]
    Damaged(JournalDamage),
    /// SQLite has failed.
    #[error("cannot read the journal: {why}")]
    Sqlite {
        /// SQLite's message.
        why: Arc<str>,
    },
}

/// Damaged part of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JournalDamage {
    /// The chunk that begins at this position.
    Chunk {
        /// First record of the chunk.
        first: Position,
    },
    /// No chunk has these positions.
    Missing {
        /// First missing position.
        from: Position,
        /// One past the last missing position.
        until: Position,
    },
    /// The progress of a group.
    Group {
        /// Name of the group.
        name: String,
    },
    /// The position where the journal begins.
    Head,
    /// The database file.
    File {
        /// SQLite's message.
        why: String,
    },
}

impl std::fmt::Display for JournalDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            JournalDamage::Chunk { first } => write!(f, "the chunk at position {first}"),
            JournalDamage::Missing { from, until } => {
                write!(f, "the positions from {from} to before {until} are missing")
            }
            JournalDamage::Group { name } => write!(f, "the progress of group {name:?}"),
            JournalDamage::Head => f.write_str("its first position is not that of its first chunk"),
            JournalDamage::File { why } => write!(f, "the file: {why}"),
        }
    }
}

impl From<rusqlite::Error> for JournalReadError {
    fn from(error: rusqlite::Error) -> Self {
        match sqlite::failure(&error) {
            (true, why) => JournalReadError::Damaged(JournalDamage::File { why }),
            (false, why) => JournalReadError::Sqlite { why: why.into() },
        }
    }
}

impl JournalOpenError {
    pub(super) fn io(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| JournalOpenError::Io { doing, path, source }
    }

    /// Converts the error of a lock.
    pub(super) fn locked(path: &Path) -> impl FnOnce(LockError) -> JournalOpenError {
        move |error| match error {
            LockError::InUse(by) => JournalOpenError::InUse { path: path.to_owned(), by },
            LockError::Io { doing, source } => {
                JournalOpenError::Lock { path: path.to_owned(), doing, source }
            }
        }
    }
}

impl From<HighWaterMarkError> for JournalOpenError {
    fn from(error: HighWaterMarkError) -> Self {
        match error {
            HighWaterMarkError::Damaged(mark) => JournalOpenError::ForeignMark { mark },
            HighWaterMarkError::Io { doing, path, source } => {
                JournalOpenError::Io { doing, path, source }
            }
        }
    }
}
