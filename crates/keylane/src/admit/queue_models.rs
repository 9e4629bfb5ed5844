//! Loom models of the fair queue: every interleaving of push, pop, cancel, close, resize and
//! transfer.
//!
//! Some models list mutations that they were seen to catch.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use super::{FairQueue, QueueError};
use crate::sync::model::{block_on, check, spawn, waker};

fn queue(capacity: usize) -> Arc<FairQueue<u32>> {
    Arc::new(FairQueue::new(capacity).expect("the capacity is not 0"))
}

/// Asserts that no caller waits, the queue is empty, and all of the capacity is free.
fn assert_empty(queue: &FairQueue<u32>, capacity: usize) {
    assert_eq!((queue.waiting_to_push(), queue.waiting_to_pop()), (0, 0));
    assert_eq!((queue.len(), queue.capacity()), (0, capacity));
    (0..capacity).for_each(|_| queue.try_push(0).expect("the queue is not full"));
    assert!(queue.try_push(0).is_err());
}

/// Two pushes into a queue of capacity 1, and a consumer: every item arrives, and no caller sleeps
/// forever.
#[test]
fn a_waiting_push_is_placed() {
    check(|| {
        let queue = queue(1);
        let producer = spawn({
            let queue = queue.clone();
            move || (1..=3).for_each(|i| queue.push(i).unwrap())
        });
        assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Ok(1), Ok(2), Ok(3)]);
        producer.join().unwrap();
        assert_empty(&queue, 1);
    });
}

/// A pop that takes its item with the front's lock alone still places a waiting push: no later call
/// could.
///
/// Caught: `enqueue_push` that leaves `pushers_wait` unset; `QueueFront::pop` that does not check it; a
/// parker that is notified in two steps.
#[test]
fn a_pop_with_one_lock_misses_no_waiting_push() {
    check(|| {
        let queue = queue(2);
        queue.push_many([0, 1]).unwrap();
        // This pop swaps the parts and leaves an item in the front.
        assert_eq!(queue.pop(), Ok(0));
        queue.push(2).unwrap();
        let producer = spawn({
            let queue = queue.clone();
            move || queue.push(3).unwrap()
        });
        assert_eq!(queue.pop(), Ok(1));
        producer.join().unwrap();
        assert_eq!(queue.drain(..), [2, 3]);
        assert_empty(&queue, 2);
    });
}

/// Two producers and two consumers on a queue of capacity 1: every pushed item is popped once.
#[test]
fn nothing_is_lost_or_doubled() {
    check(|| {
        let queue = queue(1);
        let producer = spawn({
            let queue = queue.clone();
            move || queue.push(1).unwrap()
        });
        let consumer = spawn({
            let queue = queue.clone();
            move || queue.pop().unwrap()
        });
        queue.push(2).unwrap();
        let own = queue.pop().unwrap();
        producer.join().unwrap();
        assert_eq!(own + consumer.join().unwrap(), 3);
        assert_empty(&queue, 1);
    });
}

/// A waiting caller is served before a newcomer, and its capacity is taken at that moment.
#[test]
fn no_newcomer_overtakes_a_waiter() {
    check(|| {
        let queue = queue(1);
        queue.push(0).unwrap();
        let mut waiter = Box::pin(queue.push_async(1));
        assert!(waiter.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        let newcomer = spawn({
            let queue = queue.clone();
            move || assert_eq!(queue.try_push(2).unwrap_err().kind(), QueueError::Full)
        });
        assert_eq!(queue.pop(), Ok(0));
        newcomer.join().unwrap();
        assert_eq!(queue.pop(), Ok(1));
        block_on(waiter).unwrap();
        assert_empty(&queue, 1);
    });
}

/// A timeout at the moment of the hand-off either owns the item or leaves it in the queue.
#[test]
fn cancelling_neither_loses_nor_takes_an_item() {
    check(|| {
        let queue = queue(1);
        let producer = spawn({
            let queue = queue.clone();
            move || queue.push(1).unwrap()
        });
        let popped = queue.pop_timeout(Duration::ZERO);
        producer.join().unwrap();
        match popped {
            Ok(item) => assert_eq!(item, 1),
            Err(why) => {
                assert_eq!(why, QueueError::TimedOut);
                assert_eq!(queue.try_pop(), Ok(1));
            }
        }
        assert_empty(&queue, 1);
    });
}

/// A timeout of a push at the moment of the grant: the item is in the queue or in the error, not
/// both.
///
/// Caught: `leave` that reports a timeout for a granted push.
#[test]
fn cancelling_neither_loses_nor_duplicates_an_item() {
    check(|| {
        let queue = queue(1);
        queue.push(1).unwrap();
        let consumer = spawn({
            let queue = queue.clone();
            move || assert_eq!(queue.pop(), Ok(1))
        });
        let pushed = queue.push_timeout(2, Duration::ZERO);
        consumer.join().unwrap();
        match pushed {
            Ok(()) => assert_eq!(queue.try_pop(), Ok(2)),
            Err(error) => assert_eq!(error.into_inner(), 2),
        }
        assert_empty(&queue, 1);
    });
}

/// A pop that is dropped with an assigned item passes it to the next pop.
///
/// Caught: `cancel_pop` that drops the item; a parker that is notified in two steps.
#[test]
fn a_dropped_pop_passes_its_item_on() {
    check(|| {
        let queue = queue(1);
        let mut first = Box::pin(queue.pop_async());
        assert!(first.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        let next = spawn({
            let queue = queue.clone();
            move || assert_eq!(queue.pop(), Ok(1))
        });
        let producer = spawn({
            let queue = queue.clone();
            move || queue.push(1).unwrap()
        });
        drop(first);
        next.join().unwrap();
        producer.join().unwrap();
        assert_empty(&queue, 1);
    });
}

/// A push that is dropped as capacity becomes free is in the queue as a whole or not at all, and
/// leaves unused capacity to others.
#[test]
fn a_dropped_push_frees_its_capacity() {
    check(|| {
        let queue = queue(1);
        queue.push(1).unwrap();
        let mut dropped = Box::pin(queue.push_async(2));
        assert!(dropped.as_mut().poll(&mut Context::from_waker(&waker())).is_pending());
        let consumer = spawn({
            let queue = queue.clone();
            move || assert_eq!(queue.pop(), Ok(1))
        });
        drop(dropped);
        consumer.join().unwrap();
        if queue.len() == 1 {
            assert_eq!(queue.pop(), Ok(2));
        }
        assert_empty(&queue, 1);
    });
}

/// A waiting future is woken through the waker of its last poll.
#[test]
fn a_pop_is_woken_through_its_last_waker() {
    check(|| {
        let queue = queue(1);
        let producer = spawn({
            let queue = queue.clone();
            move || queue.push(1).unwrap()
        });
        let mut pop = Box::pin(queue.pop_async());
        let early = pop.as_mut().poll(&mut Context::from_waker(std::task::Waker::noop()));
        if early.is_pending() {
            assert_eq!(block_on(pop), Ok(1));
        }
        producer.join().unwrap();
        assert_empty(&queue, 1);
    });
}

/// Closing wakes every waiter, and items pushed before the close can be popped.
#[test]
fn closing_ends_every_wait_and_loses_nothing() {
    check(|| {
        let queue = queue(1);
        let consumer = spawn({
            let queue = queue.clone();
            move || std::iter::from_fn(|| queue.pop().ok()).sum::<u32>()
        });
        let producer = spawn({
            let queue = queue.clone();
            move || (1..=2).map(|i| if queue.push(i).is_ok() { i } else { 0 }).sum::<u32>()
        });
        queue.close();
        let pushed = producer.join().unwrap();
        assert_eq!(consumer.join().unwrap(), pushed);
        assert_eq!(queue.pop(), Err(QueueError::Closed));
    });
}

/// A push that waits when the queue is closed gets its item back, since no later call frees
/// capacity.
///
/// Caught: `close` that refuses only the waiting pops.
#[test]
fn closing_ends_the_wait_of_a_push() {
    check(|| {
        let queue = queue(1);
        queue.push(1).unwrap();
        let producer = spawn({
            let queue = queue.clone();
            move || queue.push(2).unwrap_err().into_inner()
        });
        queue.close();
        assert_eq!(producer.join().unwrap(), 2);
        assert_eq!((queue.pop(), queue.pop()), (Ok(1), Err(QueueError::Closed)));
    });
}

/// A larger capacity admits waiting pushes, though no call pops.
///
/// Caught: `resize` that does not call `restore_invariants`.
#[test]
fn growing_admits_waiting_pushes() {
    check(|| {
        let queue = queue(1);
        queue.push(1).unwrap();
        let producers = [2, 3].map(|i| {
            let queue = queue.clone();
            spawn(move || queue.push(i).unwrap())
        });
        queue.resize(3).unwrap();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        assert_eq!(queue.pop(), Ok(1));
        assert_eq!(queue.pop().unwrap() + queue.pop().unwrap(), 5);
        assert_empty(&queue, 3);
    });
}

/// Two queues transfer to each other: no deadlock, and no item is lost.
///
/// Caught: `lock_both` that locks in the order of its arguments.
#[test]
fn two_transfers_pass_each_other() {
    check(|| {
        let (one, other) = (queue(2), queue(2));
        one.push(1).unwrap();
        other.push(2).unwrap();
        let there = spawn({
            let (one, other) = (one.clone(), other.clone());
            move || one.transfer_all(&other).unwrap()
        });
        other.transfer_all(&one).unwrap();
        there.join().unwrap();
        let mut all = [one.drain(..), other.drain(..)].concat();
        all.sort_unstable();
        assert_eq!(all, [1, 2]);
    });
}
