//! The thread that writes. The protocol, and why nothing acknowledged is lost, is in `README.md`.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use keylane_stream::sqlite::{
    self, Checkpoint, GroupCommit, HighWaterMark, Lock, ReaderPool, SqliteError, WriteRefused,
};
use rusqlite::Connection;

use super::boot::Highest;
use super::change::{Answer, Change, Request};
use super::draft::{Draft, Written};
use super::error::WriteError;
use super::handle::Shared;
use super::state::{Opened, State};
use crate::ids::JobNumber;

/// How far the log may make the file and it go beyond their bound while readers keep it from being emptied.
const MAX_LOG_BEYOND: u64 = 16 * 1024 * 1024;

pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) state: State,
    pub(super) mark: HighWaterMark,
    pub(super) highest_boot: Highest,
    pub(super) shared: Arc<Shared>,
    /// Jobs whose parts are to be removed, a few in each transaction.
    pub(super) loose: VecDeque<JobNumber>,
    /// There was no room for a removal. Until something else is written, it is not tried again.
    pub(super) resting: bool,
    /// What was to be said in the file when it was opened.
    pub(super) opened: Opened,
    /// Paused while the log is reset.
    pub(super) readers: Arc<ReaderPool>,
    /// The file, and how large it and its log may become together.
    pub(super) path: PathBuf,
    pub(super) most_bytes: Option<u64>,
    /// Whether something was removed whose bytes may still be in the log.
    pub(super) is_log_stale: bool,
    /// Given back when all is closed.
    pub(super) lock: Lock,
}

/// However the writer ends, nobody waits for it afterwards.
struct Farewell(Arc<Shared>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.fail("the writer has ended".into());
        self.0.queue.close();
        // With its request each answer is dropped, so its caller learns of it.
        while self.0.queue.take(true).is_some() {}
    }
}

impl Writer {
    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let farewell = Farewell(Arc::clone(&self.shared));
        self.shared.queue.is_mine();
        sqlite::run(&mut self);
        if self.shared.failure().is_none() {
            self.close();
        }
        let Writer { connection, mark, lock, .. } = self;
        drop(connection);
        // Only when the file is closed may others open it.
        drop((mark, lock, farewell));
    }

    /// Says that all is well, and carries everything over into the file. What was acknowledged is in the
    /// log already, so a failure here loses nothing.
    fn close(&mut self) {
        let meta = &mut self.state.meta;
        meta.clean = self.shared.goes_on.load(Ordering::Relaxed);
        meta.numbers = self.shared.next_number();
        meta.entered = self.state.next_entered;
        let said = sqlite::begin(&self.connection).and_then(|()| {
            meta.put(&self.connection)?;
            Ok(self.connection.execute_batch("COMMIT")?)
        });
        if said.is_ok() {
            let _ = sqlite::checkpoint(&self.connection, Checkpoint::Full);
        }
    }

    /// The file and its log are to stay within their bound together. SQLite sees to it that the file alone does, so with
    /// an empty log they do.
    fn keep_to_bound(&mut self) -> Result<(), SqliteError> {
        let Some(most) = self.most_bytes else { return Ok(()) };
        if sqlite::bytes_on_disk(&self.path) <= most {
            return Ok(());
        }
        self.checkpoint(Checkpoint::Reset)?;
        match sqlite::bytes_on_disk(&self.path) <= most.saturating_add(MAX_LOG_BEYOND) {
            true => Ok(()),
            false => Err(SqliteError::Full),
        }
    }

    /// Takes back what was not committed, and what was to be known of it.
    fn take_back(&mut self) -> Result<(), SqliteError> {
        sqlite::roll_back(&self.connection)?;
        self.state = State::load(&self.connection, self.opened)
            .map_err(|error| SqliteError::Broken(error.to_string().into()))?;
        Ok(())
    }

    /// Parts of these are nobody's: they were to be of jobs that were refused, or of uploads that were dropped. Both
    /// are known as such in the file since their first part; that they are to be removed is known here.
    fn abandon(&mut self, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Accept(accept) if accept.inline.is_none() && accept.total > 0 => {
                    self.loose.push_back(accept.job);
                }
                Change::Abandon(job) => self.loose.push_back(*job),
                _ => {}
            }
        }
    }
}

impl GroupCommit for Writer {
    type Request = Request;
    type Answers = Written;

    fn next(&mut self) -> Option<Vec<Request>> {
        let sweeps = !self.loose.is_empty() && !self.resting && self.failure().is_none();
        let requests = self.shared.queue.take(sweeps)?;
        if !requests.is_empty() {
            return Some(requests);
        }
        // A transaction that only removes.
        Some(vec![Request { changes: Vec::new(), answer: Answer::to_nobody(), _room: None }])
    }

    fn bytes(request: &Request) -> usize {
        request.changes.iter().map(Change::bytes).sum()
    }

    fn write(&mut self, requests: &[Request]) -> Result<Written, SqliteError> {
        self.keep_to_bound()?;
        sqlite::begin(&self.connection)?;
        let sweep = self.loose.front().copied().filter(|_| !self.resting);
        match Draft::new(&self.connection, &mut self.state).write_all(requests, sweep) {
            Ok(written) => Ok(written),
            Err(error) => {
                self.take_back()?;
                Err(error)
            }
        }
    }

    /// First the mark and then the answers: so the mark knows of all that anybody was told of.
    fn acknowledge(&mut self, requests: Vec<Request>, written: Written) {
        self.resting = false;
        self.is_log_stale |= written.has_removed;
        if written.swept.is_some() {
            self.loose.pop_front();
        }
        self.loose.extend(written.loose);
        let commits = self.state.meta.commits;
        // What was asked for is on the disk, so it is acknowledged all the same.
        if let Err(error) = self.mark.set(commits) {
            self.shared.fail(error.to_string().into());
        }
        self.shared.set_commits(commits);
        // Before the answer lets fences of a raised number be given out. Restarts go by the store's own row: if this
        // fails, only a copy put in the store's place knows less.
        let _ = self.highest_boot.raise(self.state.meta.boot);
        for (request, answer) in requests.into_iter().zip(written.answers) {
            if answer.is_err() {
                self.abandon(&request.changes);
            }
            request.answer.tell(answer);
        }
        self.shared.after_commit.call();
    }

    fn refuse(&mut self, requests: Vec<Request>, refused: &WriteRefused) {
        self.resting = true;
        let error = WriteError::from(refused);
        for request in requests {
            self.abandon(&request.changes);
            for change in &request.changes {
                if let Change::Chunk { upload, .. } = change {
                    upload.fail(&error);
                }
            }
            request.answer.tell(Err(error.clone()));
        }
    }

    fn failure(&self) -> Option<Arc<str>> {
        self.shared.failure_cause()
    }

    fn fail(&mut self, cause: Arc<str>) {
        self.shared.fail(cause);
    }

    fn log_bytes(&self) -> u64 {
        // What cannot be looked at is noticed by the next transaction.
        sqlite::log_bytes(&self.connection).unwrap_or(0)
    }

    fn checkpoint(&mut self, mode: Checkpoint) -> Result<(), SqliteError> {
        let is_reset = matches!(mode, Checkpoint::Reset | Checkpoint::LongReset);
        let _pause = is_reset.then(|| self.readers.pause());
        self.is_log_stale &= mode == Checkpoint::Passive;
        Ok(sqlite::checkpoint(&self.connection, mode)?)
    }

    fn is_log_stale(&self) -> bool {
        self.is_log_stale
    }

    fn has_more(&self) -> bool {
        self.shared.queue.waiting().0 > 0 || (!self.loose.is_empty() && !self.resting)
    }
}
