//! Errors of copies of a store: backups, salvage, exports and imports.

use std::io;
use std::path::PathBuf;

use keylane_storage::files::NewFileError;
use keylane_storage::sqlite::SqliteError;

use super::error::{ReadError, StoreOpenError, WriteError};

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
