//! Queue of further attempts. `attempts.rs` has its protocol, whose steps are named here.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::run::{AttemptEngine, RetryAttempt, SavedPosition};
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// Attempts that wait for their time, for a worker, or for their keys.
#[derive(Debug, Default)]
pub(crate) struct WaitingAttempts {
    /// Length of `ready`. Changed under `queue`; read by workers without it.
    ready: CachePadded<AtomicUsize>,
    /// Locked alone.
    queue: Mutex<AttemptQueue>,
}

/// Attempt that waits, and the place from which it continues.
pub(crate) struct NextAttempt {
    work: Arc<dyn RetryAttempt>,
    /// Position of the work in the order.
    position: SavedPosition,
    /// Shard of the kept turn, and its number in that shard.
    pub(super) turn: Option<(usize, usize)>,
}

impl NextAttempt {
    /// Creates the next attempt of the work that this thread runs.
    pub(super) fn here(work: Arc<dyn RetryAttempt>, turn: Option<(usize, usize)>) -> Self {
        NextAttempt { work, position: SavedPosition::here(), turn }
    }

    pub(crate) fn run(self, engine: &Arc<dyn AttemptEngine>) {
        let NextAttempt { work, position, .. } = self;
        position.scope(|| work.run(engine));
    }

    pub(super) fn give_up(&self) {
        self.work.give_up();
    }

    pub(super) fn is_task(&self) -> bool {
        self.work.is_task()
    }
}

impl fmt::Debug for NextAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextAttempt").field("turn", &self.turn).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct AttemptQueue {
    /// Number of the next attempt.
    next: u64,
    /// Attempts whose time has not come, by number, with their time.
    waiting: BTreeMap<u64, (u64, NextAttempt)>,
    /// Attempts whose time has come, in this order.
    ready: VecDeque<(u64, NextAttempt)>,
    /// Attempts with a paused key, by number.
    paused: BTreeMap<u64, NextAttempt>,
    /// Set once: no attempt begins any more.
    over: bool,
}

impl WaitingAttempts {
    /// Returns whether an attempt waits for a worker.
    #[inline]
    pub(crate) fn is_ready(&self) -> bool {
        // Relaxed: a worker that misses a new attempt reads the count again before it sleeps.
        self.ready.load(Ordering::Relaxed) != 0
    }

    /// Returns whether an attempt waits for a worker, ordered with every change of the count.
    pub(crate) fn is_ready_synced(&self) -> bool {
        self.ready.fetch_add(0, Ordering::AcqRel) != 0
    }

    /// Returns a number for an attempt.
    pub(super) fn number(&self) -> u64 {
        let mut queue = self.queue.lock();
        queue.next += 1;
        queue.next
    }

    /// Step 1. Returns false if the engine has stopped.
    pub(super) fn schedule(&self, number: u64, at: u64, attempt: NextAttempt) -> bool {
        let mut queue = self.queue.lock();
        if !queue.over {
            queue.waiting.insert(number, (at, attempt));
            return true;
        }
        drop(queue);
        // Its drop may drop captures of the user.
        drop(attempt);
        false
    }

    /// Removes an attempt that has not begun. Returns its time, if that has not come.
    pub(super) fn withdraw(&self, number: u64) -> Option<u64> {
        let mut queue = self.queue.lock();
        let waiting = queue.waiting.remove(&number);
        let paused = queue.paused.remove(&number);
        drop(queue);
        drop(paused);
        waiting.map(|(at, _)| at)
    }

    /// Takes the first ready attempt.
    pub(super) fn pop(&self) -> Option<(u64, NextAttempt)> {
        let mut queue = self.queue.lock();
        let first = queue.ready.pop_front()?;
        self.ready.fetch_sub(1, Ordering::AcqRel);
        Some(first)
    }

    /// Step 4. Returns the attempt if the engine has stopped.
    pub(super) fn pause(&self, number: u64, attempt: NextAttempt) -> Option<NextAttempt> {
        let mut queue = self.queue.lock();
        if queue.over {
            return Some(attempt);
        }
        queue.paused.insert(number, attempt);
        None
    }

    /// Takes a paused attempt, unless another thread has.
    pub(super) fn unpause(&self, number: u64) -> Option<NextAttempt> {
        self.queue.lock().paused.remove(&number)
    }

    /// Step 2 for all paused attempts. Returns whether there are any.
    pub(super) fn resume_all(&self) -> bool {
        let mut queue = self.queue.lock();
        let resumed = std::mem::take(&mut queue.paused);
        self.ready.fetch_add(resumed.len(), Ordering::AcqRel);
        let any = !resumed.is_empty();
        queue.ready.extend(resumed);
        any
    }

    /// Step 2. Returns whether the attempt was still there.
    pub(super) fn make_ready(&self, number: u64) -> bool {
        let mut queue = self.queue.lock();
        let Some((_, attempt)) = queue.waiting.remove(&number) else { return false };
        queue.ready.push_back((number, attempt));
        self.ready.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Step 6. Returns the attempts that will not take place.
    pub(super) fn end(&self) -> Vec<NextAttempt> {
        let mut queue = self.queue.lock();
        queue.over = true;
        let waiting = std::mem::take(&mut queue.waiting).into_values().map(|(_, attempt)| attempt);
        let ready = std::mem::take(&mut queue.ready).into_iter().map(|(_, attempt)| attempt);
        let paused = std::mem::take(&mut queue.paused).into_values();
        self.ready.store(0, Ordering::Release);
        waiting.chain(ready).chain(paused).collect()
    }
}
