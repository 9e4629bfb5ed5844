//! Writer thread of a journal, and the state that it shares with callers. The crate's README has
//! the protocol, and why no acknowledged record is lost.

use std::collections::HashSet;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use keylane::admit::FairQueue;
use keylane_storage::ThreadNotify;
use keylane_storage::sqlite::{
    self, Checkpoint, GroupCommit, HighWaterMark, Lock, ReaderPool, SqliteError, WriteRefused,
};

use super::error::WriteError;
use super::store::{JournalStore, WriteOp, WriteResult};
use crate::Position;

/// Maximum number of queued requests; further callers wait for room, first come, first served.
/// Enough to fill a transaction while the previous one is synced.
pub(super) const MAX_QUEUED: usize = 4096;

/// A write operation, and the destination of its result.
#[derive(Debug)]
pub(super) struct JournalRequest {
    pub(super) work: WriteOp,
    pub(super) reply: mpsc::Sender<Result<WriteResult, WriteError>>,
}

/// State shared by callers and the writer.
#[derive(Debug)]
pub(super) struct JournalShared {
    /// Requests for the writer. Closed when the last handle is dropped.
    pub(super) queue: FairQueue<JournalRequest>,
    /// Durable state. Only the writer changes it.
    state: Mutex<JournalState>,
    /// Notified of each change of `state`.
    changed: Condvar,
    /// Notified of each change of `state`, and when a group is released. Dropped listeners are
    /// removed at the next notification.
    listeners: Mutex<Vec<Weak<ThreadNotify>>>,
    /// Groups with a consumer in this process.
    groups: Mutex<HashSet<Arc<str>>>,
}

#[derive(Debug)]
struct JournalState {
    /// One past the last record on the disk. Never decreases.
    durable: Position,
    /// First failure, after which nothing is written.
    failed: Option<Arc<str>>,
}

impl JournalShared {
    pub(super) fn new(durable: Position) -> Self {
        JournalShared {
            queue: FairQueue::new(MAX_QUEUED).expect("a valid capacity"),
            state: Mutex::new(JournalState { durable, failed: None }),
            changed: Condvar::new(),
            listeners: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, JournalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_durable(&self, position: Position) {
        self.state().durable = position;
        self.changed.notify_all();
        self.notify_listeners();
    }

    /// Adds a source to notify of changes, as long as it exists.
    pub(super) fn add_listener(&self, wakeup: &Arc<ThreadNotify>) {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(wakeup));
    }

    fn notify_listeners(&self) {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|wakeup| wakeup.upgrade().map(|wakeup| wakeup.notify()).is_some());
    }

    /// Claims a group for the caller. Returns `false` if another consumer has it.
    pub(super) fn try_claim(&self, group: &Arc<str>) -> bool {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).insert(group.clone())
    }

    /// Releases a group, and notifies sources that may wait for it.
    pub(super) fn release(&self, group: &str) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).remove(group);
        self.notify_listeners();
    }

    /// Records a failure. The first cause is kept.
    fn fail(&self, cause: Arc<str>) {
        self.state().failed.get_or_insert(cause);
        self.changed.notify_all();
        self.notify_listeners();
    }

    /// Returns one past the last record on the disk.
    pub(super) fn durable(&self) -> Position {
        self.state().durable
    }

    /// Returns the error of all writes, once the writer has failed.
    pub(super) fn failure(&self) -> Option<WriteError> {
        self.state().failed.clone().map(|cause| WriteError::Failed { cause })
    }

    /// Waits until there is a record at `position`, the writer has failed, or the timeout has
    /// passed.
    pub(super) fn wait_for(&self, position: Position, timeout: Duration) -> Position {
        let deadline = Instant::now().checked_add(timeout);
        let mut state = self.state();
        while state.durable <= position && state.failed.is_none() {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left = left.unwrap_or(Duration::MAX);
            if left.is_zero() {
                break;
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.durable
    }
}

pub(super) struct JournalWriter {
    pub(super) store: JournalStore,
    pub(super) mark: HighWaterMark,
    pub(super) shared: Arc<JournalShared>,
    /// Paused while the log is reset.
    pub(super) readers: Arc<ReaderPool>,
    /// Released after the database is closed.
    pub(super) lock: Lock,
}

/// However the writer ends, callers do not wait for it afterwards.
struct CloseOnDrop(Arc<JournalShared>);

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.fail("the writer has ended".into());
        // Dropping a request drops its sender, so its caller gets an error.
        drop(self.0.queue.close_and_take());
    }
}

impl JournalWriter {
    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let close_on_drop = CloseOnDrop(Arc::clone(&self.shared));
        sqlite::run(&mut self);
        let JournalWriter { store, mark, shared, lock, readers: _ } = self;
        if shared.failure().is_none() {
            // All writes are in the log already, so an error here loses nothing.
            let _ = store.close();
        } else {
            drop(store);
        }
        // The lock is released only after the database is closed.
        drop((mark, lock, close_on_drop));
    }
}

impl GroupCommit for JournalWriter {
    type Request = JournalRequest;
    type Answers = Vec<Result<WriteResult, WriteError>>;

    fn next(&mut self) -> Option<Vec<JournalRequest>> {
        self.shared.queue.pop_many(MAX_QUEUED).ok()
    }

    fn bytes(request: &JournalRequest) -> usize {
        match &request.work {
            WriteOp::Append(segments) => segments.iter().map(|segment| segment.bytes.len()).sum(),
            WriteOp::Commit { map, .. } => map.len(),
            WriteOp::Forget { .. } | WriteOp::Retain(_) => 0,
        }
    }

    fn write(&mut self, requests: &[JournalRequest]) -> Result<Self::Answers, SqliteError> {
        self.store.write(requests.iter().map(|request| &request.work))
    }

    /// Writes the mark before the answers, so that the mark covers every acknowledged write.
    fn acknowledge(&mut self, requests: Vec<JournalRequest>, answers: Self::Answers) {
        let durable = self.store.next();
        if self.shared.durable() != durable {
            let marked = self.mark.set(durable.get());
            self.shared.set_durable(durable);
            // The records are on the disk, so they are acknowledged even if the mark failed.
            if let Err(error) = marked {
                self.shared.fail(error.to_string().into());
            }
        }
        for (request, answer) in requests.iter().zip(answers) {
            reply(request, answer);
        }
    }

    fn refuse(&mut self, requests: Vec<JournalRequest>, refused: &WriteRefused) {
        let error = match refused {
            WriteRefused::Full => WriteError::Full,
            WriteRefused::Busy => WriteError::Busy,
            WriteRefused::Failed(cause) => WriteError::Failed { cause: Arc::clone(cause) },
        };
        requests.iter().for_each(|request| reply(request, Err(error.clone())));
    }

    fn failure(&self) -> Option<Arc<str>> {
        self.shared.state().failed.clone()
    }

    fn fail(&mut self, cause: Arc<str>) {
        self.shared.fail(cause);
    }

    fn log_bytes(&self) -> u64 {
        self.store.log_bytes()
    }

    fn checkpoint(&mut self, mode: Checkpoint) -> Result<bool, SqliteError> {
        if mode == Checkpoint::Reset {
            self.readers.pause();
        }
        let is_done = self.store.checkpoint(mode)?;
        if is_done {
            self.readers.resume();
        }
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
        self.store.is_log_stale
    }

    fn has_more(&self) -> bool {
        !self.shared.queue.is_empty()
    }
}

fn reply(request: &JournalRequest, answer: Result<WriteResult, WriteError>) {
    // A dropped receiver does not need the result.
    let _ = request.reply.send(answer);
}
