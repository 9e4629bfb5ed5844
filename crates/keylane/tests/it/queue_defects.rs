//! One test for each defect of seed 004, a fair bounded queue that is built up in seven stages from
//! monitors. Each opens with what went wrong there.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{LONG, Log, Wakes, eventually, poll, soon};
use keylane::admit::{FairQueue, QueueError};

fn queue<T>(capacity: usize) -> Arc<FairQueue<T>> {
    Arc::new(FairQueue::new(capacity).unwrap())
}

/// `while (size < capacity) wait()`: the first offer to an empty queue blocked forever.
#[test]
fn seed_004_4a_the_guard_is_inverted() {
    soon(|| {
        let queue = queue(2);
        queue.push(1).unwrap();
        queue.push(2).unwrap();
        assert_eq!(queue.try_push(3).unwrap_err().kind(), QueueError::Full);
        assert_eq!((queue.pop(), queue.pop()), (Ok(1), Ok(2)));
        assert_eq!(queue.try_pop(), Err(QueueError::Empty));
    });
}

/// Capacity was checked in one section and taken in another: two offers both passed, and there were
/// two items in a queue of one; two polls of one item ended in a null pointer.
#[test]
fn seed_004_4b_checking_and_taking_are_apart() {
    soon(|| {
        let queue = queue(1);
        let (pushed, popped) = (AtomicUsize::new(0), AtomicUsize::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for i in 0..20_000 {
                        pushed.fetch_add(queue.try_push(i).is_ok().into(), Ordering::Relaxed);
                        assert!(queue.len() <= 1);
                        popped.fetch_add(queue.try_pop().is_ok().into(), Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(pushed.into_inner(), popped.into_inner() + queue.len());
    });
}

/// A released waiter took its capacity in a second step, and a newcomer came in between: the queue
/// held the newcomer before the waiter, two items with a capacity of one.
#[test]
fn seed_004_4c_a_newcomer_barges() {
    let queue = queue(1);
    queue.try_push("first").unwrap();
    let (mut waiter, wakes) = (Box::pin(queue.push_async("waiter")), Wakes::new());
    assert!(poll(waiter.as_mut(), &wakes).is_pending());
    assert_eq!(queue.try_pop(), Ok("first"));
    // The waiter has not run since. Its item is in all the same.
    assert_eq!(queue.try_push("newcomer").unwrap_err().kind(), QueueError::Full);
    assert_eq!(queue.snapshot(), ["waiter"]);
    assert!(matches!(poll(waiter.as_mut(), &wakes), Poll::Ready(Ok(()))));
}

/// An item that was brought for a waiting consumer went to a newcomer.
#[test]
fn seed_004_4c_a_newcomer_takes_what_was_brought_for_a_waiter() {
    let queue = queue(4);
    let (mut waiter, wakes) = (Box::pin(queue.pop_async()), Wakes::new());
    assert!(poll(waiter.as_mut(), &wakes).is_pending());
    queue.try_push(1).unwrap();
    assert_eq!(queue.try_pop(), Err(QueueError::Empty));
    assert_eq!(poll(waiter.as_mut(), &wakes), Poll::Ready(Ok(1)));
}

/// An interrupted waiter released the next one, granted or not: that one found an empty queue, or
/// added to a full one.
#[test]
fn seed_004_4d_a_cancelled_wait_releases_the_next_without_reason() {
    let queue = queue(1);
    let (mut one, mut two) = (Box::pin(queue.pop_async()), Box::pin(queue.pop_async()));
    let wakes = Wakes::new();
    assert!(poll(one.as_mut(), &wakes).is_pending() && poll(two.as_mut(), &wakes).is_pending());
    drop(one);
    assert_eq!(wakes.count(), 0);
    assert!(poll(two.as_mut(), &wakes).is_pending());
    drop(two);

    queue.try_push(0).unwrap();
    let (mut one, mut two) = (Box::pin(queue.push_async(1)), Box::pin(queue.push_async(2)));
    assert!(poll(one.as_mut(), &wakes).is_pending() && poll(two.as_mut(), &wakes).is_pending());
    drop(one);
    assert!(poll(two.as_mut(), &wakes).is_pending());
    assert_eq!((queue.snapshot(), queue.waiting_to_push()), (vec![0], 1));
}

/// But one that had been granted must pass on its grant.
#[test]
fn seed_004_4d_a_cancelled_wait_passes_on_what_it_was_granted() {
    let queue = queue(1);
    let (mut one, mut two) = (Box::pin(queue.pop_async()), Box::pin(queue.pop_async()));
    let wakes = Wakes::new();
    assert!(poll(one.as_mut(), &wakes).is_pending() && poll(two.as_mut(), &wakes).is_pending());
    queue.try_push(7).unwrap();
    drop(one);
    assert_eq!(poll(two.as_mut(), &wakes), Poll::Ready(Ok(7)));
}

/// A waiter that timed out released the next, which had five seconds left and failed at once.
#[test]
fn seed_004_4e_a_timeout_ends_the_wait_of_the_next() {
    soon(|| {
        let queue = queue::<u32>(1);
        let patient = thread::spawn({
            let queue = queue.clone();
            move || queue.pop_timeout(LONG)
        });
        eventually(|| queue.waiting_to_pop() == 1);
        let (mut first, wakes) = (Box::pin(queue.pop_async()), Wakes::new());
        assert!(poll(first.as_mut(), &wakes).is_pending());
        assert_eq!(queue.pop_timeout(Duration::ZERO), Err(QueueError::TimedOut));
        drop(first);
        assert_eq!(queue.waiting_to_pop(), 1);
        queue.push(9).unwrap();
        assert_eq!(patient.join().unwrap(), Ok(9));
    });
}

/// The waiter slept before it looked whether it had been released: one that was released first
/// slept through its whole time, and forever without one.
#[test]
fn seed_004_4f_a_wake_up_before_the_wait_is_lost() {
    soon(|| {
        // Nothing keeps a push from coming between a pop's standing in the line and its sleep.
        let (there, back) = (queue(1), queue(1));
        thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    back.push(there.pop().unwrap()).unwrap();
                }
            });
            for i in 0..20_000 {
                there.push(i).unwrap();
                assert_eq!(back.pop(), Ok(i));
            }
        });
        // The time may be 0, or as long as there is, and nothing throws.
        assert_eq!(there.pop_timeout(Duration::ZERO), Err(QueueError::TimedOut));
        there.push(1).unwrap();
        assert_eq!(there.pop_timeout(Duration::MAX), Ok(1));
    });
}

/// Each wake-up subtracted the whole time since the start from the remaining time, so that a wait
/// that was disturbed often ended early; and the clock was the one on the wall.
#[test]
fn seed_004_4g_waits_that_are_disturbed_end_early() {
    soon(|| {
        let queue = queue::<u32>(1);
        let timeout = Duration::from_millis(200);
        let waiter = thread::spawn({
            let queue = queue.clone();
            move || {
                let begin = Instant::now();
                (queue.pop_timeout(timeout), begin.elapsed())
            }
        });
        while !waiter.is_finished() {
            waiter.thread().unpark();
            thread::yield_now();
        }
        let (popped, took) = waiter.join().unwrap();
        assert_eq!(popped, Err(QueueError::TimedOut));
        assert!(took >= timeout, "it ended after {took:?}");
    });
}

/// A waiter that gave up behind a live head stayed in the list, and a hundred thousand of them with
/// it.
#[test]
fn seed_004_4h_those_who_gave_up_stay_in_the_line() {
    soon(|| {
        let queue = queue(1);
        queue.try_push(Arc::new(0)).unwrap();
        let live = Arc::new(1);
        let (mut head, wakes) = (Box::pin(queue.push_async(Arc::new(2))), Wakes::new());
        assert!(poll(head.as_mut(), &wakes).is_pending());
        for _ in 0..100_000 {
            let error = queue.push_timeout(live.clone(), Duration::ZERO).unwrap_err();
            assert_eq!(error.kind(), QueueError::TimedOut);
        }
        assert_eq!((queue.waiting_to_push(), Arc::strong_count(&live)), (1, 1));
        // Many at a time, from the middle, the end and the front.
        let mut crowd: Vec<_> =
            (0..1000).map(|_| Box::pin(queue.push_async(live.clone()))).collect();
        crowd.iter_mut().for_each(|push| assert!(poll(push.as_mut(), &wakes).is_pending()));
        crowd.drain(300..700);
        crowd.drain(500..);
        crowd.drain(..100);
        assert_eq!(queue.waiting_to_push(), 1 + 400);
        drop(crowd);
        assert_eq!((queue.waiting_to_push(), Arc::strong_count(&live)), (1, 1));
    });
}

/// The granted waiter allocated its node afterwards; if that failed, the capacity was lost for
/// good. Here the item is in the wait queue before the grant, and moved under the lock, where no
/// user code runs: so a grant cannot fail half-way, even for a waiter whose waker panics.
#[test]
fn seed_004_4i_a_failure_after_the_grant_loses_the_room() {
    struct Fails;
    impl std::task::Wake for Fails {
        fn wake(self: Arc<Self>) {
            panic!("this waker fails");
        }
    }
    let queue = queue(1);
    queue.try_push(1).unwrap();
    let mut push = Box::pin(queue.push_async(2));
    let waker = std::task::Waker::from(Arc::new(Fails));
    assert!(push.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    assert_eq!(queue.try_pop(), Ok(1), "the panic of another's waker ends with the call");
    assert_eq!(queue.snapshot(), [2]);
    assert!(poll(push.as_mut(), &Wakes::new()).is_ready());
    assert_eq!(queue.try_pop(), Ok(2));
    queue.try_push(3).unwrap();
}

/// A popped item's slot kept a value instead of nothing.
#[test]
fn seed_004_4j_a_popped_item_stays_reachable() {
    let queue = queue(4);
    let item = Arc::new(());
    (0..4).for_each(|_| queue.try_push(item.clone()).unwrap());
    (0..4).for_each(|_| drop(queue.try_pop().unwrap()));
    assert_eq!(Arc::strong_count(&item), 1);
}

/// The counts of waiters were not corrected when a wait was interrupted.
#[test]
fn seed_004_4k_counts_stay_wrong_after_a_cancelled_wait() {
    let (queue, wakes) = (queue(1), Wakes::new());
    for round in 0..3 {
        let mut pops = [0, 1].map(|_| Box::pin(queue.pop_async()));
        pops.iter_mut().for_each(|pop| assert!(poll(pop.as_mut(), &wakes).is_pending()));
        assert_eq!(queue.waiting_to_pop(), 2);
        drop(pops);
        assert_eq!(queue.waiting_to_pop(), 0);
        assert_eq!(queue.pop_timeout(Duration::ZERO), Err(QueueError::TimedOut));
        assert_eq!(queue.waiting_to_pop(), 0);
        queue.try_push(round).unwrap();
        assert_eq!(queue.push_timeout(9, Duration::ZERO).unwrap_err().into_inner(), 9);
        assert_eq!((queue.waiting_to_push(), queue.pop()), (0, Ok(round)));
    }
}

/// Every change woke all waiters, to compete for one item.
#[test]
fn seed_004_4l_a_herd_is_woken_for_one_item() {
    let queue = queue(8);
    let mut crowd: Vec<_> = (0..8).map(|_| (Box::pin(queue.pop_async()), Wakes::new())).collect();
    for (pop, wakes) in &mut crowd {
        assert!(poll(pop.as_mut(), wakes).is_pending());
    }
    let served = Log::new();
    for i in 0..8 {
        queue.try_push(i).unwrap();
        let woken: Vec<usize> = crowd.iter().map(|(_, wakes)| wakes.count()).collect();
        assert_eq!(woken.iter().sum::<usize>(), i + 1, "one more");
        assert_eq!(woken[i], 1, "the one who has waited longest");
        let (pop, wakes) = &mut crowd[i];
        served.push(poll(pop.as_mut(), wakes));
    }
    assert_eq!(served.take(), (0..8).map(|i| Poll::Ready(Ok(i))).collect::<Vec<_>>());
}
