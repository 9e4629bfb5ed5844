//! Online backup of a store: a complete copy, or no file at all.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use keylane_stream::sqlite;
use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags};

use super::error::{BackupError, ReadError};
use super::handle::Store;

impl Store {
    /// Copies a snapshot of the store into a new file, while readers and the writer continue. On
    /// return, the copy is complete, on the disk, and can be opened as a store. Until then, no file
    /// has its name.
    ///
    /// During the copy, SQLite's log grows by all writes, because the snapshot needs the older
    /// pages.
    ///
    /// # Errors
    /// If the destination exists or cannot be written. A partial copy is removed.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<(), BackupError> {
        let to = sqlite::resolved(to.as_ref()).map_err(io("find the copy's folder"))?;
        if fs::symlink_metadata(&to).is_ok() {
            return Err(BackupError::Exists { path: to });
        }
        let mut part = to.clone().into_os_string();
        part.push("-part");
        let part = PartialCopy(part.into());
        part.remove();
        // Readable by its owner only, as the store is.
        sqlite::create_new(&part.0).map_err(io("make the copy"))?;
        self.copy(&part.0)?;
        let file = File::options().write(true).open(&part.0).map_err(io("open the copy"))?;
        file.sync_all().map_err(io("sync the copy"))?;
        part.rename(&to)?;
        sqlite::sync_folder(&to).map_err(io("sync the copy's folder"))
    }

    fn copy(&self, part: &Path) -> Result<(), BackupError> {
        let sqlite = |error: rusqlite::Error| BackupError::Sqlite { why: error.to_string() };
        let copied = self.with_reader(|reader| {
            // One snapshot for all pages, unaffected by concurrent writes.
            let snapshot = reader.unchecked_transaction()?;
            snapshot.query_row("SELECT one FROM meta", [], |_| Ok(()))?;
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut copy = Connection::open_with_flags(part, flags)?;
            let backup = Backup::new(&snapshot, &mut copy)?;
            backup.step(-1)?;
            drop(backup);
            Ok(copy.close().map_err(|(_, error)| error))
        });
        match copied {
            Ok(closed) => closed.map_err(sqlite),
            Err(ReadError::Sqlite { why }) => Err(BackupError::Sqlite { why: why.to_string() }),
            Err(other) => Err(BackupError::Sqlite { why: other.to_string() }),
        }
    }
}

fn io(doing: &'static str) -> impl Fn(io::Error) -> BackupError {
    move |source| BackupError::Io { doing, source }
}

/// Unfinished copy, removed on drop.
pub(super) struct PartialCopy(pub(super) PathBuf);

impl PartialCopy {
    pub(super) fn rename(self, to: &Path) -> Result<(), BackupError> {
        // Unlike a rename, a link never replaces a file created meanwhile.
        match fs::hard_link(&self.0, to) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(BackupError::Exists { path: to.to_owned() })
            }
            // Fallback for file systems without hard links.
            Err(_) => fs::rename(&self.0, to).map_err(io("rename the copy")),
        }
    }

    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.0);
    }
}

impl Drop for PartialCopy {
    fn drop(&mut self) {
        self.remove();
    }
}
