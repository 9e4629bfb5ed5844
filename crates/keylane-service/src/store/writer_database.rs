//! What the writer of a store needs of the database that has its tables: transactions, and the care of the database
//! between them.

use std::io;
use std::sync::Arc;

use keylane_storage::sqlite::{Checkpoint, CheckpointState, SqliteError};

use super::connection::StoreConnection;

/// Database of a store, as its only writer has it. A value is used by one thread at a time.
pub(super) trait WriterDatabase: Send {
    /// Returns the connection on which transactions are written.
    fn connection(&self) -> &dyn StoreConnection;

    /// Begins a transaction.
    ///
    /// # Errors
    /// If there is no room for it, or the database refuses it.
    fn begin(&mut self) -> Result<(), SqliteError>;

    /// Commits the transaction. On return it is durable.
    ///
    /// # Errors
    /// If it was not committed, or with [`SqliteError::Broken`] if that is unknown.
    fn commit(&mut self) -> Result<(), SqliteError>;

    /// Commits the last transaction before the database is closed. Nothing depends on it, so it does not wait for a database
    /// that is away.
    ///
    /// # Errors
    /// If it was not committed, or that is unknown.
    fn commit_last(&mut self) -> Result<(), SqliteError> {
        self.commit()
    }

    /// Takes the transaction back, unless its failure has done so.
    ///
    /// # Errors
    /// If the database fails, which ends the store.
    fn roll_back(&mut self) -> Result<(), SqliteError>;

    /// Returns the cause of an error of the transaction: of a statement, its first one.
    fn cause(&mut self, error: SqliteError) -> SqliteError {
        error
    }

    /// Notes the number of the last committed transaction, before its requests are answered.
    ///
    /// # Errors
    /// If that fails, which ends the store after the answers.
    fn note_commit(&mut self, commits: u64) -> Result<(), Arc<str>>;

    /// Notes the number of the opening where a copy of the store that replaces it cannot undo it.
    ///
    /// # Errors
    /// If that fails. [`io::ErrorKind::StorageFull`] is tried again with the next transaction.
    fn raise_boot(&mut self, boot: u64) -> io::Result<()>;

    /// Closes the database after its last transaction, whose success is `is_written`.
    fn close(&mut self, is_written: bool);

    /// Notes that a transaction has deleted data of users.
    fn note_removal(&mut self) {}

    /// Returns the size of the log that is not in the tables yet, in bytes.
    fn log_bytes(&self) -> u64 {
        0
    }

    /// Starts to copy the log beside the writes, and calls `then` at the end. Returns false if it cannot.
    fn begin_checkpoint(&mut self, then: Box<dyn FnOnce() + Send>) -> bool {
        drop(then);
        false
    }

    /// Returns the state of the copy beside the writes, without waiting.
    fn background_checkpoint(&mut self) -> CheckpointState {
        CheckpointState::None
    }

    /// Copies the log into the tables. Returns false if a reader has kept it from the end.
    ///
    /// # Errors
    /// If the database fails.
    fn checkpoint(&mut self, mode: Checkpoint) -> Result<bool, SqliteError> {
        let _ = mode;
        Ok(true)
    }

    /// Keeps new readers from starting for a moment.
    fn pause_readers(&mut self) {}

    /// Ends a pause of new readers.
    fn resume_readers(&mut self) {}

    /// Returns whether there are readers.
    fn has_readers(&self) -> bool {
        false
    }

    /// Makes present readers fail soon.
    fn end_readers(&mut self) {}

    /// Returns whether the log has data that was deleted from the tables.
    fn is_log_stale(&self) -> bool {
        false
    }
}
