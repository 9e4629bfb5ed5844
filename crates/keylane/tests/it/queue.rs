//! Guarantees of the queue, one a test. The table in `src/admit/README.md` says which of them are
//! checked by the public tests of Java's queues, crossbeam, tokio and flume too.

use std::cell::Cell;
use std::sync::Arc;
use std::task::Poll;
use std::thread;
use std::time::Duration;

use crate::common::{LONG, Log, Wakes, block_on, eventually, poll, soon};
use keylane::admit::{CapacityError, FairQueue, QueueError};

fn queue<T>(capacity: usize) -> Arc<FairQueue<T>> {
    Arc::new(FairQueue::new(capacity).unwrap())
}

#[test]
fn a_queue_without_room_is_refused() {
    assert_eq!(FairQueue::<()>::new(0).unwrap_err(), CapacityError::Zero);
    assert_eq!(queue::<()>(1).resize(0), Err(CapacityError::Zero));
}

#[test]
fn a_huge_queue_takes_no_memory_before_it_is_used() {
    let queue = queue(usize::MAX);
    queue.push(1).unwrap();
    assert_eq!((queue.capacity(), queue.pop()), (usize::MAX, Ok(1)));
}

#[test]
fn items_come_out_in_the_order_in_which_they_went_in() {
    let queue = queue(1000);
    queue.push_many(0..500).unwrap();
    (500..1000).for_each(|i| queue.push(i).unwrap());
    assert_eq!((queue.len(), queue.is_empty()), (1000, false));
    assert_eq!(queue.pop_many(10).unwrap(), (0..10).collect::<Vec<_>>());
    (10..1000).for_each(|i| assert_eq!(queue.pop(), Ok(i)));
    assert!(queue.is_empty());
}

#[test]
fn a_full_queue_gives_the_item_back() {
    let queue = queue(1);
    queue.try_push(1).unwrap();
    for error in [
        queue.try_push(2).unwrap_err(),
        queue.push_timeout(2, Duration::from_millis(2)).unwrap_err(),
        queue.push_timeout(2, Duration::ZERO).unwrap_err(),
    ] {
        assert_eq!(error.into_inner(), 2);
    }
    let error = queue.try_push_many([2, 3]).unwrap_err();
    assert_eq!((error.kind(), error.into_inner()), (QueueError::Full, vec![2, 3]));
    let error = queue.push_many_timeout([2, 3], Duration::ZERO).unwrap_err();
    assert_eq!((error.kind(), error.into_inner()), (QueueError::TimedOut, vec![2, 3]));
    assert_eq!(queue.snapshot(), [1]);
}

#[test]
fn an_empty_queue_gives_nothing() {
    let queue = queue::<u32>(1);
    assert_eq!(queue.try_pop(), Err(QueueError::Empty));
    assert_eq!(queue.pop_timeout(Duration::from_millis(2)), Err(QueueError::TimedOut));
    assert_eq!(queue.pop_timeout(Duration::ZERO), Err(QueueError::TimedOut));
    assert_eq!(queue.try_pop_many(4), Err(QueueError::Empty));
    assert_eq!(queue.pop_many_timeout(4, Duration::ZERO), Err(QueueError::TimedOut));
    assert_eq!((queue.pop_many(0), queue.try_pop_many(0)), (Ok(vec![]), Ok(vec![])));
    assert_eq!(block_on(queue.pop_many_async(0)), Ok(vec![]));
    assert_eq!((queue.peek(|item| *item), queue.snapshot()), (None, vec![]));
}

#[test]
fn a_push_waits_for_room_and_a_pop_for_an_item() {
    soon(|| {
        let queue = queue(1);
        queue.push(1).unwrap();
        thread::scope(|scope| {
            let push = scope.spawn(|| queue.push(2));
            eventually(|| queue.waiting_to_push() == 1);
            assert_eq!((queue.pop(), queue.pop()), (Ok(1), Ok(2)));
            push.join().unwrap().unwrap();
            let pop = scope.spawn(|| queue.pop_timeout(LONG));
            eventually(|| queue.waiting_to_pop() == 1);
            queue.push(3).unwrap();
            assert_eq!(pop.join().unwrap(), Ok(3));
        });
    });
}

/// Threads, with and without timeout, and tasks wait in one queue.
#[test]
fn pushes_that_wait_are_placed_in_the_order_of_arrival() {
    soon(|| {
        let queue = queue(1);
        queue.push(0).unwrap();
        thread::scope(|scope| {
            for i in 1..=9 {
                let queue = &queue;
                scope.spawn(move || match i % 4 {
                    0 => queue.push(i).unwrap(),
                    1 => queue.push_timeout(i, LONG).unwrap(),
                    2 => queue.push_many([i]).unwrap(),
                    _ => block_on(queue.push_async(i)).unwrap(),
                });
                eventually(|| queue.waiting_to_push() == i);
            }
            (0..=9).for_each(|i| assert_eq!(queue.pop(), Ok(i)));
        });
    });
}

#[test]
fn pops_that_wait_are_served_in_the_order_of_arrival() {
    soon(|| {
        let (queue, served) = (queue(16), Log::new());
        thread::scope(|scope| {
            for i in 0..9 {
                let (queue, served) = (&queue, served.clone());
                scope.spawn(move || {
                    let item = match i % 4 {
                        0 => queue.pop(),
                        1 => queue.pop_timeout(LONG),
                        2 => queue.pop_many(1).map(|items| items[0]),
                        _ => block_on(queue.pop_async()),
                    };
                    served.push((i, item.unwrap()));
                });
                eventually(|| queue.waiting_to_pop() == i + 1);
            }
            queue.push_many(0..9).unwrap();
        });
        let mut served = served.take();
        served.sort_unstable();
        assert_eq!(served, (0..9).map(|i| (i, i)).collect::<Vec<_>>());
    });
}

/// With a slow consumer no waiter may have to wait for the next pop to learn of this one.
#[test]
fn a_placed_push_is_told_at_once() {
    soon(|| {
        let queue = queue(1);
        queue.push(1).unwrap();
        thread::scope(|scope| {
            let pushes = [2, 3].map(|i| {
                let push = scope.spawn({
                    let queue = &queue;
                    move || queue.push(i).unwrap()
                });
                eventually(|| queue.waiting_to_push() == i - 1);
                push
            });
            for push in pushes {
                queue.pop().unwrap();
                push.join().unwrap();
            }
        });
    });
}

#[test]
fn many_items_are_pushed_one_after_another_though_others_wait() {
    soon(|| {
        let queue = queue(2);
        thread::scope(|scope| {
            scope.spawn(|| queue.push_many(0..100).unwrap());
            eventually(|| queue.waiting_to_push() == 1);
            scope.spawn(|| queue.push_many(100..200).unwrap());
            eventually(|| queue.waiting_to_push() == 2);
            (0..200).for_each(|i| assert_eq!(queue.pop(), Ok(i)));
        });
        assert!(queue.is_empty());
    });
}

#[test]
fn what_was_placed_of_many_stays_and_the_rest_comes_back() {
    let queue = queue(2);
    let error = queue.push_many_timeout(0..5, Duration::ZERO).unwrap_err();
    assert_eq!(error.into_inner(), [2, 3, 4]);
    let mut push = Box::pin(queue.push_many_async(5..9));
    assert!(poll(push.as_mut(), &Wakes::new()).is_pending());
    assert_eq!(queue.pop(), Ok(0));
    drop(push);
    assert_eq!(queue.drain(..), [1, 5]);
}

#[test]
fn a_cancelled_pop_gives_its_item_back_in_its_place() {
    let queue = queue(4);
    let wakes = Wakes::new();
    let mut pops: Vec<_> = (0..3).map(|_| Box::pin(queue.pop_async())).collect();
    pops.iter_mut().for_each(|pop| assert!(poll(pop.as_mut(), &wakes).is_pending()));
    queue.push_many(1..=4).unwrap();
    assert_eq!(queue.snapshot(), [4]);
    // Out of order, and the oldest last.
    drop(pops.remove(1));
    drop(pops.remove(1));
    drop(pops.remove(0));
    assert_eq!(queue.snapshot(), [1, 2, 3, 4]);
    assert_eq!((queue.pop(), queue.drain(1..2), queue.pop()), (Ok(1), vec![3], Ok(2)));
}

/// Capacity for it if it is returned.
#[test]
fn an_item_that_was_handed_over_takes_room_until_it_is_collected() {
    let queue = queue(1);
    let (mut pop, wakes) = (Box::pin(queue.pop_async()), Wakes::new());
    assert!(poll(pop.as_mut(), &wakes).is_pending());
    queue.try_push(1).unwrap();
    assert_eq!(queue.try_push(2).unwrap_err().kind(), QueueError::Full);
    assert!(format!("{queue:?}").contains("handed_off: 1"));
    drop(pop);
    assert_eq!((queue.len(), queue.capacity()), (1, 1));
}

#[test]
fn futures_stand_in_line_from_their_first_poll() {
    let queue = queue(1);
    queue.try_push(0).unwrap();
    let (mut late, mut early) = (Box::pin(queue.push_async(2)), Box::pin(queue.push_async(1)));
    let wakes = Wakes::new();
    assert!(poll(early.as_mut(), &wakes).is_pending() && poll(late.as_mut(), &wakes).is_pending());
    assert_eq!([queue.pop(), queue.pop(), queue.pop()], [Ok(0), Ok(1), Ok(2)]);
}

/// Each place at which a future can be dropped: before it is polled, in the line, when its fate is
/// decided, and when it has ended.
#[test]
fn a_push_can_be_cancelled_at_every_step() {
    for step in 0..4 {
        let (queue, item) = (queue(1), Arc::new(()));
        queue.try_push(Arc::default()).unwrap();
        let (mut push, wakes) = (Box::pin(queue.push_async(item.clone())), Wakes::new());
        if step > 0 {
            assert!(poll(push.as_mut(), &wakes).is_pending());
        }
        if step > 1 {
            drop(queue.try_pop().unwrap());
        }
        if step > 2 {
            assert!(matches!(poll(push.as_mut(), &wakes), Poll::Ready(Ok(()))));
        }
        drop(push);
        assert_eq!(Arc::strong_count(&item), if step > 1 { 2 } else { 1 });
        assert_eq!((queue.len(), queue.waiting_to_push()), (1, 0));
        drop(queue.try_pop().unwrap());
        queue.try_push(Arc::default()).unwrap();
    }
}

#[test]
fn a_pop_can_be_cancelled_at_every_step() {
    for step in 0..4 {
        let queue = queue(1);
        let (mut pop, wakes) = (Box::pin(queue.pop_async()), Wakes::new());
        if step > 0 {
            assert!(poll(pop.as_mut(), &wakes).is_pending());
        }
        if step > 1 {
            queue.try_push(1).unwrap();
        }
        if step > 2 {
            assert_eq!(poll(pop.as_mut(), &wakes), Poll::Ready(Ok(1)));
        }
        drop(pop);
        assert_eq!(queue.len(), usize::from(step == 2));
        assert_eq!(queue.waiting_to_pop(), 0);
        assert_eq!(queue.drain(..).len(), usize::from(step == 2));
        queue.try_push(2).unwrap();
        assert_eq!(queue.try_pop(), Ok(2));
    }
}

#[test]
fn closing_refuses_pushes_and_lets_pops_finish() {
    soon(|| {
        let queue = queue(1);
        queue.push(1).unwrap();
        thread::scope(|scope| {
            let push = scope.spawn(|| queue.push(2).unwrap_err());
            let many = scope.spawn(|| queue.push_many([3, 4]).unwrap_err());
            eventually(|| queue.waiting_to_push() == 2);
            queue.close();
            let (push, many) = (push.join().unwrap(), many.join().unwrap());
            assert_eq!((push.kind(), push.into_inner()), (QueueError::Closed, 2));
            assert_eq!(many.into_inner(), [3, 4]);
        });
        assert!(queue.is_closed());
        assert_eq!(queue.try_push(5).unwrap_err().kind(), QueueError::Closed);
        assert_eq!(block_on(queue.push_async(5)).unwrap_err().kind(), QueueError::Closed);
        assert_eq!(queue.try_push_many([5]).unwrap_err().kind(), QueueError::Closed);
        assert_eq!((queue.pop(), queue.pop()), (Ok(1), Err(QueueError::Closed)));
        assert_eq!(queue.try_pop(), Err(QueueError::Closed));
        assert_eq!(queue.pop_many(2), Err(QueueError::Closed));
        queue.close();
    });
}

#[test]
fn closing_ends_the_waits_of_pops() {
    soon(|| {
        let queue = queue::<u32>(1);
        thread::scope(|scope| {
            let pops = [scope.spawn(|| queue.pop()), scope.spawn(|| block_on(queue.pop_async()))];
            eventually(|| queue.waiting_to_pop() == 2);
            queue.close();
            pops.into_iter()
                .for_each(|pop| assert_eq!(pop.join().unwrap(), Err(QueueError::Closed)));
        });
    });
}

#[test]
fn closing_can_return_what_was_left() {
    let queue = queue(8);
    queue.push_many(0..3).unwrap();
    assert_eq!(queue.close_and_take(), [0, 1, 2]);
    assert_eq!((queue.pop(), queue.close_and_take()), (Err(QueueError::Closed), vec![]));
}

#[test]
fn a_drain_places_those_who_wait() {
    let queue = queue(2);
    queue.push_many([0, 1]).unwrap();
    let (mut push, wakes) = (Box::pin(queue.push_many_async([2, 3, 4])), Wakes::new());
    assert!(poll(push.as_mut(), &wakes).is_pending());
    assert_eq!(queue.drain(..1), [0]);
    assert_eq!(queue.snapshot(), [1, 2]);
    assert_eq!(queue.drain(..), [1, 2]);
    assert!(poll(push.as_mut(), &wakes).is_ready());
    #[expect(clippy::reversed_empty_ranges, reason = "it must not panic")]
    let nothing = [queue.drain(9..), queue.drain(2..1), queue.drain(usize::MAX..=usize::MAX)];
    assert!(nothing.iter().all(Vec::is_empty));
    assert_eq!(queue.drain(0..=0), [3]);
}

#[test]
fn resizing_admits_who_waits_and_never_drops_an_item() {
    let queue = queue(1);
    queue.push(0).unwrap();
    let (mut push, wakes) = (Box::pin(queue.push_many_async([1, 2, 3])), Wakes::new());
    assert!(poll(push.as_mut(), &wakes).is_pending());
    queue.resize(3).unwrap();
    assert_eq!(queue.snapshot(), [0, 1, 2]);
    queue.resize(1).unwrap();
    assert_eq!((queue.len(), queue.capacity()), (3, 1));
    assert_eq!((queue.pop(), queue.len()), (Ok(0), 2), "there is no room yet");
    assert_eq!((queue.pop(), queue.snapshot()), (Ok(1), vec![2]));
    assert_eq!((queue.pop(), queue.snapshot()), (Ok(2), vec![3]));
    assert!(poll(push.as_mut(), &wakes).is_ready());
}

#[test]
fn a_transfer_moves_all_or_none() {
    let (from, to) = (queue(8), queue(3));
    from.push_many(0..5).unwrap();
    to.push(9).unwrap();
    assert_eq!(from.transfer(&to, 6), Err(QueueError::TooFew));
    assert_eq!(from.transfer(&to, 3), Err(QueueError::Full));
    assert_eq!(from.transfer_all(&to), Err(QueueError::Full));
    assert_eq!((from.len(), to.len()), (5, 1));
    assert_eq!(from.transfer(&to, 2), Ok(()));
    assert_eq!((from.snapshot(), to.snapshot()), (vec![2, 3, 4], vec![9, 0, 1]));
    to.close_and_take();
    assert_eq!(from.transfer(&to, 1), Err(QueueError::Closed));
    assert_eq!(from.transfer(&to, 0), Err(QueueError::Closed));
    // To itself nothing changes.
    assert_eq!((from.transfer(&from, 3), from.transfer_all(&from)), (Ok(()), Ok(3)));
    assert_eq!(from.transfer(&from, 4), Err(QueueError::TooFew));
    assert_eq!(from.snapshot(), [2, 3, 4]);
}

#[test]
fn a_transfer_serves_those_who_wait_on_both_sides() {
    let (from, to) = (queue(1), queue(1));
    from.push(1).unwrap();
    let (mut push, mut pop) = (Box::pin(from.push_async(2)), Box::pin(to.pop_async()));
    let wakes = Wakes::new();
    assert!(poll(push.as_mut(), &wakes).is_pending() && poll(pop.as_mut(), &wakes).is_pending());
    assert_eq!(from.transfer_all(&to), Ok(1));
    assert!(matches!(poll(push.as_mut(), &wakes), Poll::Ready(Ok(()))));
    assert_eq!(poll(pop.as_mut(), &wakes), Poll::Ready(Ok(1)));
    assert_eq!(from.snapshot(), [2]);
}

#[test]
fn queues_that_transfer_to_each_other_neither_lock_up_nor_lose_anything() {
    soon(|| {
        let queues = [queue(64), queue(64)];
        queues[0].push_many(0..40).unwrap();
        thread::scope(|scope| {
            for way in 0..4 {
                let (from, to) = (&queues[way % 2], &queues[(way + 1) % 2]);
                scope.spawn(move || {
                    for count in 0..5000 {
                        let _ = from.transfer(to, count % 7);
                        let _ = from.transfer_all(to);
                    }
                });
            }
        });
        let mut all = [queues[0].drain(..), queues[1].drain(..)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..40).collect::<Vec<_>>());
    });
}

#[test]
fn one_can_look_without_taking() {
    let queue = queue(4);
    queue.push_many([1, 2, 3]).unwrap();
    assert_eq!((queue.peek(|item| item * 10), queue.len()), (Some(10), 3));
    let mut seen = Vec::new();
    queue.for_each(|item| seen.push(*item));
    assert_eq!((seen, queue.snapshot()), (vec![1, 2, 3], vec![1, 2, 3]));
    let shown = format!("{queue:?}");
    assert!(shown.contains("len: 3") && shown.contains("capacity: 4"), "{shown}");
}

/// Nothing is asked of an item but that it may go to another thread.
#[test]
fn items_need_only_be_send() {
    struct Plain(Cell<u32>);
    fn is_shared<T: Send + Sync>(_: &T) {}
    let queue = queue(1);
    is_shared(&*queue);
    let push = queue.push_async(Plain(Cell::new(1)));
    fn is_sent<T: Send>(value: T) -> T {
        value
    }
    block_on(is_sent(push)).unwrap();
    assert_eq!(block_on(is_sent(queue.pop_async())).unwrap().0.get(), 1);
}
