//! The pool's own gate: a slot for each accepted and unfinished task.
//!
//! A worker does not give a slot back at the gate itself, whose line the producers hold, but counts
//! the task as ended in its shard, under the lock that it holds anyway. Whoever needs slots collects
//! what has ended; so does every worker, after each task, while somebody waits.
//!
//! # Why nobody waits beside a free slot
//! A waiter raises `waiter_count`, then collects, which takes the lock of every shard. A worker counts
//! a task as ended, then reads `waiter_count`, both under its shard's lock. Either its section comes
//! first, and the waiter collects what it counted, or it comes second, sees `waiter_count` raised and
//! gives back what it counted itself.
//!
//! # Slots that are kept for tasks to come
//! Where nobody waits, a worker moves the slots of what has ended from its shard into the shard's
//! inbox, and a submitter takes one from there, under the inbox's lock. Both ask [`can_cache`] first,
//! under that lock.
//!
//! Who waits first says so (the line of the slots is contended, or `waiter_count` is raised), then
//! collects: what has ended, then what is kept, shard by shard, under their locks. Take a shard. If a
//! worker's move comes before the collection has the lanes' lock, what it moved is in the inbox when the
//! collection comes to that; if it comes later, `can_cache` says no. If a submitter takes a kept slot
//! before the collection has the inbox's lock, it came first; later, `can_cache` says no, and it goes to
//! the end of the line. So nobody waits beside a kept slot, and nobody barges: arriving in the line ends
//! with the collection. The same holds for a smaller bound, which is in force when `set_capacity` has
//! collected.
//!
//! [`can_cache`]: Admission::can_cache
//!
//! # Why the last one wakes who waits for the pool to be empty
//! Who waits raises `waiter_count`, then reads the slots' state with a read-modify-write; who gives slots
//! back adds to that state, then reads `waiter_count`. If the read comes second it sees the slots. If it
//! comes first the adding sees all that was done before it: `waiter_count` raised.

use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::semaphore::{QueuedAcquire, Semaphore, TryAcquireError};
use crate::sync::{
    AtomicBool, AtomicUsize, Condvar, Mutex, Ordering, Thread, rounds, spin_hint, wait,
    wait_timeout, yield_now,
};

/// Looks for freed slots before a submitter goes to sleep, with a pause after each: about as long
/// as falling asleep and being woken would take.
const MAX_SPINS: u32 = 16;
const PAUSES_PER_SPIN: u32 = 64;
/// And so many more, giving the processor to others in between.
const MAX_YIELDS: u32 = 8;

/// How long a submitter sleeps before it looks for freed slots once more, where the pool is so large
/// that the workers do not run out of tasks meanwhile: they are left alone, and there are many slots
/// to collect then. It is about as long as falling asleep and being woken takes several times over.
const RECHECK_INTERVAL: Duration = Duration::from_micros(100);
/// So many tasks take longer than that.
const RECHECK_MIN_CAPACITY: usize = 16_384;
/// How often it does so before it asks the workers to wake it: their tasks are not short.
const MAX_RECHECKS: u32 = 16;

/// The most slots that one place keeps for tasks to come: so many tasks pass without a look at the
/// gate.
const MAX_CACHED: usize = 512;
/// No more than one part in so many of all slots is kept, so that most are where all find them, also
/// while some are on their way to be kept. In a model there are few.
const UNCACHED_PARTS: usize = if cfg!(loom) { 2 } else { 4 };

#[derive(Debug)]
pub(crate) struct Admission {
    /// The slots. What has ended and is not collected yet still holds its own.
    slots: CachePadded<Semaphore>,
    /// How many wait for a slot, or for the pool to be empty. Raised and lowered by them, read by
    /// every worker after every task.
    waiter_count: CachePadded<AtomicUsize>,
    /// How many places keep slots for tasks to come; none do if it is 0. Never changed.
    caches: usize,
    /// How many slots each of them keeps at the most. Changed with the bound.
    cache_limit: AtomicUsize,
    /// What was accepted will not all end: no call waits for that. Set once, under `empty_lock`.
    abandoned: AtomicBool,
    /// Signaled when the last slot in use comes back, and when `abandoned` is set.
    empty: Condvar,
    /// Held from the look at the slots to the sleep on `empty`, and passed through before that is
    /// signaled, so that no signal falls in between.
    empty_lock: Mutex<()>,
}

impl Admission {
    /// `caches` is how many places will keep slots for tasks to come, if any.
    pub(crate) fn new(capacity: usize, caches: usize) -> Self {
        Admission {
            caches,
            cache_limit: AtomicUsize::new(cache_limit(capacity, caches)),
            slots: CachePadded::new(Semaphore::new(capacity)),
            waiter_count: CachePadded::new(AtomicUsize::new(0)),
            abandoned: AtomicBool::new(false),
            empty: Condvar::new(),
            empty_lock: Mutex::new(()),
        }
    }

    /// Takes a slot if one is free and nobody waits.
    #[inline]
    pub(crate) fn try_acquire(&self, collect: impl Fn() -> usize) -> Result<(), TryAcquireError> {
        match self.slots.try_acquire(1) {
            Err(TryAcquireError::Full) => {
                self.release(collect());
                self.slots.try_acquire(1)
            }
            result => result,
        }
    }

    /// Takes up to `want` slots, at least one, without waiting.
    pub(crate) fn try_acquire_up_to(
        &self,
        want: usize,
        collect: impl Fn() -> usize,
    ) -> Result<usize, TryAcquireError> {
        match self.slots.try_acquire_up_to(want) {
            Err(TryAcquireError::Full) => {
                self.release(collect());
                self.slots.try_acquire_up_to(want)
            }
            result => result,
        }
    }

    /// Whether slots may be kept for tasks to come, or those that are kept be used: nobody waits for
    /// one, or for the pool to be empty, and it is open.
    ///
    /// To be asked under the lock of the place that keeps them; whoever begins to wait says so first,
    /// and then goes through all places.
    #[inline(always)]
    pub(crate) fn can_cache(&self) -> bool {
        self.slots.is_uncontended() && !self.has_waiters()
    }

    /// How many slots a place keeps at the most: few enough for the others to have most of them.
    #[inline]
    pub(crate) fn cache_limit(&self) -> u32 {
        self.cache_limit.load(Ordering::Relaxed) as u32
    }

    /// Takes slots to be kept, if many are free.
    pub(crate) fn reserve(&self) -> u32 {
        let free = self.slots.free().checked_div(UNCACHED_PARTS * self.caches).unwrap_or(0);
        match self.cache_limit().min(u32::try_from(free).unwrap_or(u32::MAX)) {
            0 => 0,
            want => self.slots.try_acquire_up_to(want as usize).map_or(0, |got| got as u32),
        }
    }

    /// Waits for a slot, first come, first served.
    #[inline]
    pub(crate) fn acquire(
        &self,
        deadline: Option<Instant>,
        collect: impl Fn() -> usize,
    ) -> Result<(), TryAcquireError> {
        match self.slots.try_acquire(1) {
            Err(TryAcquireError::Full) => self.acquire_slow(deadline, collect),
            result => result,
        }
    }

    #[cold]
    fn acquire_slow(
        &self,
        deadline: Option<Instant>,
        collect: impl Fn() -> usize,
    ) -> Result<(), TryAcquireError> {
        match self.try_acquire(&collect) {
            Err(TryAcquireError::Full) => {}
            result => return result,
        }
        let Some(queued) = self.slots.enqueue_thread(1)? else { return Ok(()) };
        match self.collect_while_queued(queued, &collect) {
            Ok(result) => result,
            Err(queued) => {
                let _counted = self.count_waiter();
                self.release(collect());
                queued.wait(deadline)
            }
        }
    }

    /// Waits a moment at the place in the line, collecting for whoever is at its head. Where tasks
    /// are short that soon frees many slots at once, and disturbs no worker.
    fn collect_while_queued<'a>(
        &self,
        mut queued: QueuedAcquire<'a>,
        collect: impl Fn() -> usize,
    ) -> Result<Result<(), TryAcquireError>, QueuedAcquire<'a>> {
        let rechecks = self.capacity() >= RECHECK_MIN_CAPACITY;
        for round in 0..rounds(if rechecks { MAX_RECHECKS } else { MAX_SPINS + MAX_YIELDS }) {
            self.release(collect());
            queued = match queued.try_finish() {
                Ok(result) => return Ok(result.map_err(TryAcquireError::from)),
                Err(queued) => queued,
            };
            if rechecks {
                queued.park_timeout(RECHECK_INTERVAL);
            } else if round < MAX_SPINS {
                (0..PAUSES_PER_SPIN).for_each(|_| spin_hint());
            } else {
                yield_now();
            }
        }
        Err(queued)
    }

    pub(crate) async fn acquire_async(
        &self,
        collect: impl Fn() -> usize,
    ) -> Result<(), TryAcquireError> {
        match self.try_acquire(&collect) {
            Err(TryAcquireError::Full) => {}
            result => return result,
        }
        let _counted = self.count_waiter();
        let mut acquire = std::pin::pin!(self.slots.acquire_async(1));
        std::future::poll_fn(|cx| {
            let first = !acquire.is_queued();
            let polled = acquire.as_mut().poll(cx);
            if polled.is_pending() && first {
                // We stand in the line now, and whatever is done from here on is ours to see.
                self.release(collect());
                return acquire.as_mut().poll(cx);
            }
            polled
        })
        .await
        .map_err(TryAcquireError::from)
    }

    /// Takes a slot even beyond the bound, for a task that a task submits.
    pub(crate) fn force(&self) -> Result<(), TryAcquireError> {
        if self.slots.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        self.slots.force(1);
        Ok(())
    }

    /// The same for a subtask of a job that was accepted before the pool was closed.
    pub(crate) fn force_accepted(&self) {
        self.slots.force(1);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.slots.is_closed()
    }

    /// Whether somebody waits for slots, so that they are to be given back at once.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiter_count.load(Ordering::Acquire) != 0
    }

    /// Frees slots.
    pub(crate) fn release(&self, slots: usize) {
        self.slots.release(slots);
        self.announce_empty();
    }

    fn announce_empty(&self) {
        if self.waiter_count.load(Ordering::Acquire) != 0 && self.is_empty() {
            drop(self.empty_lock.lock());
            self.empty.notify_all();
        }
    }

    /// Accepted and unfinished tasks, as far as they have been collected.
    pub(crate) fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    fn is_empty(&self) -> bool {
        self.in_use() == 0
    }

    /// For who has raised `waiter_count`: if the last release is not seen here, it sees them.
    fn is_empty_synced(&self) -> bool {
        self.slots.in_use_synced() == 0
    }

    /// Closes, and ends all waits for the pool to be empty.
    pub(crate) fn abandon(&self) {
        self.slots.close();
        let guard = self.empty_lock.lock();
        self.abandoned.store(true, Ordering::Release);
        drop(guard);
        self.empty.notify_all();
    }

    /// Waits until every accepted task has ended, and says whether that came before `deadline`, and
    /// before [`abandon`](Self::abandon).
    pub(crate) fn wait_empty(
        &self,
        deadline: Option<Instant>,
        collect: impl Fn() -> usize,
    ) -> bool {
        let _counted = self.count_waiter();
        self.release(collect());
        let mut guard = self.empty_lock.lock();
        while !self.is_empty_synced() {
            if self.abandoned.load(Ordering::Acquire) {
                return false;
            }
            guard = match deadline {
                None => wait(&self.empty, guard),
                Some(at) => match at.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => wait_timeout(&self.empty, guard, left),
                    _ => return false,
                },
            };
        }
        true
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Changes the bound. Below what is in use it admits nobody until enough has ended.
    pub(crate) fn set_capacity(&self, to: usize, collect: impl Fn() -> usize) {
        self.cache_limit.store(cache_limit(to, self.caches), Ordering::Relaxed);
        self.slots.set_capacity(to);
        // What is kept may be beyond the bound now.
        self.release(collect());
    }

    pub(crate) fn waiting(&self) -> usize {
        self.slots.waiting()
    }

    /// Those who wait, in their order: the thread, if it is one, and what it wants.
    pub(crate) fn waiters(&self) -> Vec<(Option<Thread>, usize)> {
        self.slots.waiters()
    }

    pub(crate) fn close(&self) {
        self.slots.close();
    }

    fn count_waiter(&self) -> WaiterCount<'_> {
        self.waiter_count.fetch_add(1, Ordering::AcqRel);
        WaiterCount(self)
    }
}

fn cache_limit(capacity: usize, caches: usize) -> usize {
    capacity.checked_div(UNCACHED_PARTS * caches).map_or(0, |part| part.min(MAX_CACHED))
}

/// Keeps `waiter_count` raised for as long as somebody waits, however the wait ends.
struct WaiterCount<'a>(&'a Admission);

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        // A future that was dropped with a slot in its hand has just given that back.
        self.0.announce_empty();
        self.0.waiter_count.fetch_sub(1, Ordering::AcqRel);
    }
}
