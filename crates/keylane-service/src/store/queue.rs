//! From callers to the writer: one line, bounded for those who bring new work.
//!
//! Everything stands in one line, in the order in which it came. What brings new work, chunks and accepted
//! jobs, takes room at a gate first, by its bytes, and waits for it there, first come first served. Nothing
//! else waits, so that an executor can always say what became of its subtask, however slow the disk is.
//! What bounds that is the caller: it has as many of these changes on the way as it runs subtasks, and
//! makes no more while it waits for their answers. Nor does the writer's thread ever wait, for only it
//! could make room: what callbacks submit goes into the line as it is, and each callback is called once.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, ThreadId};

use keylane::admit::{Gate, OwnedPermit};

use super::change::{Change, Request};

/// In which unit room is counted, for a gate has not so many slots as there are bytes.
const UNIT: usize = 256;

#[derive(Debug)]
pub(super) struct Queue {
    /// Nothing unwinds while it is locked.
    line: Mutex<Line>,
    /// Told when something comes, or the line is closed. Only the writer waits.
    changed: Condvar,
    /// Room for what brings new work.
    gate: Arc<Gate>,
    /// Who takes from the line. Set by the writer itself, before it takes anything.
    writer: OnceLock<ThreadId>,
}

#[derive(Debug, Default)]
struct Line {
    requests: Vec<Request>,
    /// Nothing more comes: the last handle is gone, or the writer is.
    closed: bool,
}

impl Queue {
    pub(super) fn new(most_bytes: usize) -> Self {
        let slots = (most_bytes / UNIT).clamp(1, Gate::MAX_SLOTS);
        Queue {
            line: Mutex::default(),
            changed: Condvar::new(),
            gate: Arc::new(Gate::new(slots).expect("it is between one and what a gate has")),
            writer: OnceLock::new(),
        }
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This thread takes from it.
    pub(super) fn is_mine(&self) {
        self.writer.set(thread::current().id()).expect("there is one writer");
    }

    pub(super) fn is_writer(&self) -> bool {
        self.writer.get() == Some(&thread::current().id())
    }

    /// Waits for room, except on the writer's own thread. None if there will be none, because the
    /// writer has ended; or if none is needed.
    pub(super) fn room(&self, changes: &[Change]) -> Option<OwnedPermit> {
        if self.is_writer() {
            return None;
        }
        let permit = self.gate.acquire_many(self.slots(changes)).ok()?;
        Some(self.gate.own(permit))
    }

    /// As [`room`](Self::room), without keeping a thread.
    pub(super) async fn room_async(&self, changes: &[Change]) -> Option<OwnedPermit> {
        if self.is_writer() {
            return None;
        }
        let permit = self.gate.acquire_many_async(self.slots(changes)).await.ok()?;
        Some(self.gate.own(permit))
    }

    /// What is larger than all the room there is takes all of it.
    fn slots(&self, changes: &[Change]) -> usize {
        let bytes = changes.iter().map(Change::bytes).sum::<usize>();
        bytes.div_ceil(UNIT).clamp(1, self.gate.capacity())
    }

    /// Puts it at the end of the line. It comes back if the line is closed.
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

    /// All that stands in the line: waits for something unless `only_look`. None when it is closed and
    /// empty.
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

    /// How many stand in the line, and how many wait for room.
    pub(super) fn waiting(&self) -> (usize, usize) {
        (self.line().requests.len(), self.gate.waiting())
    }

    /// Nothing more comes. What stands in the line is still to be taken.
    pub(super) fn close(&self) {
        self.line().closed = true;
        self.gate.close();
        self.changed.notify_all();
    }
}
