//! End of the process groups that an earlier process's table lists.

use std::fmt;
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::table::{self, TableReadError};
use crate::{GRACE, scan, termination};

/// Passes a message to users: into a log, or to standard error.
pub(crate) type MessageSink = Arc<dyn Fn(&str) + Send + Sync>;

/// Why a registry was not opened.
#[derive(Debug)]
pub enum RegistryOpenError {
    /// The table is no table, or that of a later version.
    Unreadable {
        /// Path of the table.
        path: PathBuf,
    },
    /// The system refused something.
    Io {
        /// Operation that failed.
        doing: &'static str,
        /// Path of the table, if it has one.
        path: Option<PathBuf>,
        /// The system's reason.
        source: io::Error,
    },
}

impl TableReadError {
    /// The error with the path of the table.
    pub(crate) fn of(self, path: &Path) -> RegistryOpenError {
        let path = path.to_owned();
        match self {
            TableReadError::Format => RegistryOpenError::Unreadable { path },
            TableReadError::Io(source) => RegistryOpenError::Io {
                doing: "end the processes that are listed in",
                path: Some(path),
                source,
            },
        }
    }
}

impl fmt::Display for RegistryOpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegistryOpenError::Unreadable { path } => write!(
                f,
                "{} is no list of child processes that this version can read; end what an earlier \
                 process has left running, and delete the file",
                path.display()
            ),
            RegistryOpenError::Io { doing, path: Some(path), source } => {
                write!(f, "cannot {doing} {}: {source}", path.display())
            }
            RegistryOpenError::Io { doing, path: None, source } => {
                write!(f, "cannot {doing}: {source}")
            }
        }
    }
}

impl std::error::Error for RegistryOpenError {}

/// Locks the table. While an earlier owner's processes are being ended, the lock is held by the
/// process that does so.
pub(crate) fn lock(file: &File, tell: &MessageSink) -> io::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::Error(error)) => Err(error),
        Err(TryLockError::WouldBlock) => {
            let whose = match table::read(file) {
                Ok(Some((header, _))) => format!("process {}", header.process),
                _ => "an earlier process".to_owned(),
            };
            tell(&format!("waiting until the child processes of {whose} have ended"));
            file.lock()
        }
    }
}

/// Ends the processes that the table lists, if its process numbers are valid here, and clears it.
pub(crate) fn end_leftovers(file: &File, tell: &MessageSink) -> Result<(), TableReadError> {
    let Some((header, slots)) = table::read(file)? else { return Ok(()) };
    // A table of another boot lists none of this boot's processes; one of another container lists
    // unreachable ones; the processes in a copied table may be another server's.
    let is_ours = header.machine == scan::here().map_err(TableReadError::Io)?
        && header.file == table::identity(file).map_err(TableReadError::Io)?;
    if is_ours {
        let process = header.process;
        let ended = termination::end_all(&header, &slots, GRACE, |count| {
            tell(&format!("ending {count} child processes that process {process} has left"));
        });
        ended.map_err(TableReadError::Io)?;
    }
    table::clear(file).map_err(TableReadError::Io)
}
