//! The one thread that writes. What it does, and why nothing acknowledged is lost, is in the crate's
//! README.

use std::collections::HashSet;
use std::sync::mpsc;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use keylane::admit::FairQueue;

use super::error::WriteError;
use super::store::{Done, Store, Work};
use crate::Position;
use crate::bell::Bell;
use crate::ledger::{self, Carry, Ledger, Lock, Mark, Readers, Refusal, Trouble};

/// How many requests wait at most; who comes then waits for room, first come first served. Enough to
/// fill a transaction while the one before is synced.
pub(super) const MOST_WAITING: usize = 4096;

/// Something to be written, and where the answer goes.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) work: Work,
    pub(super) reply: mpsc::Sender<Result<Done, WriteError>>,
}

/// What callers and the writer share.
#[derive(Debug)]
pub(super) struct Shared {
    /// From the callers to the writer. Closed when the last handle is gone.
    pub(super) queue: FairQueue<Request>,
    /// What is on the disk. Only the writer changes it.
    state: Mutex<State>,
    /// Told of each change of `state`.
    changed: Condvar,
    /// Rung at each change of `state`, and when a group is given up. Those that are gone are removed at
    /// the next ring.
    bells: Mutex<Vec<Weak<Bell>>>,
    /// The groups that have a consumer in this process.
    groups: Mutex<HashSet<Arc<str>>>,
}

#[derive(Debug)]
struct State {
    /// One past the last record that is on the disk. It never falls.
    durable: Position,
    /// Why nothing more is written, once that is so.
    failed: Option<Arc<str>>,
}

impl Shared {
    pub(super) fn new(durable: Position) -> Self {
        Shared {
            queue: FairQueue::new(MOST_WAITING).expect("it is between one and what a gate has"),
            state: Mutex::new(State { durable, failed: None }),
            changed: Condvar::new(),
            bells: Mutex::default(),
            groups: Mutex::default(),
        }
    }

    /// Nothing under this lock unwinds.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_durable(&self, position: Position) {
        self.state().durable = position;
        self.changed.notify_all();
        self.ring();
    }

    /// Tells a source of what changes, as long as it is there.
    pub(super) fn add_bell(&self, bell: &Arc<Bell>) {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(bell));
    }

    fn ring(&self) {
        let mut bells = self.bells.lock().unwrap_or_else(PoisonError::into_inner);
        bells.retain(|bell| bell.upgrade().map(|bell| bell.ring()).is_some());
    }

    /// Makes a group the caller's, if it is nobody's.
    pub(super) fn claim(&self, group: &Arc<str>) -> bool {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).insert(group.clone())
    }

    /// Gives it up, and tells those who may wait for it.
    pub(super) fn give_up(&self, group: &str) {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).remove(group);
        self.ring();
    }

    /// The first cause stays.
    fn fail(&self, cause: Arc<str>) {
        self.state().failed.get_or_insert(cause);
        self.changed.notify_all();
        self.ring();
    }

    /// One past the last record that is on the disk.
    pub(super) fn durable(&self) -> Position {
        self.state().durable
    }

    /// The error of all writes, once the writer has failed.
    pub(super) fn failure(&self) -> Option<WriteError> {
        self.state().failed.clone().map(|cause| WriteError::Failed { cause })
    }

    /// Waits until there is a record at `position`, the writer has failed, or the time is up.
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

pub(super) struct Writer {
    pub(super) store: Store,
    pub(super) mark: Mark,
    pub(super) shared: Arc<Shared>,
    /// Paused while the log is reset.
    pub(super) readers: Arc<Readers>,
    /// Given back when all is closed.
    pub(super) lock: Lock,
}

/// However the writer ends, nobody waits for it afterwards.
struct Farewell(Arc<Shared>);

impl Drop for Farewell {
    fn drop(&mut self) {
        self.0.fail("the writer has ended".into());
        // With its request each one's sender is dropped, so its caller learns of it.
        drop(self.0.queue.close_and_take());
    }
}

impl Writer {
    /// Writes until the queue is closed and empty.
    pub(super) fn run(mut self) {
        let farewell = Farewell(Arc::clone(&self.shared));
        ledger::run(&mut self);
        let Writer { store, mark, shared, lock, readers: _ } = self;
        if shared.failure().is_none() {
            // Everything is in the log already, so a failure here loses nothing.
            let _ = store.close();
        } else {
            drop(store);
        }
        // Only when the file is closed may others open it.
        drop((mark, lock, farewell));
    }
}

impl Ledger for Writer {
    type Request = Request;
    type Answers = Vec<Result<Done, WriteError>>;

    fn next(&mut self) -> Option<Vec<Request>> {
        self.shared.queue.pop_many(MOST_WAITING).ok()
    }

    fn bytes(request: &Request) -> usize {
        match &request.work {
            Work::Append(segments) => segments.iter().map(|segment| segment.bytes.len()).sum(),
            Work::Commit { map, .. } => map.len(),
            Work::Forget { .. } | Work::Retain(_) => 0,
        }
    }

    fn write(&mut self, requests: &[Request]) -> Result<Self::Answers, Trouble> {
        self.store.write(requests.iter().map(|request| &request.work))
    }

    /// First the mark and then the answers: so the mark knows of all that anybody was told of.
    fn acknowledge(&mut self, requests: Vec<Request>, answers: Self::Answers) {
        let durable = self.store.next();
        if self.shared.durable() != durable {
            let marked = self.mark.set(durable.get());
            self.shared.set_durable(durable);
            // What was asked for is on the disk, so it is acknowledged all the same.
            if let Err(error) = marked {
                self.shared.fail(error.to_string().into());
            }
        }
        for (request, answer) in requests.iter().zip(answers) {
            tell(request, answer);
        }
    }

    fn refuse(&mut self, requests: Vec<Request>, refusal: &Refusal) {
        let error = match refusal {
            Refusal::Full => WriteError::Full,
            Refusal::Busy => WriteError::Busy,
            Refusal::Failed(cause) => WriteError::Failed { cause: Arc::clone(cause) },
        };
        requests.iter().for_each(|request| tell(request, Err(error.clone())));
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

    fn checkpoint(&mut self, carry: Carry) -> Result<(), Trouble> {
        let _pause = (carry == Carry::Reset).then(|| self.readers.pause());
        self.store.checkpoint(carry)
    }

    fn is_log_stale(&self) -> bool {
        self.store.is_log_stale
    }

    fn has_more(&self) -> bool {
        !self.shared.queue.is_empty()
    }
}

fn tell(request: &Request, answer: Result<Done, WriteError>) {
    // Who no longer waits doesn't want to know.
    let _ = request.reply.send(answer);
}
