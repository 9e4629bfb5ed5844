//! Writer thread of the store. `README.md` has the protocol, and why no acknowledged write is lost.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use keylane_storage::sqlite::{
    self, Checkpoint, CheckpointState, GroupCommit, SqliteError, WriteRefused,
};

use super::change::{Change, WriteReply, WriteRequest};
use super::error::WriteError;
use super::shared::StoreShared;
use super::write_transaction::{TransactionResults, WriteTransaction};
use super::writer_database::WriterDatabase;
use super::writer_state::{OpeningValues, WriterState};
use crate::ids::JobNumber;

pub(super) struct StoreWriter {
    pub(super) database: Box<dyn WriterDatabase>,
    pub(super) state: WriterState,
    /// Whether the state has changes of a transaction that was taken back, and is read again before the next one.
    pub(super) is_state_old: bool,
    pub(super) shared: Arc<StoreShared>,
    /// Jobs to delete, a few rows in each transaction.
    pub(super) loose: VecDeque<JobNumber>,
    /// Whether the deletion is suspended after a full disk, until the next other write.
    pub(super) resting: bool,
    /// Opening to record in the file.
    pub(super) opened: OpeningValues,
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
        // Before the callers hear of it.
        drop(self);
        drop(farewell);
    }

    /// Records an orderly shutdown and checkpoints the log. Acknowledged changes are in the log
    /// already, so a failure here loses nothing.
    pub(super) fn close(&mut self) {
        let written = self.begin().and_then(|()| {
            let meta = &mut self.state.meta;
            meta.clean = self.shared.goes_on.load(Ordering::Relaxed);
            meta.numbers = self.shared.next_number();
            meta.entered = self.state.next_entered;
            meta.put(self.database.connection())?;
            self.database.commit_last()
        });
        self.database.close(written.is_ok());
    }

    /// Returns whether transactions remove rows of deleted jobs.
    fn is_sweeping(&self) -> bool {
        let may = !self.resting && !self.shared.queue.holds_uploads() && self.failure().is_none();
        may && !self.loose.is_empty()
    }

    /// Begins a transaction, with the cached state that belongs to it.
    fn begin(&mut self) -> Result<(), SqliteError> {
        self.database.begin()?;
        if self.is_state_old {
            self.state = WriterState::load(self.database.connection(), self.opened)?;
            self.is_state_old = false;
        }
        Ok(())
    }

    /// Rolls the transaction back, and the cached state with it. Returns the cause of `error`.
    fn take_back(&mut self, error: SqliteError) -> Result<SqliteError, SqliteError> {
        let cause = self.database.cause(error);
        self.is_state_old = true;
        self.database.roll_back()?;
        Ok(cause)
    }

    /// Raises the boot number beside the store to that in the store. A failure ends the store, because a copy
    /// that replaces the store could give the same fences out again; only a lack of room is tried again
    /// with the next transaction, as for a store that was opened on a full disk. Returns the cause of a failure.
    fn raise_highest_boot(&mut self) -> Option<Arc<str>> {
        let error = self.database.raise_boot(self.state.meta.boot).err()?;
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
        let sweep = self.loose.front().copied().filter(|_| self.is_sweeping());
        let written = self.begin().and_then(|()| {
            let transaction = WriteTransaction::new(self.database.connection(), &mut self.state);
            let written = transaction.write_all(requests, sweep)?;
            self.database.commit()?;
            Ok(written)
        });
        match written {
            Ok(written) => Ok(written),
            Err(error) => Err(self.take_back(error)?),
        }
    }

    /// Advances the high-water mark, and then reports the results. So the mark includes every
    /// reported commit.
    fn acknowledge(&mut self, requests: Vec<WriteRequest>, written: TransactionResults) {
        self.resting = false;
        if written.has_removed {
            self.database.note_removal();
        }
        if written.swept.is_some() {
            self.loose.pop_front();
        }
        self.loose.extend(written.loose);
        let commits = self.state.meta.commits;
        // The changes are on the disk, so they are acknowledged even if the mark fails.
        if let Err(cause) = self.database.note_commit(commits) {
            self.shared.fail(cause);
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
        self.database.log_bytes()
    }

    fn begin_checkpoint(&mut self) -> bool {
        self.shared.queue.hold_uploads();
        let shared = Arc::clone(&self.shared);
        let runs = self.database.begin_checkpoint(Box::new(move || shared.queue.release_uploads()));
        if !runs {
            self.shared.queue.release_uploads();
        }
        runs
    }

    fn background_checkpoint(&mut self) -> CheckpointState {
        self.database.background_checkpoint()
    }

    fn checkpoint(&mut self, mode: Checkpoint) -> Result<bool, SqliteError> {
        self.database.checkpoint(mode)
    }

    fn pause_readers(&mut self) {
        self.database.pause_readers();
    }

    fn resume_readers(&mut self) {
        self.database.resume_readers();
    }

    fn has_readers(&self) -> bool {
        self.database.has_readers()
    }

    fn end_readers(&mut self) {
        self.database.end_readers();
    }

    fn is_log_stale(&self) -> bool {
        self.database.is_log_stale()
    }

    fn has_more(&self) -> bool {
        self.shared.queue.waiting().0 > 0 || self.is_sweeping()
    }
}
