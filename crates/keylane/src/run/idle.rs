//! Puts workers to sleep when there is nothing to do, and wakes no more of them than there is work.
//!
//! # States of a worker
//! *Busy*: runs tasks. *Searching*: has none and looks at the ready bitmap; counted in `searching`.
//! *Asleep*: listed in `sleepers`, counted in `asleep`, parked until it is taken off the list.
//!
//! # Protocol
//! 1. Offer: set the shard's bit on the ready bitmap; then, if some worker is asleep and none is searching,
//!    wake one. The woken worker counts as searching from that moment, so that a second offer does
//!    not wake a second worker for the same reason.
//! 2. Found: a searching worker that finds a task stops searching, and if the ready bitmap has more to
//!    offer does as in 1: it wakes the next one.
//! 3. Sleep: go on the list, stop searching, read the ready bitmap once more with a read-modify-write; if
//!    anything is offered, go off the list and search; else park.
//!
//! # Why no offer is overlooked
//! Suppose that a bit is set and every worker is asleep for good. The last step before a worker
//! parks is its read of the ready bitmap in 3. It did not see the bit, so the setting of the bit comes
//! after that read, and, both being read-modify-writes of one word, sees all that the worker did
//! before it: the worker on the list and no longer searching. That holds for all workers, so the
//! one who set the bit saw some asleep and none searching, or one that was searching after it; that
//! one either found work, and passed the offer on in 2, or read the ready bitmap in 3, and saw the bit.

use std::sync::Arc;

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, Thread, current, park};

#[derive(Debug)]
pub(crate) struct Idle {
    /// The workers that are asleep. The last to fall asleep is the first to be woken: its caches
    /// are the warmest.
    sleepers: Mutex<Vec<Arc<Sleeper>>>,
    /// `sleepers.len()`, to be read without the lock. Changed under it.
    asleep: CachePadded<AtomicUsize>,
    /// Workers that are searching, and those woken to search that do not run yet.
    searching: CachePadded<AtomicUsize>,
}

#[derive(Debug)]
struct Sleeper {
    /// The worker's number.
    worker: usize,
    /// Who sleeps; unparked once `woken` is set.
    thread: Thread,
    /// Set, once, by who takes the sleeper off the list.
    woken: AtomicBool,
}

impl Idle {
    pub(crate) fn new() -> Self {
        Idle {
            sleepers: Mutex::default(),
            asleep: CachePadded::new(AtomicUsize::new(0)),
            searching: CachePadded::new(AtomicUsize::new(0)),
        }
    }

    /// Step 1, after the ready bitmap was written.
    #[inline]
    pub(crate) fn notify_work(&self) {
        if self.asleep.load(Ordering::Acquire) != 0 && self.searching.load(Ordering::Acquire) == 0 {
            self.wake_one(|_| false);
        }
    }

    /// The same, where some workers are to be woken rather than others.
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
        if let Some(sleeper) = chosen.map(|place| sleepers.remove(place)) {
            self.asleep.fetch_sub(1, Ordering::AcqRel);
            self.searching.fetch_add(1, Ordering::AcqRel);
            drop(sleepers);
            sleeper.wake();
        }
    }

    /// Wakes everybody, to learn that the pool stops or has another size.
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

    /// Step 2. `more` says whether the ready bitmap has more to offer.
    pub(crate) fn stop_searching_and_pass_on(&self, more: impl FnOnce() -> bool) {
        self.searching.fetch_sub(1, Ordering::AcqRel);
        if more() {
            self.notify_work();
        }
    }

    /// A searching worker ends instead.
    pub(crate) fn stop_searching(&self) {
        self.searching.fetch_sub(1, Ordering::AcqRel);
    }

    /// Step 3: a searching worker sleeps until it is woken or `offered` says that it must not. It
    /// is searching again when this returns.
    pub(crate) fn sleep(&self, worker: usize, offered: impl FnOnce() -> bool) {
        let me = Arc::new(Sleeper { worker, thread: current(), woken: AtomicBool::new(false) });
        self.register_sleeper(&me);
        if offered() && self.unregister(&me) {
            return;
        }
        while !me.woken.load(Ordering::Acquire) {
            park();
        }
    }

    fn register_sleeper(&self, me: &Arc<Sleeper>) {
        let mut sleepers = self.sleepers.lock();
        sleepers.push(me.clone());
        self.asleep.fetch_add(1, Ordering::AcqRel);
        self.searching.fetch_sub(1, Ordering::AcqRel);
    }

    /// Takes the caller off the list, unless somebody has woken it already.
    fn unregister(&self, me: &Arc<Sleeper>) -> bool {
        let mut sleepers = self.sleepers.lock();
        let Some(place) = sleepers.iter().position(|other| Arc::ptr_eq(other, me)) else {
            return false;
        };
        sleepers.remove(place);
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

impl Sleeper {
    fn wake(&self) {
        self.woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}
