//! Writer thread of the store. `README.md` has the protocol, and why no acknowledged write is lost.

use std::collections::VecDeque;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use keylane_storage::sqlite::{
    self, BackgroundCheckpoint, Checkpoint, CheckpointState, GroupCommit, HighWaterMark, Lock,
    ReaderPool, SqliteError, WriteRefused,
};
use rusqlite::Connection;

use super::boot_number::HighestBoot;
use super::change::{Change, WriteReply, WriteRequest};
use super::error::WriteError;
use super::shared::StoreShared;
use super::write_transaction::{TransactionResults, WriteTransaction};
use super::writer_state::{OpeningValues, WriterState};
use crate::ids::JobNumber;

/// Maximum excess of the file and its log over their size bound, in bytes, while readers keep the
/// log from being emptied.
const MAX_LOG_BEYOND: u64 = 16 * 1024 * 1024;

pub(super) struct StoreWriter {
    pub(super) connection: Connection,
    pub(super) state: WriterState,
    pub(super) mark: HighWaterMark,
    pub(super) highest_boot: HighestBoot,
    pub(super) shared: Arc<StoreShared>,
    /// Jobs to delete, a few rows in each transaction.
    pub(super) loose: VecDeque<JobNumber>,
    /// Whether the deletion is suspended after a full disk, until the next other write.
    pub(super) resting: bool,
    /// Opening to record in the file.
    pub(super) opened: OpeningValues,
    /// Reader connections, paused while the log is reset.
    pub(super) readers: Arc<ReaderPool>,
    /// Path of the file, and the maximum size of the file and its log together.
    pub(super) path: PathBuf,
    pub(super) max_bytes: Option<u64>,
    /// Whether the log may still contain deleted data.
    pub(super) is_log_stale: bool,
    /// Passive checkpoints beside the writes. Uploads and the removal of deleted rows pause while
    /// one runs, so that it is faster than what else is written.
    pub(super) background: BackgroundCheckpoint,
    /// Lock of the store, released after the file is closed.
    pub(super) lock: Lock,
}

/// Fails all pending requests however the writer ends, including by a panic.
struct FailPendingOnDrop(Arc<StoreShared>);

impl Drop for FailPendingOnDrop {
    fn drop(&mut self) {
        self.0.fail("the writer has ended".into());
        self.0.queue.close();
        // Dropping a request reports its failure.
        while self.0.queue.take(true).is_some() {}
    }
}

impl StoreWriter {
    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let farewell = FailPendingOnDrop(Arc::clone(&self.shared));
        self.shared.queue.is_mine();
        sqlite::run(&mut self);
        if self.shared.failure().is_none() {
            self.close();
        }
        let StoreWriter { connection, background, mark, lock, .. } = self;
        drop((background, connection));
        // The lock goes last: another process may open the file only after it is closed.
        drop((mark, lock, farewell));
    }

    /// Records an orderly shutdown and checkpoints the log. Acknowledged changes are in the log
    /// already, so a failure here loses nothing.
    pub(super) fn close(&mut self) {
        let meta = &mut self.state.meta;
        meta.clean = self.shared.goes_on.load(Ordering::Relaxed);
        meta.numbers = self.shared.next_number();
        meta.entered = self.state.next_entered;
        let said = sqlite::begin(&self.connection).and_then(|()| {
            meta.put(&self.connection)?;
            Ok(self.connection.execute_batch("COMMIT")?)
        });
        self.background.wait();
        if said.is_ok() {
            let _ = sqlite::checkpoint(&self.connection, Checkpoint::Full);
        }
    }

    /// Returns whether transactions remove rows of deleted jobs.
    fn is_sweeping(&self) -> bool {
        let may = !self.resting && !self.shared.queue.holds_uploads() && self.failure().is_none();
        may && !self.loose.is_empty()
    }

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

    /// Rolls the transaction back, and the cached state with it.
    fn take_back(&mut self) -> Result<(), SqliteError> {
        sqlite::roll_back(&self.connection)?;
        self.state = WriterState::load(&self.connection, self.opened)
            .map_err(|error| SqliteError::Broken(error.to_string().into()))?;
        Ok(())
    }

    /// Raises the boot number beside the store to that in the store. A failure ends the store, because a copy
    /// that replaces the store could give the same fences out again; only a lack of room is tried again
    /// with the next transaction, as for a store that was opened on a full disk. Returns the cause of a failure.
    fn raise_highest_boot(&mut self) -> Option<Arc<str>> {
        let error = self.highest_boot.raise(self.state.meta.boot).err()?;
        let cause: Arc<str> = format!("cannot write the number of the opening: {error}").into();
        if error.kind() != io::ErrorKind::StorageFull {
            self.shared.fail(Arc::clone(&cause));
        }
        Some(cause)
    }

    /// Schedules the deletion of chunks without a job: of refused jobs, and of dropped uploads. The
    /// file marks both as loose from their first chunk on.
    fn abandon(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Accept(accept) if change.is_of_upload() => {
                    self.loose.push_back(accept.job);
                }
                Change::Abandon(job) => self.loose.push_back(*job),
                _ => {}
            }
        }
    }
}

impl GroupCommit for StoreWriter {
    type Request = WriteRequest;
    type Answers = TransactionResults;

    fn next(&mut self) -> Option<Vec<WriteRequest>> {
        let requests = self.shared.queue.take(self.is_sweeping())?;
        // Asked again: a wait can end with the background checkpoint.
        if !requests.is_empty() || !self.is_sweeping() {
            return Some(requests);
        }
        // Requests a transaction that only deletes.
        Some(vec![WriteRequest {
            changes: Vec::new(),
            answer: WriteReply::to_nobody(),
            _room: None,
        }])
    }

    fn bytes(request: &WriteRequest) -> usize {
        request.bytes()
    }

    fn write(&mut self, requests: &[WriteRequest]) -> Result<TransactionResults, SqliteError> {
        self.keep_to_bound()?;
        sqlite::begin(&self.connection)?;
        let sweep = self.loose.front().copied().filter(|_| self.is_sweeping());
        let transaction = WriteTransaction::new(&self.connection, &mut self.state);
        let written = transaction.write_all(requests, sweep).and_then(|written| {
            self.connection.execute_batch("COMMIT")?;
            Ok(written)
        });
        match written {
            Ok(written) => Ok(written),
            Err(error) => {
                self.take_back()?;
                Err(error)
            }
        }
    }

    /// Advances the high-water mark, and then reports the results. So the mark includes every
    /// reported commit.
    fn acknowledge(&mut self, requests: Vec<WriteRequest>, written: TransactionResults) {
        self.resting = false;
        self.is_log_stale |= written.has_removed;
        if written.swept.is_some() {
            self.loose.pop_front();
        }
        self.loose.extend(written.loose);
        let commits = self.state.meta.commits;
        // The changes are on the disk, so they are acknowledged even if the mark fails.
        if let Err(error) = self.mark.set(commits) {
            self.shared.fail(error.to_string().into());
        }
        self.shared.set_commits(commits);
        // Before the result permits fences of a raised boot number.
        let unraised = self.raise_highest_boot();
        for (request, answer) in requests.into_iter().zip(written.answers) {
            let needs_raise = request.changes.iter().any(|it| matches!(it, Change::RaiseBoot(_)));
            let answer = match &unraised {
                Some(cause) if needs_raise => Err(WriteError::Failed { cause: Arc::clone(cause) }),
                _ => answer,
            };
            if answer.is_err() {
                self.abandon(&request.changes);
            }
            request.answer.tell(answer, request.changes);
        }
        self.shared.after_commit.call();
    }

    fn refuse(&mut self, requests: Vec<WriteRequest>, refused: &WriteRefused) {
        self.resting = true;
        let error = WriteError::from(refused);
        for request in requests {
            self.abandon(&request.changes);
            for change in &request.changes {
                if let Change::Chunk { upload, .. } = change {
                    upload.fail(&error);
                }
            }
            request.answer.tell(Err(error.clone()), request.changes);
        }
    }

    fn failure(&self) -> Option<Arc<str>> {
        self.shared.failure_cause()
    }

    fn fail(&mut self, cause: Arc<str>) {
        self.shared.fail(cause);
    }

    fn log_bytes(&self) -> u64 {
        // An unreadable log size is reported by the next transaction.
        sqlite::log_bytes(&self.connection).unwrap_or(0)
    }

    fn begin_checkpoint(&mut self) -> bool {
        self.shared.queue.hold_uploads();
        let shared = Arc::clone(&self.shared);
        let runs = self.background.begin(move || shared.queue.release_uploads());
        if !runs {
            self.shared.queue.release_uploads();
        }
        runs
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

    fn has_more(&self) -> bool {
        self.shared.queue.waiting().0 > 0 || self.is_sweeping()
    }
}
