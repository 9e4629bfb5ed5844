//! Online backup of a store: a complete copy, or no file at all.

use std::fs::File;
use std::path::Path;

use keylane_storage::files::{NewFile, beside};
use keylane_storage::sqlite::EndRequest;
use rusqlite::backup::{Backup, StepResult};
use rusqlite::{Connection, OpenFlags};
use tokio_util::sync::CancellationToken;

use super::copy_error::BackupError;
use super::error::ReadError;
use super::handle::Store;

/// Number of pages that are copied between two looks at the requests to end: 4 MiB.
const PAGES: i32 = 1024;

/// Suffix of a copy that gets no name.
const UNNAMED: &str = "-backup";

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
        self.backup_unless(to.as_ref(), &CancellationToken::new())
    }

    /// Copies the store like [`backup`](Self::backup), and gives up when `stopped` is cancelled.
    pub(crate) fn backup_unless(
        &self,
        to: &Path,
        stopped: &CancellationToken,
    ) -> Result<(), BackupError> {
        let new = NewFile::create(to)?;
        self.copy(new.part(), stopped)?;
        Ok(new.publish()?)
    }

    /// Copies the store like [`backup`](Self::backup), into a file without a name, which vanishes when it is
    /// closed. Until the copy is complete it has a name beside the store.
    pub(crate) fn backup_unnamed(&self, stopped: &CancellationToken) -> Result<File, BackupError> {
        let new = NewFile::create(&beside(self.path(), UNNAMED))?;
        self.copy(new.part(), stopped)?;
        Ok(new.into_unnamed()?)
    }

    /// Removes the incomplete copy that a killed process has left beside the store at this path.
    pub(super) fn remove_unnamed_copy(path: &Path) {
        let part = NewFile::part_of(&beside(path, UNNAMED));
        for left in [beside(&part, "-journal"), part] {
            // A copy that stays only takes space, and the next copy replaces it.
            let _ = std::fs::remove_file(left);
        }
    }

    fn copy(&self, part: &Path, stopped: &CancellationToken) -> Result<(), BackupError> {
        let copied = self
            .with_long_reader(|reader, must_end| Ok(copy_pages(reader, part, must_end, stopped)));
        copied.unwrap_or_else(|error| match error {
            ReadError::NotInFile => Err(BackupError::NotInFile),
            error => Err(BackupError::Sqlite { why: error.to_string() }),
        })
    }
}

fn copy_pages(
    reader: &Connection,
    part: &Path,
    must_end: EndRequest<'_>,
    stopped: &CancellationToken,
) -> Result<(), BackupError> {
    // One snapshot for all pages, unaffected by concurrent writes.
    let snapshot = reader.unchecked_transaction()?;
    snapshot.query_row("SELECT one FROM meta", [], |_| Ok(()))?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut copy = Connection::open_with_flags(part, flags)?;
    let backup = Backup::new(&snapshot, &mut copy)?;
    // The transaction of `snapshot` is the same for all steps.
    while backup.step(PAGES)? != StepResult::Done {
        if must_end.is_set() {
            return Err(BackupError::TooSlow);
        }
        if stopped.is_cancelled() {
            return Err(BackupError::Stopped);
        }
    }
    drop(backup);
    Ok(copy.close().map_err(|(_, error)| error)?)
}
