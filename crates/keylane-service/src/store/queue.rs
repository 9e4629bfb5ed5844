//! Queue from callers to the writer: first in, first out, with a byte bound on new work.
//!
//! All requests are in one queue, in order of arrival. New work, which is chunks and accepted jobs,
//! first acquires permits for its bytes at a fair gate. Other requests never wait, so that an
//! executor can always report a result, however slow the disk is. Their number is bounded by the
//! caller: it has at most one for each running subtask, and starts no other until it is answered.
//! The writer thread never waits either, because only it frees permits: requests from its callbacks
//! enter the queue directly, and each callback runs once.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use keylane::admit::{Gate, OwnedPermit};

use super::change::{Change, Request};

/// Unit of the gate's permits, in bytes. A gate has fewer permits than a queue has bytes.
const UNIT: usize = 256;

#[derive(Debug)]
pub(super) struct WriteQueue {
    /// No code that holds this lock unwinds.
    line: Mutex<QueueState>,
    /// Notified when a request arrives in an empty queue, and at the close. Only the writer waits.
    changed: Condvar,
    /// Permits for new work.
    gate: Arc<Gate>,
    /// Thread that takes requests. Set by the writer before it takes any.
    writer: OnceLock<ThreadId>,
}

#[derive(Debug, Default)]
struct QueueState {
    requests: Vec<Request>,
    /// Whether the queue accepts no requests: the last handle is dropped, or the writer has ended.
    closed: bool,
}

impl WriteQueue {
    pub(super) fn new(most_bytes: usize) -> Self {
        let slots = (most_bytes / UNIT).clamp(1, Gate::MAX_SLOTS);
        WriteQueue {
            line: Mutex::default(),
            changed: Condvar::new(),
            gate: Arc::new(Gate::new(slots).expect("it is between one and what a gate has")),
            writer: OnceLock::new(),
        }
    }

    fn line(&self) -> MutexGuard<'_, QueueState> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the current thread as the writer.
    pub(super) fn is_mine(&self) {
        self.writer.set(thread::current().id()).expect("there is one writer");
    }

    pub(super) fn is_writer(&self) -> bool {
        self.writer.get() == Some(&thread::current().id())
    }

    /// Waits for permits. Returns `None` on the writer thread, which needs none, and if the writer
    /// has ended.
    pub(super) fn room(&self, changes: &[Change]) -> Option<OwnedPermit> {
        if self.is_writer() {
            return None;
        }
        let permit = self.gate.acquire_many(self.slots(changes)).ok()?;
        Some(self.gate.own(permit))
    }

    /// Waits for permits like [`room`](Self::room), without blocking a thread.
    pub(super) async fn room_async(&self, changes: &[Change]) -> Option<OwnedPermit> {
        if self.is_writer() {
            return None;
        }
        let permit = self.gate.acquire_many_async(self.slots(changes)).await.ok()?;
        Some(self.gate.own(permit))
    }

    /// A request larger than the whole capacity takes all of it, so that it can pass.
    fn slots(&self, changes: &[Change]) -> usize {
        let bytes = changes.iter().map(Change::bytes).sum::<usize>();
        bytes.div_ceil(UNIT).clamp(1, self.gate.capacity())
    }

    /// Appends a request, or returns it if the queue is closed.
    pub(super) fn push(&self, request: Request) -> Result<(), Request> {
        let is_first = {
            let mut line = self.line();
            if line.closed {
                return Err(request);
            }
            line.requests.push(request);
            line.requests.len() == 1
        };
        if is_first {
            self.changed.notify_one();
        }
        Ok(())
    }

    /// Takes all requests, and waits for one unless `only_look`. Returns `None` when the queue is
    /// closed and empty.
    pub(super) fn take(&self, only_look: bool) -> Option<Vec<Request>> {
        let mut line = self.line();
        while line.requests.is_empty() && !line.closed && !only_look {
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        if line.requests.is_empty() && line.closed {
            return None;
        }
        Some(std::mem::take(&mut line.requests))
    }

    /// Returns the number of queued requests, and of callers that wait for permits.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.line().requests.len(), self.gate.waiting())
    }

    /// Closes the queue. Queued requests can still be taken.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.gate.close();
        self.changed.notify_all();
    }
}
