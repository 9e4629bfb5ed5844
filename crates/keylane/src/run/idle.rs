//! Puts idle workers to sleep and wakes no more of them than there is work, without losing a
//! wake-up.
//!
//! # States of a worker
//! *Busy*: runs tasks. *Searching*: has none and polls the ready bitmap; counted in `searching`.
//! *Asleep*: listed in `sleepers`, counted in `asleep`, parked until it is removed from the list.
//!
//! # Protocol
//! 1. Offer: set the shard's bit in the ready bitmap; then, if some worker is asleep and none is
//!    searching, wake one. The woken worker counts as searching from that moment, so that a second
//!    offer does not wake a second worker for the same reason.
//! 2. Found: a searching worker that finds a task stops searching, and if the ready bitmap has
//!    further bits set, wakes the next worker as in 1.
//! 3. Sleep: join the list, stop searching, and read the ready bitmap once more with a
//!    read-modify-write; if any bit is set, leave the list and search; otherwise park.
//!
//! # Why no offer is overlooked
//! Suppose that a bit is set and every worker is asleep for good. The last step of a worker before
//! it parks is its read of the ready bitmap in 3. That read did not see the bit, so the write of
//! the bit comes after it. Both are read-modify-writes of one word, so the write sees everything
//! that the worker did before: it is on the list and no longer searching. This holds for all
//! workers. The thread that set the bit therefore saw some asleep and none searching, and woke one;
//! or it saw one that was searching after it. That one either found work and passed the offer on in
//! 2, or read the ready bitmap in 3 and saw the bit.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, Thread, current, park};

#[derive(Debug)]
pub(crate) struct IdleWorkers {
    /// Sleeping workers. The last one to fall asleep is woken first, because its caches are the
    /// warmest.
    sleepers: Mutex<Vec<Arc<SleepingWorker>>>,
    /// Length of `sleepers`, to be read without the lock. Changed under it.
    asleep: CachePadded<AtomicUsize>,
    /// Number of workers that search, including woken ones that do not run yet.
    searching: CachePadded<AtomicUsize>,
}

#[derive(Debug)]
struct SleepingWorker {
    /// Number of the worker.
    worker: usize,
    /// Sleeping thread; unparked once `woken` is set.
    thread: Thread,
    /// Set once, by the thread that removes the sleeper from the list.
    woken: AtomicBool,
}

impl IdleWorkers {
    pub(crate) fn new() -> Self {
        IdleWorkers {
            sleepers: Mutex::default(),
            asleep: CachePadded::new(AtomicUsize::new(0)),
            searching: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// Step 1, after a bit of the ready bitmap was set.
    #[inline]
    pub(crate) fn notify_work(&self) {
        if self.asleep.load(Ordering::Acquire) != 0 && self.searching.load(Ordering::Acquire) == 0 {
            self.wake_one(|_| false);
        }
    }

    /// Step 1, waking a preferred worker if one is asleep.
    pub(crate) fn notify_work_to(&self, prefers: impl Fn(usize) -> bool) {
        if self.asleep.load(Ordering::Acquire) != 0 && self.searching.load(Ordering::Acquire) == 0 {
            self.wake_one(prefers);
        }
    }

    #[cold]
    fn wake_one(&self, prefers: impl Fn(usize) -> bool) {
        let mut sleepers = self.sleepers.lock();
        let preferred = sleepers.iter().rposition(|sleeper| prefers(sleeper.worker));
        let chosen = preferred.or_else(|| sleepers.len().checked_sub(1));
        if let Some(sleeper) = chosen.map(|index| sleepers.remove(index)) {
            self.asleep.fetch_sub(1, Ordering::AcqRel);
            self.searching.fetch_add(1, Ordering::AcqRel);
            drop(sleepers);
            sleeper.wake();
        }
    }

    /// Wakes all workers, to make them notice a shutdown or a resize.
    pub(crate) fn wake_all(&self) {
        let mut sleepers = self.sleepers.lock();
        let woken = std::mem::take(&mut *sleepers);
        self.asleep.fetch_sub(woken.len(), Ordering::AcqRel);
        self.searching.fetch_add(woken.len(), Ordering::AcqRel);
        drop(sleepers);
        woken.iter().for_each(|sleeper| sleeper.wake());
    }

    pub(crate) fn start_searching(&self) {
        self.searching.fetch_add(1, Ordering::AcqRel);
    }

    /// Step 2. `more` returns whether the ready bitmap has further bits set.
    pub(crate) fn stop_searching_and_pass_on(&self, more: impl FnOnce() -> bool) {
        self.searching.fetch_sub(1, Ordering::AcqRel);
        if more() {
            self.notify_work();
        }
    }

    /// Ends the search of a worker that terminates.
    pub(crate) fn stop_searching(&self) {
        self.searching.fetch_sub(1, Ordering::AcqRel);
    }

    /// Step 3: puts a searching worker to sleep until it is woken or `offered` returns true. The
    /// worker counts as searching again when this returns.
    pub(crate) fn sleep(&self, worker: usize, offered: impl FnOnce() -> bool) {
        let me =
            Arc::new(SleepingWorker { worker, thread: current(), woken: AtomicBool::new(false) });
        self.register_sleeper(&me);
        if offered() && self.unregister(&me) {
            return;
        }
        while !me.woken.load(Ordering::Acquire) {
            park();
        }
    }

    fn register_sleeper(&self, me: &Arc<SleepingWorker>) {
        let mut sleepers = self.sleepers.lock();
        sleepers.push(me.clone());
        self.asleep.fetch_add(1, Ordering::AcqRel);
        self.searching.fetch_sub(1, Ordering::AcqRel);
    }

    /// Removes the caller from the list. Returns false if it was woken already.
    fn unregister(&self, me: &Arc<SleepingWorker>) -> bool {
        let mut sleepers = self.sleepers.lock();
        let Some(index) = sleepers.iter().position(|other| Arc::ptr_eq(other, me)) else {
            return false;
        };
        sleepers.remove(index);
        self.asleep.fetch_sub(1, Ordering::AcqRel);
        self.searching.fetch_add(1, Ordering::AcqRel);
        true
    }

    pub(crate) fn asleep(&self) -> usize {
        self.asleep.load(Ordering::Acquire)
    }

    #[cfg(all(test, loom))]
    pub(crate) fn searching(&self) -> usize {
        self.searching.load(Ordering::Acquire)
    }
}

impl SleepingWorker {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
