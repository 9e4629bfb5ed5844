//! SQLite file of a store, as its writer has it: transactions, the log and its checkpoints, and the files beside it.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use keylane_storage::sqlite::{
    self, BackgroundCheckpoint, Checkpoint, CheckpointState, HighWaterMark, Lock, ReaderPool,
    SqliteError,
};
use rusqlite::Connection;

use super::boot_number::HighestBoot;
use super::connection::StoreConnection;
use super::writer_database::WriterDatabase;

/// Maximum excess of the file and its log over their size bound, in bytes, while readers keep the
/// log from being emptied.
const MAX_LOG_BEYOND: u64 = 16 * 1024 * 1024;

/// File of a store. The fields are in the order in which they are closed: another process may open the file only after that.
pub(super) struct SqliteDatabase {
    /// Passive checkpoints beside the writes. Uploads and the removal of deleted rows pause while
    /// one runs, so that it is faster than what else is written.
    pub(super) background: BackgroundCheckpoint,
    pub(super) connection: Connection,
    pub(super) mark: HighWaterMark,
    pub(super) highest_boot: HighestBoot,
    /// Reader connections, paused while the log is reset.
    pub(super) readers: Arc<ReaderPool>,
    /// Path of the file, and the maximum size of the file and its log together.
    pub(super) path: PathBuf,
    pub(super) max_bytes: Option<u64>,
    /// Whether the log may still contain deleted data.
    pub(super) is_log_stale: bool,
    pub(super) _lock: Lock,
}

impl SqliteDatabase {
    /// Checks the size bound of the file and its log. SQLite bounds the file alone, so an empty log
    /// suffices.
    fn keep_to_bound(&mut self) -> Result<(), SqliteError> {
        let Some(most) = self.max_bytes else { return Ok(()) };
        if sqlite::bytes_on_disk(&self.path) <= most {
            return Ok(());
        }
        self.checkpoint(Checkpoint::Reset)?;
        self.readers.resume();
        match sqlite::bytes_on_disk(&self.path) <= most.saturating_add(MAX_LOG_BEYOND) {
            true => Ok(()),
            false => Err(SqliteError::Full),
        }
    }
}

impl WriterDatabase for SqliteDatabase {
    fn connection(&self) -> &dyn StoreConnection {
        &self.connection
    }

    fn begin(&mut self) -> Result<(), SqliteError> {
        self.keep_to_bound()?;
        sqlite::begin(&self.connection)
    }

    fn commit(&mut self) -> Result<(), SqliteError> {
        Ok(sqlite::commit(&self.connection)?)
    }

    fn roll_back(&mut self) -> Result<(), SqliteError> {
        sqlite::roll_back(&self.connection)
    }

    fn note_commit(&mut self, commits: u64) -> Result<(), Arc<str>> {
        self.mark.set(commits).map_err(|error| error.to_string().into())
    }

    fn raise_boot(&mut self, boot: u64) -> io::Result<()> {
        self.highest_boot.raise(boot)
    }

    fn close(&mut self, is_written: bool) {
        self.background.wait();
        if is_written {
            let _ = sqlite::checkpoint(&self.connection, Checkpoint::Full);
        }
    }

    fn note_removal(&mut self) {
        self.is_log_stale = true;
    }

    fn log_bytes(&self) -> u64 {
        // An unreadable log size is reported by the next transaction.
        sqlite::log_bytes(&self.connection).unwrap_or(0)
    }

    fn begin_checkpoint(&mut self, then: Box<dyn FnOnce() + Send>) -> bool {
        self.background.begin(then)
    }

    fn background_checkpoint(&mut self) -> CheckpointState {
        self.background.poll()
    }

    fn checkpoint(&mut self, mode: Checkpoint) -> Result<bool, SqliteError> {
        if let CheckpointState::Ended(result) = self.background.wait() {
            result?;
        }
        if mode == Checkpoint::Reset {
            self.readers.pause();
        }
        let is_done = sqlite::checkpoint(&self.connection, mode)?;
        if is_done {
            self.readers.resume();
        }
        self.is_log_stale &= mode == Checkpoint::Passive || !is_done;
        Ok(is_done)
    }

    fn pause_readers(&mut self) {
        self.readers.pause();
    }

    fn resume_readers(&mut self) {
        self.readers.resume();
    }

    fn has_readers(&self) -> bool {
        self.readers.is_active()
    }

    fn end_readers(&mut self) {
        self.readers.end_active();
    }

    fn is_log_stale(&self) -> bool {
        self.is_log_stale
    }
}
