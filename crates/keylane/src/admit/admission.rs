//! Limits accepted and unfinished tasks to the pool's capacity: each of them holds one slot.
//!
//! A worker does not release a slot to the semaphore directly, because producers contend for its
//! wait queue. It counts the finished task in its shard instead, under the shard lock that it
//! already holds. A submitter that needs slots collects the counted ones. While submitters wait,
//! every worker collects after each task.
//!
//! # Why no submitter waits beside a free slot
//! A waiter increments `waiter_count`, then collects, which takes the lock of every shard. A worker
//! counts a finished task, then reads `waiter_count`, both under its shard's lock. If the worker's
//! critical section comes first, the waiter collects the slot that it counted. If it comes second,
//! the worker sees the incremented `waiter_count` and releases the slot itself.
//!
//! # Cached slots
//! While no submitter waits, a worker moves the slots of finished tasks from its shard into a cache
//! in the shard's inbox, and a submitter takes one from there under the inbox's lock. Both check
//! [`can_cache`] first, under that lock.
//!
//! A new waiter first publishes itself (the semaphore is contended, or `waiter_count` is raised),
//! then collects, shard by shard and under their locks: first the slots of finished tasks, then the
//! cached ones. For each shard there are two cases of each kind:
//!
//! - A worker moves slots before the collection takes the lane lock: the slots are in the inbox
//!   when the collection reads it. After that: `can_cache` returns false.
//! - A submitter takes a cached slot before the collection takes the inbox's lock: it arrived
//!   earlier. After that: `can_cache` returns false, and the submitter joins the end of the wait
//!   queue.
//!
//! So no submitter waits beside a cached slot, and none overtakes a waiter: arrival in the wait
//! queue is complete when the collection ends. A reduced capacity follows the same argument; it is
//! in force when `set_capacity` has collected.
//!
//! [`can_cache`]: Admission::can_cache
//!
//! # Why the last release wakes the callers of `wait_empty`
//! A caller of `wait_empty` increments `waiter_count`, then reads the semaphore's state with a
//! read-modify-write. A release adds to that state, then reads `waiter_count`. If the read comes
//! second, it sees the released slots. If the read comes first, the release's addition is ordered
//! after it and sees everything done before it, including the raised `waiter_count`.
//!
//! # Why a caller of `wait_empty` needs no lasting emptiness
//! A release that finds all slots free checks this once more under `empty_lock`, and then counts a
//! moment. A caller returns when the count has risen since it came, even if new tasks were accepted
//! meanwhile. It reads the count under the lock, so the check that raised the count comes later, and
//! sees every slot that was taken before the call: the tasks of these slots have finished.

use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::semaphore::{QueuedAcquire, Semaphore, TryAcquireError};
use crate::sync::{
    AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard, Ordering, Thread, rounds, spin_hint, wait,
    wait_timeout, yield_now,
};
use crate::unwind::call_catch_unwind;

/// Rounds of collecting and spinning before a submitter goes to sleep. Together they take about as
/// long as one sleep and wake-up.
const MAX_SPINS: u32 = 16;
const PAUSES_PER_SPIN: u32 = 64;
/// Further rounds, with a yield in place of the spin.
const MAX_YIELDS: u32 = 8;

/// Sleep between two collections of a waiting submitter, where the capacity is so large that the
/// workers do not run out of tasks meanwhile. The workers are not disturbed, and one collection
/// then finds many slots. Several times the cost of one sleep and wake-up.
const RECHECK_INTERVAL: Duration = Duration::from_micros(100);
/// Smallest capacity at which running all tasks takes longer than [`RECHECK_INTERVAL`].
const RECHECK_MIN_CAPACITY: usize = 16_384;
/// Collections at that interval before a submitter asks the workers to wake it: by then their tasks
/// have proved to be long.
const MAX_RECHECKS: u32 = 16;

/// Maximum of slots in one cache, which is the number of tasks that can pass without an access to
/// the semaphore.
const MAX_CACHED: usize = 512;
/// The caches together hold at most one part in this many of all slots, so that most slots stay in
/// the semaphore, where every submitter finds them. A loom model has few slots and therefore uses
/// fewer parts.
const UNCACHED_PARTS: usize = if cfg!(loom) { 2 } else { 4 };

#[derive(Debug)]
pub(crate) struct Admission {
    /// Slots of the pool. A finished task keeps its slot until it is collected.
    slots: CachePadded<Semaphore>,
    /// Number of callers that wait for a slot or in `wait_empty`. Changed by them; read by every
    /// worker after every task.
    waiter_count: CachePadded<AtomicUsize>,
    /// Number of caches; 0 turns caching off. Never changes.
    caches: usize,
    /// Maximum of slots in each cache. Changes with the capacity.
    cache_limit: AtomicUsize,
    /// Set once, under `empty_lock`, when some accepted tasks will never finish: `wait_empty` then
    /// returns false.
    abandoned: AtomicBool,
    /// Signaled when the last slot in use is released, and when `abandoned` is set.
    empty: Condvar,
    /// Held between the check of the slots and the sleep on `empty`. Locked and unlocked before
    /// `empty` is signaled, so that no signal falls between check and sleep.
    empty_lock: Mutex<EmptyWaits>,
}

/// Callers of `wait_empty` and their event.
#[derive(Debug, Default)]
struct EmptyWaits {
    /// Number of times that all slots were found free while callers waited.
    moments: u64,
    /// Wakers of waiting futures, each with the number of its wait.
    wakers: Vec<(u64, Waker)>,
    /// Number of the next wait.
    next: u64,
}

impl Admission {
    /// Creates an admission with `capacity` free slots and `caches` caches.
    pub(crate) fn new(capacity: usize, caches: usize) -> Self {
        Admission {
            caches,
            cache_limit: AtomicUsize::new(cache_limit(capacity, caches)),
            slots: CachePadded::new(Semaphore::new(capacity)),
            waiter_count: CachePadded::new(AtomicUsize::new(0)),
            abandoned: AtomicBool::new(false),
            empty: Condvar::new(),
            empty_lock: Mutex::default(),
        }
    }

    /// Takes a slot if one is free and no caller waits.
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

    /// Takes between 1 and `want` slots, without waiting.
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

    /// Returns whether slots may be moved into or taken from a cache: the semaphore is open, and no
    /// caller waits for a slot or in `wait_empty`.
    ///
    /// Call it under the lock of the cache. A new waiter publishes itself before it visits the
    /// caches, so the lock orders the two.
    #[inline(always)]
    pub(crate) fn can_cache(&self) -> bool {
        self.slots.is_uncontended() && !self.has_waiters()
    }

    /// Maximum of slots in each cache.
    #[inline]
    pub(crate) fn cache_limit(&self) -> u32 {
        self.cache_limit.load(Ordering::Relaxed) as u32
    }

    /// Takes slots for a cache: at most `cache_limit`, and only a small part of the free ones.
    pub(crate) fn reserve(&self) -> u32 {
        let free = self.slots.free().checked_div(UNCACHED_PARTS * self.caches).unwrap_or(0);
        match self.cache_limit().min(u32::try_from(free).unwrap_or(u32::MAX)) {
            0 => 0,
            want => self.slots.try_acquire_up_to(want as usize).map_or(0, |got| got as u32),
        }
    }

    /// Waits for a slot, in the order of arrival.
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

    /// Spins in the wait queue, collecting slots for its head. Where tasks are short, this soon
    /// frees many slots at once and disturbs no worker.
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
                // The waiter is queued now, so every task that was counted before is collected
                // here, and every later one is released by its worker.
                self.release(collect());
                return acquire.as_mut().poll(cx);
            }
            polled
        })
        .await
        .map_err(TryAcquireError::from)
    }

    /// Takes slots, exceeding the capacity if not enough are free. For tasks submitted from inside a
    /// task.
    pub(crate) fn force(&self, slots: usize) -> Result<(), TryAcquireError> {
        if self.slots.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        self.slots.force(slots);
        Ok(())
    }

    /// Takes a slot even if the pool is closed. For subtasks of a job accepted before the close.
    pub(crate) fn force_accepted(&self) {
        self.slots.force(1);
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.slots.is_closed()
    }

    /// Returns whether callers wait for slots, so that freed slots must be released at once.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.waiter_count.load(Ordering::Acquire) != 0
    }

    /// Returns `slots` slots to the semaphore.
    pub(crate) fn release(&self, slots: usize) {
        self.slots.release(slots);
        self.announce_empty();
    }

    fn announce_empty(&self) {
        if self.waiter_count.load(Ordering::Acquire) != 0 && self.is_empty() {
            let mut waits = self.empty_lock.lock();
            // Otherwise the release of that slot comes here again.
            if self.is_empty() {
                waits.moments += 1;
                self.wake_empty(waits);
            }
        }
    }

    /// Wakes all callers of `wait_empty`.
    fn wake_empty(&self, mut waits: MutexGuard<'_, EmptyWaits>) {
        let wakers = std::mem::take(&mut waits.wakers);
        drop(waits);
        self.empty.notify_all();
        // A waker runs foreign code, whose panic is not the releasing task's.
        wakers.into_iter().for_each(|(_, waker)| call_catch_unwind(|| waker.wake()));
    }

    /// Number of accepted tasks that are unfinished or not collected yet.
    pub(crate) fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    fn is_empty(&self) -> bool {
        self.in_use() == 0
    }

    /// Returns whether no slot is in use, for a caller that has raised `waiter_count`: a release
    /// that this read misses is ordered after it and sees the raised count.
    fn is_empty_synced(&self) -> bool {
        self.slots.in_use_synced() == 0
    }

    /// Closes the admission and ends all calls of `wait_empty`.
    pub(crate) fn abandon(&self) {
        self.slots.close();
        let guard = self.empty_lock.lock();
        self.abandoned.store(true, Ordering::Release);
        self.wake_empty(guard);
    }

    /// Waits until every task that was accepted before the call has finished, at a moment without
    /// any other. Returns false if `deadline` or [`abandon`](Self::abandon) came first.
    pub(crate) fn wait_empty(
        &self,
        deadline: Option<Instant>,
        collect: impl Fn() -> usize,
    ) -> bool {
        let _counted = self.count_waiter();
        let since = self.empty_lock.lock().moments;
        self.release(collect());
        let mut guard = self.empty_lock.lock();
        loop {
            if let Some(is_empty) = self.empty_since(&guard, since) {
                return is_empty;
            }
            guard = match deadline {
                None => wait(&self.empty, guard),
                Some(at) => match at.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => wait_timeout(&self.empty, guard, left),
                    _ => return false,
                },
            };
        }
    }

    /// Waits as [`wait_empty`](Self::wait_empty) does, without blocking the thread.
    pub(crate) async fn wait_empty_async(&self, collect: impl Fn() -> usize) -> bool {
        let _counted = self.count_waiter();
        let wait = self.begin_empty_wait();
        self.release(collect());
        std::future::poll_fn(|cx| wait.poll(cx)).await
    }

    fn begin_empty_wait(&self) -> EmptyWait<'_> {
        let mut waits = self.empty_lock.lock();
        let number = waits.next;
        waits.next += 1;
        EmptyWait { admission: self, since: waits.moments, number }
    }

    /// Returns whether all slots are or were free since `since` moments were counted, or `None`
    /// while some are in use.
    fn empty_since(&self, waits: &EmptyWaits, since: u64) -> Option<bool> {
        if waits.moments != since || self.is_empty_synced() {
            return Some(true);
        }
        self.abandoned.load(Ordering::Acquire).then_some(false)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.capacity()
    }

    /// Changes the capacity. No task is admitted while more slots are in use than the new capacity.
    pub(crate) fn set_capacity(&self, to: usize, collect: impl Fn() -> usize) {
        self.cache_limit.store(cache_limit(to, self.caches), Ordering::Relaxed);
        self.slots.set_capacity(to);
        // Cached slots may exceed the new capacity.
        self.release(collect());
    }

    pub(crate) fn waiting(&self) -> usize {
        self.slots.waiting()
    }

    /// Returns the waiters in queue order: the thread of each, unless it is an async task, and the
    /// number of slots it waits for.
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

/// Future of `wait_empty_async`.
struct EmptyWait<'a> {
    admission: &'a Admission,
    /// Moments that were counted when it began.
    since: u64,
    /// Number of the wait.
    number: u64,
}

impl EmptyWait<'_> {
    fn poll(&self, cx: &mut Context<'_>) -> Poll<bool> {
        // A waker's clone and drop are user code, so neither runs under the lock.
        let waker = cx.waker().clone();
        let mut waits = self.admission.empty_lock.lock();
        if let Some(is_empty) = self.admission.empty_since(&waits, self.since) {
            return Poll::Ready(is_empty);
        }
        let replaced = waits.take_waker(self.number);
        waits.wakers.push((self.number, waker));
        drop(waits);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for EmptyWait<'_> {
    fn drop(&mut self) {
        let waker = self.admission.empty_lock.lock().take_waker(self.number);
        drop(waker);
    }
}

impl EmptyWaits {
    /// Removes the waker of a wait.
    fn take_waker(&mut self, number: u64) -> Option<Waker> {
        let index = self.wakers.iter().position(|(of, _)| *of == number)?;
        Some(self.wakers.swap_remove(index).1)
    }
}

/// Keeps `waiter_count` raised for the duration of a wait, however it ends.
struct WaiterCount<'a>(&'a Admission);

impl Drop for WaiterCount<'_> {
    fn drop(&mut self) {
        // A future dropped after its grant has just released that slot, maybe the last one.
        self.0.announce_empty();
        self.0.waiter_count.fetch_sub(1, Ordering::AcqRel);
    }
}
