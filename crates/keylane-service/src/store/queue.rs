//! Queue from callers to the writer: two lists, each first in, first out, with byte bounds on new
//! work.
//!
//! *Uploads* are the chunks of large jobs and the requests that complete or discard them. All other
//! requests, small jobs among them, are in the list of *requests*. The writer takes all requests
//! and a bounded part of the uploads at a time, so that a request waits for at most that part,
//! however large the uploads are.
//!
//! New work, which is chunks and accepted jobs, first acquires permits for its bytes at a fair
//! gate: one gate for uploads, one for small jobs. Other requests never wait, so that an executor
//! can always report a result, however slow the disk is. Their number is bounded by the caller: it
//! has at most one for each running subtask, and starts no other until it is answered. The writer
//! thread never waits either, because only it frees permits: requests from its callbacks enter the
//! queue directly, and each callback runs once.

use std::cell::Cell;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use keylane::admit::{Gate, OwnedPermit};

use super::change::{Change, WriteRequest};

/// Unit of the gates' permits, in bytes. A gate has fewer permits than a queue has bytes.
const UNIT: usize = 256;

/// Size of the uploads that are taken at a time, in bytes. A request waits for at most these and
/// one upload request more; a smaller size makes large jobs slower, by a sync for each part.
const UPLOAD_BYTES_AT_ONCE: usize = 1024 * 1024;

#[derive(Debug)]
pub(super) struct WriteQueue {
    /// No code that holds this lock unwinds.
    line: Mutex<QueueState>,
    /// Notified when a request arrives in an empty queue, and at the close. Only the writer waits.
    changed: Condvar,
    /// Permits for small jobs.
    jobs: Arc<Gate>,
    /// Permits for uploads.
    uploads: Arc<Gate>,
}

thread_local! {
    /// Address of the queue whose requests this thread writes; 0 if it is no writer.
    static WRITTEN: Cell<usize> = const { Cell::new(0) };
}

#[derive(Debug, Default)]
struct QueueState {
    requests: Vec<WriteRequest>,
    /// Chunks of large jobs, each before the request that completes or discards its upload.
    uploads: VecDeque<WriteRequest>,
    /// Whether uploads stay in the queue, because a checkpoint runs beside the writer. Set by the
    /// writer, and unset at the end of the checkpoint.
    holds_uploads: bool,
    /// Whether a hold has ended, or awaited readers have left, since the writer last took requests.
    is_released: bool,
    /// Waker of a writer that is a task, from its last [`poll_filled`](WriteQueue::poll_filled).
    waker: Option<Waker>,
    /// Whether the queue accepts no requests: the last handle is dropped, or the writer has ended.
    closed: bool,
}

impl QueueState {
    /// Returns whether the writer finds nothing to take. The close ends a hold.
    fn is_empty(&self) -> bool {
        let holds = self.holds_uploads && !self.closed;
        self.requests.is_empty() && (self.uploads.is_empty() || holds)
    }

    /// Returns all requests, and uploads of about [`UPLOAD_BYTES_AT_ONCE`] unless they are held.
    fn take(&mut self) -> Vec<WriteRequest> {
        self.is_released = false;
        let mut taken = std::mem::take(&mut self.requests);
        let mut bytes = 0;
        while bytes < UPLOAD_BYTES_AT_ONCE && (!self.holds_uploads || self.closed) {
            let Some(upload) = self.uploads.pop_front() else { break };
            bytes += upload.bytes();
            taken.push(upload);
        }
        taken
    }
}

impl WriteQueue {
    /// Creates a queue. Small jobs and uploads may each have half of `max_bytes` in it.
    pub(super) fn new(max_bytes: usize) -> Self {
        let slots = (max_bytes / 2 / UNIT).clamp(1, Gate::MAX_SLOTS);
        let gate = || Arc::new(Gate::new(slots).expect("it is between one and what a gate has"));
        WriteQueue {
            line: Mutex::default(),
            changed: Condvar::new(),
            jobs: gate(),
            uploads: gate(),
        }
    }

    fn line(&self) -> MutexGuard<'_, QueueState> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the current thread as the writer.
    pub(super) fn is_mine(&self) {
        WRITTEN.set(std::ptr::from_ref(self).addr());
    }

    pub(super) fn is_writer(&self) -> bool {
        WRITTEN.get() == std::ptr::from_ref(self).addr()
    }

    /// Waits for permits. Returns `None` on the writer thread, which needs none, and if the writer
    /// has ended.
    pub(super) fn room(&self, changes: &[Change]) -> Option<OwnedPermit> {
        if self.is_writer() {
            return None;
        }
        let gate = self.gate(changes);
        let permit = gate.acquire_many(slots(gate, changes)).ok()?;
        Some(gate.own(permit))
    }

    /// Waits for permits like [`room`](Self::room), without blocking a thread.
    pub(super) async fn room_async(&self, changes: &[Change]) -> Option<OwnedPermit> {
        if self.is_writer() {
            return None;
        }
        let gate = self.gate(changes);
        let permit = gate.acquire_many_async(slots(gate, changes)).await.ok()?;
        Some(gate.own(permit))
    }

    fn gate(&self, changes: &[Change]) -> &Arc<Gate> {
        match changes.iter().any(Change::is_of_upload) {
            true => &self.uploads,
            false => &self.jobs,
        }
    }

    /// Appends a request, or returns it if the queue is closed.
    pub(super) fn push(&self, request: WriteRequest) -> Result<(), WriteRequest> {
        let (is_first, waker) = {
            let mut line = self.line();
            if line.closed {
                return Err(request);
            }
            let was_empty = line.is_empty();
            match request.changes.iter().any(Change::is_of_upload) {
                true => line.uploads.push_back(request),
                false => line.requests.push(request),
            }
            (was_empty, line.waker.take())
        };
        if is_first {
            self.changed.notify_one();
        }
        if let Some(waker) = waker {
            waker.wake();
        }
        Ok(())
    }

    /// Takes all requests and some uploads, and waits for one unless `only_look`. The list is empty
    /// if there is none, and when a hold has ended or awaited readers have left. Returns `None` when the queue is closed and
    /// empty.
    pub(super) fn take(&self, only_look: bool) -> Option<Vec<WriteRequest>> {
        let mut line = self.line();
        while line.is_empty() && !line.closed && !line.is_released && !only_look {
            line = self.changed.wait(line).unwrap_or_else(PoisonError::into_inner);
        }
        if line.is_empty() && line.closed {
            return None;
        }
        Some(line.take())
    }

    /// Ends the current thread's role as the writer.
    #[cfg(test)]
    pub(super) fn is_no_longer_mine(&self) {
        WRITTEN.set(0);
    }

    /// Returns `Ready` if there is a request to take; otherwise wakes the task when one arrives.
    #[cfg(test)]
    pub(super) fn poll_filled(&self, context: &std::task::Context<'_>) -> std::task::Poll<()> {
        let mut line = self.line();
        if !line.is_empty() {
            return std::task::Poll::Ready(());
        }
        line.waker = Some(context.waker().clone());
        std::task::Poll::Pending
    }

    /// Leaves uploads in the queue until [`release_uploads`](Self::release_uploads).
    pub(super) fn hold_uploads(&self) {
        self.line().holds_uploads = true;
    }

    /// Ends a hold, and the writer's wait for requests.
    pub(super) fn release_uploads(&self) {
        {
            let mut line = self.line();
            line.holds_uploads = false;
            line.is_released = true;
        }
        self.changed.notify_one();
    }

    /// Ends the writer's wait for requests.
    pub(super) fn wake(&self) {
        self.line().is_released = true;
        self.changed.notify_one();
    }

    pub(super) fn holds_uploads(&self) -> bool {
        self.line().holds_uploads
    }

    /// Returns the number of queued requests, and of callers that wait for permits.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let queued = {
            let line = self.line();
            line.requests.len() + line.uploads.len()
        };
        (queued, self.jobs.waiting() + self.uploads.waiting())
    }

    /// Returns whether the last handle of the store is gone.
    #[cfg(test)]
    pub(super) fn is_closed(&self) -> bool {
        self.line().closed
    }

    /// Closes the queue. Queued requests can still be taken.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.jobs.close();
        self.uploads.close();
        self.changed.notify_all();
    }
}

/// Returns the permits for changes. A request larger than the whole capacity takes all of it, so
/// that it can pass.
fn slots(gate: &Gate, changes: &[Change]) -> usize {
    let bytes = changes.iter().map(Change::bytes).sum::<usize>();
    bytes.div_ceil(UNIT).clamp(1, gate.capacity())
}
