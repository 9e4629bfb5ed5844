//! Producers and consumers of all kinds at once: nothing is lost, nothing comes twice, each
//! producer's items come in their order, and there are never more than fit.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{Rng, Wakes, block_on, effort, poll, soon};
use keylane::admit::FairQueue;

/// Items of each producer.
fn items() -> u64 {
    2_000 * effort()
}

/// Producer and place.
type Item = (usize, u64);

/// Pushes its items in order, in every way there is, and pushes again what came back.
fn produce(queue: &FairQueue<Item>, producer: usize) {
    let (mut rng, items) = (Rng(producer as u64), items());
    let mut place = 0;
    while place < items {
        let item = (producer, place);
        let pushed = match rng.below(6) {
            0 => queue.push(item).is_ok(),
            1 => queue.try_push(item).is_ok(),
            2 => queue.push_timeout(item, Duration::from_micros(rng.below(30))).is_ok(),
            3 => block_on(queue.push_async(item)).is_ok(),
            4 => {
                let many = (place..(place + 1 + rng.below(8)).min(items)).map(|i| (producer, i));
                let count = many.clone().count() as u64;
                let rest = match queue.push_many_timeout(many, Duration::from_micros(20)) {
                    Ok(()) => 0,
                    Err(error) => error.into_inner().len() as u64,
                };
                place += count - rest;
                continue;
            }
            _ => {
                // Dropped after one poll: only a poll that was ready proves that the item is in,
                // and a waiting push that is dropped may have been placed, so this one does not
                // wait.
                if queue.len() < queue.capacity() / 2 {
                    let mut push = Box::pin(queue.push_async(item));
                    match poll(push.as_mut(), &Wakes::new()) {
                        std::task::Poll::Ready(pushed) => pushed.is_ok(),
                        std::task::Poll::Pending => block_on(push).is_ok(),
                    }
                } else {
                    false
                }
            }
        };
        place += u64::from(pushed);
    }
}

/// Pops in every way there is until the queue is closed and empty. Some pops are cancelled if
/// `cancels`: what one gives back is then popped after what others have popped meanwhile.
fn consume(queue: &FairQueue<Item>, consumer: u64, cancels: bool, mut see: impl FnMut(Item)) {
    let mut rng = Rng(1000 + consumer);
    loop {
        let popped = match rng.below(6) {
            0 => queue.try_pop().map(|item| vec![item]),
            1 => queue.pop_timeout(Duration::from_micros(rng.below(30))).map(|item| vec![item]),
            2 => block_on(queue.pop_async()).map(|item| vec![item]),
            3 => queue.pop_many(1 + rng.below(20) as usize),
            4 if cancels => {
                // Cancelled, whatever has become of it.
                let mut pop = Box::pin(queue.pop_async());
                match poll(pop.as_mut(), &Wakes::new()) {
                    std::task::Poll::Ready(popped) => popped.map(|item| vec![item]),
                    std::task::Poll::Pending => Ok(Vec::new()),
                }
            }
            _ => queue.pop().map(|item| vec![item]),
        };
        match popped {
            Ok(items) => items.into_iter().for_each(&mut see),
            Err(keylane::admit::QueueError::Closed) => return,
            Err(_) => {}
        }
    }
}

/// Whether pops are cancelled, or the order is checked where there are several consumers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Cancels,
    Order,
}

/// Runs producers and consumers, and beside them whatever else there is to do.
fn run(
    (producers, consumers): (usize, u64),
    check: Check,
    capacity: usize,
    beside: impl Fn(&FairQueue<Item>) + Sync,
) {
    let queue = &FairQueue::new(capacity).unwrap();
    let (count, total, over) = (&AtomicU64::new(0), &AtomicU64::new(0), &AtomicBool::new(false));
    thread::scope(|scope| {
        for consumer in 0..consumers {
            scope.spawn(move || {
                let mut next = vec![0; producers];
                consume(queue, consumer, check == Check::Cancels, |(producer, place)| {
                    let is_right =
                        place >= next[producer] || check == Check::Cancels && consumers > 1;
                    assert!(is_right, "out of order");
                    assert!(consumers > 1 || place == next[producer], "lost");
                    next[producer] = place + 1;
                    count.fetch_add(1, Ordering::Relaxed);
                    total.fetch_add(place, Ordering::Relaxed);
                });
            });
        }
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                beside(queue);
            }
        });
        thread::scope(|scope| {
            for producer in 0..producers {
                scope.spawn(move || produce(queue, producer));
            }
        });
        over.store(true, Ordering::Relaxed);
        queue.close();
    });
    let items = items();
    // Items that a cancelled pop returned after the others had seen the end.
    let left = queue.close_and_take();
    let count = count.load(Ordering::Relaxed) + left.len() as u64;
    let total = total.load(Ordering::Relaxed) + left.iter().map(|item| item.1).sum::<u64>();
    assert_eq!(count, producers as u64 * items);
    assert_eq!(total, producers as u64 * items * (items - 1) / 2);
    assert_eq!((queue.waiting_to_push(), queue.waiting_to_pop()), (0, 0));
}

#[test]
fn one_producer_and_one_consumer() {
    soon(|| run((1, 1), Check::Cancels, 3, |_| thread::yield_now()));
}

#[test]
fn many_producers_and_one_consumer() {
    soon(|| run((6, 1), Check::Cancels, 4, |queue| assert!(queue.len() <= 4)));
}

#[test]
fn many_of_both_at_a_queue_of_one() {
    soon(|| run((4, 4), Check::Order, 1, |queue| assert!(queue.len() <= 1)));
}

#[test]
fn many_of_both_while_the_size_changes() {
    let sizes = AtomicU64::new(0);
    soon(move || {
        run((4, 4), Check::Cancels, 16, move |queue| {
            let size = 1 + sizes.fetch_add(7, Ordering::Relaxed) % 40;
            queue.resize(size as usize).unwrap();
            assert!(queue.len() <= 40);
            thread::yield_now();
        });
    });
}

#[test]
fn many_of_both_while_others_look_on() {
    soon(|| {
        run((3, 3), Check::Order, 8, |queue| {
            let seen = queue.snapshot();
            assert!(seen.len() <= 8);
            for pair in seen.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
                assert!(pair[0].1 < pair[1].1, "out of order");
            }
            queue.peek(|item| assert!(item.1 < items()));
        });
    });
}
