use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::Position;
use crate::sqlite::{self, HighWaterMarkError, LockError};

/// Why a journal was not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JournalOpenError {
    /// It is open already, here or in another process. In one process it is shared by cloning.
    #[error("{} is in use{}", path.display(), by.map(|by| format!(" by process {by}")).unwrap_or_default())]
    InUse {
        /// The journal.
        path: PathBuf,
        /// The process that has it open, as far as is known.
        by: Option<u32>,
    },
    /// The file is something else, or was written by a later version.
    #[error("{} is not a journal that this version can read: {why}", path.display())]
    NotAJournal {
        /// The file.
        path: PathBuf,
        /// What was found in it.
        why: String,
    },
    /// Records were acknowledged that the file no longer has: its write-ahead log was damaged, or not
    /// copied with it.
    #[error(
        "records {from} to {} were acknowledged and are gone; to go on without them, delete {}",
        acknowledged.get().saturating_sub(1), mark.display()
    )]
    Lost {
        /// The first that is gone.
        from: Position,
        /// One past the last that was acknowledged.
        acknowledged: Position,
        /// The file that says so.
        mark: PathBuf,
    },
    /// Something in it is not what was written.
    #[error("the journal is damaged: {0}")]
    Damaged(Damage),
    /// A file could not be opened, read or written.
    #[error("cannot {doing}")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// SQLite could not.
    #[error("cannot open {}: {why}", path.display())]
    Sqlite {
        /// The journal.
        path: PathBuf,
        /// What it said.
        why: Arc<str>,
    },
}

/// Why something was not written. Unless it says otherwise, nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// The disk, or the size that the journal may have, is full. It works on as soon as there is room.
    #[error(
        "the disk, or the size that the journal may have, is full; make room, and go on from here"
    )]
    Full,
    /// The records of one call take more than [`Journal::MAX_BYTES`](super::Journal::MAX_BYTES).
    #[error("{bytes} bytes at once are more than a journal takes")]
    TooLarge {
        /// How many bytes they take.
        bytes: usize,
    },
    /// Another program holds SQLite's lock on the file.
    #[error("another program keeps the journal locked, nothing was written")]
    Busy,
    /// The disk has failed, now or before. What was being written may or may not be there. Nothing
    /// more is written until the journal is opened again.
    #[error("the journal has failed and must be opened again: {cause}")]
    Failed {
        /// What failed first.
        cause: Arc<str>,
    },
    /// The group has already committed a higher position.
    #[error("the group has already committed position {committed}")]
    Stale {
        /// Which.
        committed: Position,
    },
    /// The progress is about records that the journal does not have yet.
    #[error("the journal ends at position {end}, before what is to be committed")]
    BeyondEnd {
        /// One past the last record.
        end: Position,
    },
}

/// Why something was not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// Records were asked for that retention has removed.
    #[error("the journal begins at position {head}")]
    Gone {
        /// The first record that is left, or where the next one will be.
        head: Position,
    },
    /// What was asked for is not what was written.
    #[error("the journal is damaged: {0}")]
    Damaged(Damage),
    /// SQLite could not.
    #[error("cannot read the journal: {why}")]
    Sqlite {
        /// What it said.
        why: Arc<str>,
    },
}

/// What in a journal is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// The chunk that begins at this position.
    Chunk {
        /// Its first record.
        first: Position,
    },
    /// There is no chunk with these positions.
    Missing {
        /// The first of them.
        from: Position,
        /// One past the last of them.
        until: Position,
    },
    /// What a group has committed.
    Group {
        /// Its name.
        name: String,
    },
    /// Where the journal begins.
    Head,
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

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Damage::Chunk { first } => write!(f, "the chunk at position {first}"),
            Damage::Missing { from, until } => {
                write!(f, "the positions from {from} to before {until} are missing")
            }
            Damage::Group { name } => write!(f, "the progress of group {name:?}"),
            Damage::Head => f.write_str("where it begins is not where its first chunk is"),
            Damage::Mark { path } => write!(
                f,
                "{} belongs to another journal or is damaged; if this journal replaced another one, delete that \
                 file, too",
                path.display()
            ),
            Damage::File { why } => write!(f, "the file: {why}"),
        }
    }
}

impl From<rusqlite::Error> for ReadError {
    fn from(error: rusqlite::Error) -> Self {
        match sqlite::failure(&error) {
            (true, why) => ReadError::Damaged(Damage::File { why }),
            (false, why) => ReadError::Sqlite { why: why.into() },
        }
    }
}

impl JournalOpenError {
    /// Why a journal was not locked.
    pub(super) fn locked(path: &Path) -> impl FnOnce(LockError) -> JournalOpenError {
        move |error| match error {
            LockError::InUse(by) => JournalOpenError::InUse { path: path.to_owned(), by },
            LockError::Io { doing, source } => JournalOpenError::Io { doing, source },
        }
    }
}

impl From<HighWaterMarkError> for JournalOpenError {
    fn from(error: HighWaterMarkError) -> Self {
        match error {
            HighWaterMarkError::Damaged(path) => JournalOpenError::Damaged(Damage::Mark { path }),
            HighWaterMarkError::Io { doing, source } => JournalOpenError::Io { doing, source },
        }
    }
}
