//! Online backup of a store: a complete copy, or no file at all.

use std::path::Path;

use keylane_storage::files::NewFile;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};

use super::error::{BackupError, ReadError};
use super::handle::Store;

/// Number of pages that are copied between two looks at the request to end: 4 MiB.
const PAGES: i32 = 1024;

impl Store {
    /// Copies a snapshot of the store into a new file, while readers and the writer continue. On
    /// return, the copy is complete, on the disk, and can be opened as a store. Until then, no file
    /// has its name.
    ///
    /// During the copy, SQLite's log grows by all writes, because the snapshot needs the older
    /// pages. At 256 MiB the copy is given up.
    ///
    /// # Errors
    /// If the destination exists or cannot be written, or the log has reached its bound. A partial copy
    /// is removed.
    pub fn backup(&self, to: impl AsRef<Path>) -> Result<(), BackupError> {
        let new = NewFile::create(to.as_ref())?;
        self.copy(new.part())?;
        Ok(new.publish()?)
    }

    fn copy(&self, part: &Path) -> Result<(), BackupError> {
        let sqlite = |error: rusqlite::Error| BackupError::Sqlite { why: error.to_string() };
        let copied = self.with_long_reader(|reader, must_end| {
            // One snapshot for all pages, unaffected by concurrent writes.
            let snapshot = reader.unchecked_transaction()?;
            snapshot.query_row("SELECT one FROM meta", [], |_| Ok(()))?;
            let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut copy = Connection::open_with_flags(part, flags)?;
            let backup = Backup::new(&snapshot, &mut copy)?;
            // The transaction of `snapshot` is the same for all steps.
            while backup.step(PAGES)? != StepResult::Done {
                if must_end.is_set() {
                    return Err(ReadError::TooLong);
                }
            }
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
