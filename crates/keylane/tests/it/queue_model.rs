//! The queue agrees with a slow obvious model, in thousands of random programs of pushes, pops,
//! waits, cancelled waits, drains, transfers and resizes on two queues; and each served waiter has
//! been woken.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::common::{Live, One, Rng, Wakes, poll};
use keylane::admit::{FairQueue, QueueError};

const PROGRAMS: u64 = 4000;
const STEPS: u64 = 120;

type Item = (u32, One);

/// Model of a queue: lists, and a search for possible steps.
#[derive(Default)]
struct Model {
    capacity: usize,
    is_closed: bool,
    /// Each with the moment at which it came in, by which they are sorted.
    items: Vec<(u32, u32)>,
    /// Waiting pushes, oldest first, with the items that are left to push.
    pushers: Vec<(usize, Vec<u32>)>,
    poppers: Vec<usize>,
    /// Items given to waiting pops, with their time of arrival.
    handed: BTreeMap<usize, (u32, u32)>,
    /// Pushes that were notified that all their items are in.
    placed: Vec<usize>,
    /// Refused pushes, with the items that they had not pushed.
    refused: BTreeMap<usize, Vec<u32>>,
    now: u32,
}

impl Model {
    fn room(&self) -> usize {
        self.capacity.saturating_sub(self.items.len() + self.handed.len())
    }

    fn add(&mut self, item: u32) {
        self.now += 1;
        self.items.push((self.now, item));
    }

    /// Lets everything happen that can.
    fn settle(&mut self) {
        while self.room() > 0 && !self.pushers.is_empty() {
            let item = self.pushers[0].1.remove(0);
            self.add(item);
            if self.pushers[0].1.is_empty() {
                self.placed.push(self.pushers.remove(0).0);
            }
        }
        while !self.items.is_empty() && !self.poppers.is_empty() {
            let popper = self.poppers.remove(0);
            self.handed.insert(popper, self.items.remove(0));
        }
    }

    /// Pushes what fits and returns the rest.
    fn push(&mut self, items: &[u32]) -> Vec<u32> {
        let fits = if self.pushers.is_empty() { self.room().min(items.len()) } else { 0 };
        items[..fits].iter().for_each(|&item| self.add(item));
        self.settle();
        items[fits..].to_vec()
    }

    fn pop(&mut self, most: usize) -> Vec<u32> {
        let mut popped = Vec::new();
        for _ in 0..most.min(self.items.len()) {
            popped.push(self.items.remove(0).1);
        }
        self.settle();
        popped
    }

    fn cancel(&mut self, waiter: usize) {
        self.pushers.retain(|(other, _)| *other != waiter);
        self.poppers.retain(|other| *other != waiter);
        if let Some(item) = self.handed.remove(&waiter) {
            self.items.push(item);
            self.items.sort_unstable();
        }
        self.settle();
    }

    fn close(&mut self) {
        self.is_closed = true;
        self.refused.extend(self.pushers.drain(..));
        self.refused.extend(self.poppers.drain(..).map(|popper| (popper, Vec::new())));
    }
}

/// Result of a wait: the popped item, or the items that were not pushed.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Pushed,
    NotPushed(Vec<u32>),
    Popped(u32),
    NothingLeft,
}

struct Waiter {
    number: usize,
    queue: usize,
    future: Pin<Box<dyn Future<Output = End>>>,
    wakes: Arc<Wakes>,
}

struct Program {
    rng: Rng,
    live: Live,
    queues: [Arc<FairQueue<Item>>; 2],
    models: [Model; 2],
    waiters: Vec<Waiter>,
    waiters_so_far: usize,
    items_so_far: u32,
}

#[test]
fn random_programs_do_what_the_model_does() {
    for seed in 0..PROGRAMS {
        Program::new(seed).run();
    }
}

impl Program {
    fn new(seed: u64) -> Self {
        let mut rng = Rng(seed);
        let capacities = [0, 1].map(|_| 1 + rng.below(4) as usize);
        let model = |capacity| Model { capacity, ..Model::default() };
        Program {
            queues: capacities.map(|capacity| Arc::new(FairQueue::new(capacity).unwrap())),
            models: capacities.map(model),
            rng,
            live: Live::new(),
            waiters: Vec::new(),
            waiters_so_far: 0,
            items_so_far: 0,
        }
    }

    fn run(mut self) {
        for _ in 0..STEPS {
            self.step();
            self.compare();
        }
        drop(self.waiters);
        drop(self.queues);
        assert_eq!(self.live.count(), 0, "everything is dropped");
    }

    fn items(&mut self, count: u64) -> (Vec<u32>, Vec<Item>) {
        let numbers: Vec<u32> = (1..=count as u32).map(|i| self.items_so_far + i).collect();
        self.items_so_far += count as u32;
        let items = numbers.iter().map(|&number| (number, self.live.one())).collect();
        (numbers, items)
    }

    fn step(&mut self) {
        let at = self.rng.below(2) as usize;
        match self.rng.below(40) {
            0..4 => self.try_push(at),
            4..8 => self.try_pop(at),
            8..10 => self.try_push_many(at),
            10..12 => self.try_pop_many(at),
            12..17 => self.start_push(at),
            17..23 => self.start_pop(at),
            23..29 => self.poll_one(),
            29..33 => self.cancel_one(),
            33 | 34 => self.drain(at),
            35 | 36 => self.transfer(at),
            37 | 38 => self.resize(at),
            _ if self.rng.below(8) == 0 => {
                self.queues[at].close();
                self.models[at].close();
            }
            _ => {}
        }
    }

    fn try_push(&mut self, at: usize) {
        let (numbers, mut items) = self.items(1);
        let timed = self.rng.below(2) == 0;
        let item = items.remove(0);
        let pushed = if timed {
            self.queues[at].push_timeout(item, Duration::ZERO)
        } else {
            self.queues[at].try_push(item)
        };
        let model = &mut self.models[at];
        let in_time = if timed { QueueError::TimedOut } else { QueueError::Full };
        match pushed {
            Err(error) if model.is_closed => assert_eq!(error.kind(), QueueError::Closed),
            Err(error) => {
                assert_eq!(error.kind(), in_time);
                assert_eq!(model.push(&numbers), [error.into_inner().0]);
            }
            Ok(()) => assert!(!model.is_closed && model.push(&numbers).is_empty()),
        }
    }

    fn try_pop(&mut self, at: usize) {
        let timed = self.rng.below(2) == 0;
        let popped = if timed {
            self.queues[at].pop_timeout(Duration::ZERO)
        } else {
            self.queues[at].try_pop()
        };
        let model = &mut self.models[at];
        let expected = model.pop(1);
        match popped {
            Ok((item, _)) => assert_eq!(expected, [item]),
            Err(why) => {
                let in_time = if timed { QueueError::TimedOut } else { QueueError::Empty };
                assert_eq!(why, if model.is_closed { QueueError::Closed } else { in_time });
                assert!(expected.is_empty());
            }
        }
    }

    fn try_push_many(&mut self, at: usize) {
        let count = self.rng.below(6);
        let (numbers, items) = self.items(count);
        let pushed = self.queues[at].try_push_many(items);
        let rest = pushed.map_or_else(|error| names(error.into_inner()), |()| Vec::new());
        let model = &mut self.models[at];
        assert_eq!(rest, if model.is_closed { numbers } else { model.push(&numbers) });
    }

    fn try_pop_many(&mut self, at: usize) {
        let most = self.rng.below(4) as usize;
        let popped = names(self.queues[at].try_pop_many(most).unwrap_or_default());
        assert_eq!(popped, self.models[at].pop(most));
    }

    fn start_push(&mut self, at: usize) {
        let count = if self.rng.below(3) == 0 { 1 + self.rng.below(6) } else { 1 };
        let (numbers, mut items) = self.items(count);
        let queue = self.queues[at].clone();
        let future: Pin<Box<dyn Future<Output = End>>> = if count == 1 {
            let item = items.remove(0);
            Box::pin(async move {
                let pushed = queue.push_async(item).await;
                pushed.map_or_else(|e| End::NotPushed(vec![e.into_inner().0]), |()| End::Pushed)
            })
        } else {
            Box::pin(async move {
                let pushed = queue.push_many_async(items).await;
                pushed.map_or_else(|e| End::NotPushed(names(e.into_inner())), |()| End::Pushed)
            })
        };
        let model = &mut self.models[at];
        let rest = if model.is_closed { numbers.clone() } else { model.push(&numbers) };
        let number = self.waiters_so_far;
        if model.is_closed {
            model.refused.insert(number, rest);
        } else if rest.is_empty() {
            model.placed.push(number);
        } else {
            model.pushers.push((number, rest));
        }
        self.start(at, future);
    }

    fn start_pop(&mut self, at: usize) {
        let queue = self.queues[at].clone();
        let future = Box::pin(async move {
            queue.pop_async().await.map_or(End::NothingLeft, |(item, _)| End::Popped(item))
        });
        let (model, number) = (&mut self.models[at], self.waiters_so_far);
        if !model.items.is_empty() {
            let item = model.pop(1)[0];
            // It has it at once, without a transfer, so it takes no capacity.
            return self.start_with(at, future, End::Popped(item));
        }
        if model.is_closed {
            return self.start_with(at, future, End::NothingLeft);
        }
        model.poppers.push(number);
        model.settle();
        self.start(at, future);
    }

    fn start(&mut self, queue: usize, mut future: Pin<Box<dyn Future<Output = End>>>) {
        let (number, wakes) = (self.waiters_so_far, Wakes::new());
        self.waiters_so_far += 1;
        match poll(future.as_mut(), &wakes) {
            Poll::Ready(end) => assert_eq!(Some(end), self.expected(number, queue)),
            Poll::Pending => {
                self.waiters.push(Waiter { number, queue, future, wakes });
            }
        }
    }

    fn start_with(&mut self, _: usize, mut future: Pin<Box<dyn Future<Output = End>>>, end: End) {
        self.waiters_so_far += 1;
        assert_eq!(poll(future.as_mut(), &Wakes::new()), Poll::Ready(end));
    }

    /// How a waiter's wait has ended by the model, if it has. It is then forgotten there.
    fn expected(&mut self, number: usize, queue: usize) -> Option<End> {
        let model = &mut self.models[queue];
        if let Some(at) = model.placed.iter().position(|&other| other == number) {
            model.placed.remove(at);
            return Some(End::Pushed);
        }
        if let Some((_, item)) = model.handed.remove(&number) {
            model.settle();
            return Some(End::Popped(item));
        }
        let rest = model.refused.remove(&number)?;
        Some(if rest.is_empty() { End::NothingLeft } else { End::NotPushed(rest) })
    }

    fn poll_one(&mut self) {
        let Some(at) = self.any_waiter() else { return };
        let mut waiter = self.waiters.swap_remove(at);
        let expected = self.expected(waiter.number, waiter.queue);
        // Another waker each time, as a runtime may.
        let wakes = Wakes::new();
        match poll(waiter.future.as_mut(), &wakes) {
            Poll::Ready(end) => {
                assert_eq!(Some(end), expected);
                assert!(waiter.wakes.count() > 0, "it was told of its end");
            }
            Poll::Pending => {
                assert_eq!(expected, None);
                waiter.wakes = wakes;
                self.waiters.push(waiter);
            }
        }
    }

    fn cancel_one(&mut self) {
        let Some(at) = self.any_waiter() else { return };
        let waiter = self.waiters.swap_remove(at);
        self.models[waiter.queue].cancel(waiter.number);
        drop(waiter);
    }

    fn any_waiter(&mut self) -> Option<usize> {
        let count = self.waiters.len() as u64;
        (count > 0).then(|| self.rng.below(count) as usize)
    }

    fn drain(&mut self, at: usize) {
        let (start, count) = (self.rng.below(3) as usize, self.rng.below(4) as usize);
        let drained = names(self.queues[at].drain(start..start + count));
        let model = &mut self.models[at];
        let end = (start + count).min(model.items.len());
        let expected: Vec<u32> =
            model.items.drain(start.min(end)..end).map(|(_, item)| item).collect();
        model.settle();
        assert_eq!(drained, expected);
    }

    fn transfer(&mut self, from: usize) {
        let to = self.rng.below(2) as usize;
        let count = self.rng.below(4) as usize;
        let moved = self.queues[from].transfer(&self.queues[to], count);
        let len = self.models[from].items.len();
        let expected = if from != to && len < count {
            Err(QueueError::TooFew)
        } else if self.models[to].is_closed {
            Err(QueueError::Closed)
        } else if len < count {
            Err(QueueError::TooFew)
        } else if from != to && count > self.models[to].room() {
            Err(QueueError::Full)
        } else {
            Ok(())
        };
        assert_eq!(moved, expected);
        if moved.is_ok() && from != to {
            let items: Vec<_> = self.models[from].items.drain(..count).collect();
            items.into_iter().for_each(|(_, item)| self.models[to].add(item));
            self.models.iter_mut().for_each(Model::settle);
        }
    }

    fn resize(&mut self, at: usize) {
        let capacity = self.rng.below(6) as usize;
        assert_eq!(self.queues[at].resize(capacity).is_err(), capacity == 0);
        if capacity != 0 {
            self.models[at].capacity = capacity;
            self.models[at].settle();
        }
    }

    fn compare(&self) {
        for (queue, model) in self.queues.iter().zip(&self.models) {
            let expected: Vec<u32> = model.items.iter().map(|&(_, item)| item).collect();
            assert_eq!(names(queue.snapshot()), expected);
            assert_eq!(queue.peek(|item| item.0), expected.first().copied());
            assert_eq!((queue.len(), queue.is_empty()), (expected.len(), expected.is_empty()));
            let lines = (queue.waiting_to_push(), queue.waiting_to_pop());
            assert_eq!(lines, (model.pushers.len(), model.poppers.len()));
            assert_eq!((queue.capacity(), queue.is_closed()), (model.capacity, model.is_closed));
        }
    }
}

fn names(items: Vec<Item>) -> Vec<u32> {
    items.into_iter().map(|(number, _)| number).collect()
}
