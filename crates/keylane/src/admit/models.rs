//! Loom models of the semaphore and the admission: every interleaving of acquire, release, cancel
//! and close.
//!
//! Each model lists the mutations that it was seen to catch.

use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Instant;

use super::semaphore::{Semaphore, SemaphoreClosed};
use super::{Admission, TryAcquireError};
use crate::sync::Mutex;
use crate::sync::model::{Plain, block_on, check, spawn, waker};

/// Acquires as `Admission::acquire` does.
fn acquire(gate: &Semaphore, want: usize) -> Result<(), TryAcquireError> {
    match gate.try_acquire(want) {
        Err(TryAcquireError::Full) => match gate.enqueue_thread(want)? {
            None => Ok(()),
            Some(queued) => queued.wait(None),
        },
        result => result,
    }
}

/// Creates a semaphore with `slots` slots, all in use.
fn exhausted(slots: usize) -> Semaphore {
    let gate = Semaphore::new(slots);
    gate.force(slots);
    gate
}

/// Asserts that no caller waits and all of `slots` can be acquired at once.
fn assert_all_free(gate: &Semaphore, slots: usize) {
    assert_eq!(gate.waiting(), 0);
    assert_eq!(gate.in_use(), gate.capacity() - slots);
    assert_eq!(gate.try_acquire(slots), Ok(()), "the line's flag is down again");
}

/// A slot has one holder at a time, and every waiter gets it: none is lost, and no waiter sleeps
/// beside a free slot.
///
/// Caught: `enqueue` without its second check of `before`; `enqueue` that checks before it sets
/// `CONTENDED`; a release that does not grant.
#[test]
fn a_slot_is_passed_on_and_never_lost() {
    check(|| {
        let gate = Arc::new((Semaphore::new(1), Plain::<u32>::default()));
        let takers = [0, 1].map(|_| {
            let gate = gate.clone();
            spawn(move || {
                assert_eq!(acquire(&gate.0, 1), Ok(()));
                gate.1.change(|uses| *uses += 1);
                gate.0.release(1);
            })
        });
        takers.into_iter().for_each(|taker| taker.join().unwrap());
        assert_eq!(gate.1.get(), 2);
        assert_all_free(&gate.0, 1);
    });
}

/// The head of the wait queue gets the next free slot, even if another caller arrives at that
/// moment.
///
/// Caught: `try_acquire` that does not check `CONTENDED`.
#[test]
fn no_newcomer_overtakes_a_waiter() {
    check(|| {
        let gate = Arc::new(exhausted(1));
        let queued = gate.enqueue_thread(1).unwrap().expect("there is no slot");
        let releaser = spawn({
            let gate = gate.clone();
            move || gate.release(1)
        });
        let newcomer = spawn({
            let gate = gate.clone();
            move || assert_eq!(gate.try_acquire(1), Err(TryAcquireError::Full))
        });
        assert_eq!(queued.wait(None), Ok(()));
        releaser.join().unwrap();
        newcomer.join().unwrap();
        gate.release(1);
        assert_all_free(&gate, 1);
    });
}

/// A timeout at the moment of the grant either owns the slot or leaves it to the next waiter.
///
/// Caught: `cancel_or_take` that reports `Full` for a granted waiter.
#[test]
fn cancelling_neither_loses_nor_takes_a_slot() {
    check(|| {
        let gate = Arc::new(exhausted(1));
        let queued = gate.enqueue_thread(1).unwrap().expect("there is no slot");
        let next = spawn({
            let gate = gate.clone();
            move || {
                assert_eq!(acquire(&gate, 1), Ok(()));
                gate.release(1);
            }
        });
        let releaser = spawn({
            let gate = gate.clone();
            move || gate.release(1)
        });
        match queued.wait(Some(Instant::now())) {
            Ok(()) => gate.release(1),
            Err(refused) => assert_eq!(refused, TryAcquireError::Full),
        }
        next.join().unwrap();
        releaser.join().unwrap();
        assert_all_free(&gate, 1);
    });
}

/// A cancelled waiter unblocks later ones that want fewer slots.
///
/// Caught: `cancel_or_take` that does not grant again.
#[test]
fn cancelling_unblocks_smaller_requests() {
    check(|| {
        let gate = Arc::new(exhausted(2));
        let greedy = gate.enqueue_thread(2).unwrap().expect("there are no slots");
        let modest = spawn({
            let gate = gate.clone();
            move || {
                assert_eq!(acquire(&gate, 1), Ok(()));
                gate.release(1);
            }
        });
        let releaser = spawn({
            let gate = gate.clone();
            move || gate.release(1)
        });
        assert_eq!(greedy.wait(Some(Instant::now())), Err(TryAcquireError::Full));
        modest.join().unwrap();
        releaser.join().unwrap();
        assert_all_free(&gate, 1);
    });
}

/// A future that is dropped while it is granted passes the slot to the next waiter.
///
/// Caught: `AcquireFuture::drop` that does not release what it was granted.
#[test]
fn a_dropped_future_gives_back_what_it_was_granted() {
    check(|| {
        let gate = Arc::new(exhausted(1));
        let mut first = Box::pin(gate.acquire_async(1));
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        let next = spawn({
            let gate = gate.clone();
            move || {
                assert_eq!(acquire(&gate, 1), Ok(()));
                gate.release(1);
            }
        });
        let releaser = spawn({
            let gate = gate.clone();
            move || gate.release(1)
        });
        drop(first);
        next.join().unwrap();
        releaser.join().unwrap();
        assert_all_free(&gate, 1);
    });
}

/// A waiting future is woken through the waker of its last poll.
///
/// Caught: `AcquireFuture::poll` that keeps the first waker.
#[test]
fn a_future_is_woken_through_its_last_waker() {
    check(|| {
        let gate = Arc::new(exhausted(1));
        let releaser = spawn({
            let gate = gate.clone();
            move || gate.release(1)
        });
        let mut acquire = pin!(gate.acquire_async(1));
        // Simulates an earlier poll by another task, whose waker must not be used any more.
        let early = acquire.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
        if early.is_pending() {
            assert_eq!(block_on(acquire), Ok(()));
        }
        releaser.join().unwrap();
        gate.release(1);
        assert_all_free(&gate, 1);
    });
}

/// Closing wakes every waiter.
///
/// Caught: `enqueue` that does not check `CLOSED`; `close` that refuses only the head.
#[test]
fn closing_refuses_every_waiter() {
    check(|| {
        let gate = Arc::new(exhausted(1));
        let waiters = [0, 1].map(|_| {
            let gate = gate.clone();
            spawn(move || assert_eq!(acquire(&gate, 1), Err(TryAcquireError::Closed)))
        });
        gate.close();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!((gate.waiting(), gate.in_use()), (0, 1));
        assert_eq!(block_on(gate.acquire_async(1)), Err(SemaphoreClosed));
    });
}

/// A slot released during the close is either acquired or free.
///
/// Caught: `enqueue` that does not check `CLOSED`.
#[test]
fn closing_loses_no_slot() {
    check(|| {
        let gate = Arc::new(exhausted(1));
        let releaser = spawn({
            let gate = gate.clone();
            move || gate.release(1)
        });
        let closer = spawn({
            let gate = gate.clone();
            move || gate.close()
        });
        let had = match acquire(&gate, 1) {
            Ok(()) => 1,
            Err(refused) => {
                assert_eq!(refused, TryAcquireError::Closed);
                0
            }
        };
        releaser.join().unwrap();
        closer.join().unwrap();
        assert_eq!((gate.waiting(), gate.in_use()), (0, had));
        assert_eq!(gate.try_acquire(1), Err(TryAcquireError::Closed));
    });
}

/// A capacity that shrinks and grows while slots are acquired and released ends up unchanged, and a
/// waiter gets the capacity that the growth adds.
///
/// Caught: `set_capacity` that adds slots without granting.
#[test]
fn a_larger_capacity_admits_waiters() {
    check(|| {
        let admission = Arc::new(Admission::new(1, 1));
        assert_eq!(admission.try_acquire(|| 0), Ok(()));
        let waiter = spawn({
            let admission = admission.clone();
            move || assert_eq!(admission.acquire(None, || 0), Ok(()))
        });
        let taker = spawn({
            let admission = admission.clone();
            // Exceeds the capacity, as a submission from inside a task does.
            move || {
                admission.force(1).unwrap();
                admission.release(1);
            }
        });
        admission.set_capacity(2, || 0);
        waiter.join().unwrap();
        taker.join().unwrap();
        assert_eq!(admission.in_use(), 2);
        admission.set_capacity(1, || 0);
        admission.release(2);
        assert_eq!((admission.in_use(), admission.waiting()), (0, 0));
        assert_eq!(admission.try_acquire(|| 0), Ok(()));
        assert_eq!(admission.try_acquire(|| 0), Err(TryAcquireError::Full));
    });
}

/// An admission with the shards whose workers count finished tasks.
struct Shop {
    admission: Admission,
    ended: [Mutex<usize>; 2],
    /// Slots in the cache of the second shard's inbox.
    kept: Mutex<u32>,
}

impl Shop {
    /// Creates an admission with all slots in use.
    fn full(slots: usize) -> Arc<Self> {
        let admission = Admission::new(slots, 1);
        (0..slots).for_each(|_| admission.try_acquire(|| 0).unwrap());
        Arc::new(Shop { admission, ended: [Mutex::new(0), Mutex::new(0)], kept: Mutex::new(0) })
    }

    fn collect(&self) -> usize {
        let ended: usize = self.ended.iter().map(|ended| std::mem::take(&mut *ended.lock())).sum();
        ended + std::mem::take(&mut *self.kept.lock()) as usize
    }

    /// Caches the slots of the second shard's finished tasks, as `Engine::drain_inbox` does.
    fn cache_slots(&self) {
        let mut ended = self.ended[1].lock();
        let mut kept = self.kept.lock();
        if self.admission.can_cache() {
            *kept += std::mem::take(&mut *ended) as u32;
        }
    }

    /// Takes a cached slot, as `Engine::submit_single` does.
    fn take_cached(&self) -> bool {
        let mut kept = self.kept.lock();
        let takes = *kept != 0 && self.admission.can_cache();
        *kept -= u32::from(takes);
        takes
    }

    /// Finishes a task, as `Engine::step` does.
    fn end_one(&self, shard: usize) {
        let mut ended = self.ended[shard].lock();
        *ended += 1;
        let watched = self.admission.has_waiters();
        let freed = if watched { std::mem::take(&mut *ended) } else { 0 };
        drop(ended);
        if freed != 0 {
            self.admission.release(freed);
        }
    }
}

/// Two workers finish a task each while a submitter waits: it gets one slot, and the other is free.
///
/// Caught: `acquire_slow` that collects before it raises `waiter_count`.
#[test]
fn no_submitter_sleeps_beside_an_uncollected_slot() {
    check(|| {
        let shop = Shop::full(2);
        let workers = [0, 1].map(|shard| {
            let shop = shop.clone();
            spawn(move || shop.end_one(shard))
        });
        assert_eq!(shop.admission.acquire(None, || shop.collect()), Ok(()));
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        shop.admission.release(shop.collect());
        assert_eq!((shop.admission.in_use(), shop.admission.waiting()), (1, 0));
    });
}

/// Two workers finish a task each while a future waits, which is not polled again until it is
/// woken.
///
/// Caught: `acquire_async` that does not collect once it is queued; a worker that checks
/// `waiter_count` before it counts.
#[test]
fn no_future_sleeps_beside_an_uncollected_slot() {
    check(|| {
        let shop = Shop::full(1);
        let worker = spawn({
            let shop = shop.clone();
            move || shop.end_one(0)
        });
        assert_eq!(block_on(shop.admission.acquire_async(|| shop.collect())), Ok(()));
        worker.join().unwrap();
        assert_eq!((shop.admission.in_use(), shop.admission.waiting()), (1, 0));
    });
}

/// A caller of `wait_empty` is woken by the last release, whether that is a task counted in its
/// shard or a rollup, which releases its slot itself.
///
/// Caught: `announce_empty` that does not lock `empty_lock`.
#[test]
fn the_last_task_wakes_wait_empty() {
    check(|| {
        let shop = Shop::full(2);
        let worker = spawn({
            let shop = shop.clone();
            move || shop.end_one(0)
        });
        let rollup = spawn({
            let shop = shop.clone();
            move || shop.admission.release(1)
        });
        assert!(shop.admission.wait_empty(None, || shop.collect()));
        worker.join().unwrap();
        rollup.join().unwrap();
        assert_eq!(shop.admission.in_use(), 0);
    });
}

/// A caller of `wait_empty` is woken by a single rollup: no shard lock orders its release with the
/// wait.
///
/// Caught: `wait_empty` that reads the semaphore with a plain load, which may miss the release
/// while the release misses `waiter_count`.
#[test]
fn a_last_rollup_wakes_wait_empty() {
    check(|| {
        let shop = Shop::full(1);
        let rollup = spawn({
            let shop = shop.clone();
            move || shop.admission.release(1)
        });
        assert!(shop.admission.wait_empty(None, || shop.collect()));
        rollup.join().unwrap();
        assert_eq!(shop.admission.in_use(), 0);
    });
}

/// A future that waits until no slot is in use is woken by the last release, although the next task
/// takes a slot at once; it has then seen the end of the task that was accepted before it.
///
/// Caught: `announce_empty` that wakes no future, or counts no moment.
#[test]
fn a_moment_without_tasks_wakes_a_future() {
    check(|| {
        let shop = Shop::full(1);
        let finished = Arc::new(Plain::<bool>::default());
        let mut waits = pin!(shop.admission.wait_empty_async(|| shop.collect()));
        assert!(waits.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        let tasks = spawn({
            let (shop, finished) = (shop.clone(), finished.clone());
            move || {
                finished.change(|finished| *finished = true);
                shop.admission.release(1);
                shop.admission.force(1).unwrap();
            }
        });
        assert!(block_on(waits));
        assert!(finished.get());
        tasks.join().unwrap();
    });
}

/// A release that has found no slot in use ends no wait that began after the next task was accepted.
///
/// Caught: `announce_empty` that does not check under `empty_lock`.
#[test]
fn an_earlier_moment_ends_no_wait() {
    check(|| {
        let shop = Shop::full(1);
        let waker = waker();
        let mut cx = Context::from_waker(&waker);
        let mut earlier = pin!(shop.admission.wait_empty_async(|| shop.collect()));
        assert!(earlier.as_mut().poll(&mut cx).is_pending());
        let task = spawn({
            let shop = shop.clone();
            move || shop.admission.release(1)
        });
        shop.admission.force(1).unwrap();
        let mut waits = pin!(shop.admission.wait_empty_async(|| shop.collect()));
        assert!(waits.as_mut().poll(&mut cx).is_pending());
        task.join().unwrap();
        assert!(waits.as_mut().poll(&mut cx).is_pending(), "the second task is unfinished");
    });
}

/// A waiting future is woken, as a thread is, by the last of two tasks.
///
/// Caught: `announce_empty` that wakes no future.
#[test]
fn the_last_task_wakes_a_future() {
    check(|| {
        let shop = Shop::full(2);
        let worker = spawn({
            let shop = shop.clone();
            move || shop.end_one(0)
        });
        let rollup = spawn({
            let shop = shop.clone();
            move || shop.admission.release(1)
        });
        assert!(block_on(shop.admission.wait_empty_async(|| shop.collect())));
        worker.join().unwrap();
        rollup.join().unwrap();
        assert_eq!(shop.admission.in_use(), 0);
    });
}

/// A waiter gets a slot that is in a cache or on its way there, and a cached slot is taken once.
///
/// Caught: a worker that caches slots without checking for waiters; a submitter that takes a cached
/// slot without that check, and then lets no waiter have it; a collection that skips the caches.
#[test]
fn no_submitter_waits_beside_a_cached_slot() {
    check(|| {
        let shop = Shop::full(1);
        let worker = spawn({
            let shop = shop.clone();
            move || {
                shop.end_one(1);
                shop.cache_slots();
            }
        });
        let producer = spawn({
            let shop = shop.clone();
            move || {
                if shop.take_cached() {
                    shop.end_one(1);
                    shop.cache_slots();
                }
            }
        });
        assert_eq!(shop.admission.acquire(None, || shop.collect()), Ok(()));
        worker.join().unwrap();
        producer.join().unwrap();
        shop.admission.release(shop.collect());
        assert_eq!((shop.admission.in_use(), shop.admission.waiting()), (1, 0));
    });
}

/// A reduced capacity includes the cached slots.
///
/// Caught: `set_capacity` that leaves the caches filled.
#[test]
fn a_smaller_capacity_collects_cached_slots() {
    check(|| {
        let shop = Shop::full(2);
        let worker = spawn({
            let shop = shop.clone();
            move || {
                shop.end_one(1);
                shop.cache_slots();
            }
        });
        shop.admission.set_capacity(1, || shop.collect());
        worker.join().unwrap();
        assert!(!shop.take_cached(), "one is in use, and that is the bound");
    });
}
