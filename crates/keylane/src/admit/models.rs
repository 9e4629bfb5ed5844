//! The gate and the admission in every order of events.
//!
//! Each model names the mistakes that it was seen to catch.

use std::pin::pin;
use std::sync::Arc;
use std::task::Context;
use std::time::Instant;

use super::semaphore::{Closed, Semaphore};
use super::{Admission, TryAcquireError};
use crate::sync::Mutex;
use crate::sync::model::{Plain, block_on, check, spawn, waker};

/// As `Admission::acquire` does.
fn acquire(gate: &Semaphore, want: usize) -> Result<(), TryAcquireError> {
    match gate.try_acquire(want) {
        Err(TryAcquireError::Full) => match gate.enqueue_thread(want)? {
            None => Ok(()),
            Some(queued) => queued.wait(None),
        },
        result => result,
    }
}

/// As many slots, all of them out.
fn exhausted(slots: usize) -> Semaphore {
    let gate = Semaphore::new(slots);
    gate.force(slots);
    gate
}

/// Nobody is in the line, and all of `slots` can be had at once.
fn assert_whole(gate: &Semaphore, slots: usize) {
    assert_eq!(gate.waiting(), 0);
    assert_eq!(gate.in_use(), gate.capacity() - slots);
    assert_eq!(gate.try_acquire(slots), Ok(()), "the line's flag is down again");
}

/// A slot is held by one at a time, and whoever waits for it gets it: none is lost, nobody sleeps
/// beside a free slot.
///
/// Caught: `enqueue` without its second look at `before`; `enqueue` that looks before it sets
/// `CONTENDED`; a release that does not grant.
#[test]
fn a_slot_is_handed_on_and_never_lost() {
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
        assert_whole(&gate.0, 1);
    });
}

/// Who stands in the line gets the next free slot, whoever else comes at that moment.
///
/// Caught: `try_acquire` that does not look at `CONTENDED`.
#[test]
fn nobody_barges() {
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
        assert_whole(&gate, 1);
    });
}

/// A timeout at the moment of the grant either has the slot or leaves it to the next in the line.
///
/// Caught: `cancel_or_take` that reports `Full` though it was granted.
#[test]
fn giving_up_neither_loses_nor_takes_a_slot() {
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
        assert_whole(&gate, 1);
    });
}

/// Who gives up lets those pass that want less than it did.
///
/// Caught: `cancel_or_take` that does not grant again.
#[test]
fn giving_up_lets_the_modest_pass() {
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
        assert_whole(&gate, 1);
    });
}

/// A future that is dropped while it is granted gives the slot to the next in the line.
///
/// Caught: `Acquire::drop` that forgets what it was granted.
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
        assert_whole(&gate, 1);
    });
}

/// A future that waits is woken through the waker of its last poll.
///
/// Caught: `Acquire::poll` that keeps the first waker.
#[test]
fn a_future_is_woken_through_its_last_waker() {
    check(|| {
        let gate = Arc::new(exhausted(1));
        let releaser = spawn({
            let gate = gate.clone();
            move || gate.release(1)
        });
        let mut acquire = pin!(gate.acquire_async(1));
        // As if another task had polled it before: that waker is of no use to us.
        let early = acquire.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
        if early.is_pending() {
            assert_eq!(block_on(acquire), Ok(()));
        }
        releaser.join().unwrap();
        gate.release(1);
        assert_whole(&gate, 1);
    });
}

/// Nobody sleeps on at a closed gate.
///
/// Caught: `enqueue` that does not look at `CLOSED`; `close` that refuses only the first.
#[test]
fn closing_refuses_whoever_waits() {
    check(|| {
        let gate = Arc::new(exhausted(1));
        let waiters = [0, 1].map(|_| {
            let gate = gate.clone();
            spawn(move || assert_eq!(acquire(&gate, 1), Err(TryAcquireError::Closed)))
        });
        gate.close();
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!((gate.waiting(), gate.in_use()), (0, 1));
        assert_eq!(block_on(gate.acquire_async(1)), Err(Closed));
    });
}

/// A slot that comes free as the gate is closed is either had or free.
///
/// Caught: `enqueue` that does not look at `CLOSED`.
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

/// A bound that shrinks and grows while slots are taken and given back ends up as it was, and who
/// waits for room that the growth makes gets it.
///
/// Caught: `set_capacity` that adds slots without a look at the line.
#[test]
fn a_new_bound_admits_whoever_it_has_room_for() {
    check(|| {
        let admission = Arc::new(Admission::new(1, 1));
        assert_eq!(admission.try_acquire(|| 0), Ok(()));
        let waiter = spawn({
            let admission = admission.clone();
            move || assert_eq!(admission.acquire(None, || 0), Ok(()))
        });
        let taker = spawn({
            let admission = admission.clone();
            // Forced beyond the bound, as from inside a task.
            move || {
                admission.force().unwrap();
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

/// An admission, and the shards whose workers count what has ended.
struct Shop {
    admission: Admission,
    ended: [Mutex<usize>; 2],
    /// Slots that the second shard's inbox keeps for tasks to come.
    kept: Mutex<u32>,
}

impl Shop {
    /// All slots are in use.
    fn full(slots: usize) -> Arc<Self> {
        let admission = Admission::new(slots, 1);
        (0..slots).for_each(|_| admission.try_acquire(|| 0).unwrap());
        Arc::new(Shop { admission, ended: [Mutex::new(0), Mutex::new(0)], kept: Mutex::new(0) })
    }

    fn collect(&self) -> usize {
        let ended: usize = self.ended.iter().map(|ended| std::mem::take(&mut *ended.lock())).sum();
        ended + std::mem::take(&mut *self.kept.lock()) as usize
    }

    /// Leaves producers the slots of what has ended in the second shard, as `Engine::drain_inbox` does.
    fn keep(&self) {
        let mut ended = self.ended[1].lock();
        let mut kept = self.kept.lock();
        if self.admission.can_cache() {
            *kept += std::mem::take(&mut *ended) as u32;
        }
    }

    /// Takes a slot that is kept, as `Engine::submit_single` does.
    fn take_kept(&self) -> bool {
        let mut kept = self.kept.lock();
        let takes = *kept != 0 && self.admission.can_cache();
        *kept -= u32::from(takes);
        takes
    }

    /// Ends a task as `Engine::step` does.
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

/// Two workers end a task each while somebody wants to enter: one slot is had, the other is free.
///
/// Caught: `acquire_slow` that collects before it raises `waiter_count`.
#[test]
fn no_submitter_sleeps_beside_a_slot_that_nobody_collected() {
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

/// The same for a future, in whose place nobody looks again until it is woken.
///
/// Caught: `acquire_async` that does not collect once it stands in the line; a worker that looks at
/// `waiter_count` before it counts.
#[test]
fn no_future_sleeps_beside_a_slot_that_nobody_collected() {
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

/// Whoever waits for the pool to be empty is woken by whichever task ends last: one that is counted
/// in its shard, or a rollup, which gives its slot back itself.
///
/// Caught: `announce_empty` that does not pass through `empty_lock`.
#[test]
fn the_last_task_wakes_who_waits_for_it() {
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

/// The same with a rollup alone, so that no lock of a shard puts its release and the wait in order.
///
/// Caught: `wait_empty` that reads the gate with a plain load, which may miss the release while the
/// release misses `waiter_count`.
#[test]
fn a_last_rollup_wakes_who_waits_for_it() {
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

/// Whoever waits gets a slot that an inbox keeps, or one that was on its way there, and whoever takes
/// one that is kept takes it once.
///
/// Caught: a worker that leaves slots to producers without a look at who waits; a producer that
/// takes one without that look, and then lets nobody have it; a collection that forgets what is kept.
#[test]
fn nobody_waits_beside_a_slot_that_is_kept() {
    check(|| {
        let shop = Shop::full(1);
        let worker = spawn({
            let shop = shop.clone();
            move || {
                shop.end_one(1);
                shop.keep();
            }
        });
        let producer = spawn({
            let shop = shop.clone();
            move || {
                if shop.take_kept() {
                    shop.end_one(1);
                    shop.keep();
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

/// A bound that shrinks holds for slots that are kept, too.
///
/// Caught: `set_capacity` that leaves what is kept.
#[test]
fn a_smaller_bound_takes_back_what_is_kept() {
    check(|| {
        let shop = Shop::full(2);
        let worker = spawn({
            let shop = shop.clone();
            move || {
                shop.end_one(1);
                shop.keep();
            }
        });
        shop.admission.set_capacity(1, || shop.collect());
        worker.join().unwrap();
        assert!(!shop.take_kept(), "one is in use, and that is the bound");
    });
}
