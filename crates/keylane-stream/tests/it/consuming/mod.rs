//! Shared fixtures of the consumer's tests.

#![allow(dead_code, reason = "not every test that shares this module uses all of it")]

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use keylane_stream::consumer::{Attempt, Consumer, ConsumerStatus, PartitionStatus};
use keylane_stream::retry::{Backoff, Jitter, OnExhausted, RetryLimit, RetryRule};
use keylane_stream::{Partition, Position, Record};

/// Maximum wait for an event that must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(180);

/// A value that tests can wait for.
#[derive(Debug, Default)]
pub(crate) struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Arc<Self> {
        Arc::new(Watched { value: Mutex::new(value), changed: Condvar::new() })
    }

    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut self.value.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
        result
    }

    /// Waits until `wanted` holds.
    pub(crate) fn until(&self, wanted: impl FnMut(&T) -> bool) {
        self.until_within(PATIENCE, wanted);
    }

    /// Waits at most `patience` until `wanted` holds.
    pub(crate) fn until_within(&self, patience: Duration, mut wanted: impl FnMut(&T) -> bool) {
        let value = self.value.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = self.changed.wait_timeout_while(value, patience, |value| !wanted(value));
        let (value, timeout) = waiting.unwrap_or_else(PoisonError::into_inner);
        drop(value);
        assert!(!timeout.timed_out(), "it did not come");
    }
}

impl<T: Clone> Watched<T> {
    pub(crate) fn get(&self) -> T {
        self.change(|value| value.clone())
    }
}

/// Polls until `holds` is true, for conditions without a notification.
pub(crate) fn eventually(mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < until, "it did not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Returns the status of a consumer.
pub(crate) fn status(consumer: &Consumer) -> ConsumerStatus {
    consumer.handle().status(PATIENCE).expect("it answers")
}

/// Returns the status of a partition, once it is assigned to the consumer.
pub(crate) fn partition_status(consumer: &Consumer, partition: u32) -> PartitionStatus {
    let mut found = None;
    eventually(|| {
        let held = status(consumer).partitions;
        found = held.into_iter().find(|held| held.partition.number() == partition);
        found.is_some()
    });
    found.expect("it was waited for")
}

/// A door at which handlers wait until the test opens it.
#[derive(Debug)]
pub(crate) struct Door(Arc<Watched<bool>>);

impl Door {
    pub(crate) fn closed() -> Self {
        Door(Watched::new(false))
    }

    pub(crate) fn open(&self) {
        self.0.change(|open| *open = true);
    }

    pub(crate) fn pass(&self) {
        self.0.until(|open| *open);
    }
}

impl Clone for Door {
    fn clone(&self) -> Self {
        Door(self.0.clone())
    }
}

/// Record of the handled records, which checks the order: per partition and key, no two at a time,
/// ascending positions, and repeats only of incomplete records.
#[derive(Debug, Default)]
pub(crate) struct Book {
    lanes: HashMap<(Partition, Option<Vec<u8>>), Lane>,
    /// Number of completions of each record.
    pub(crate) done: HashMap<(Partition, Position), u32>,
    pub(crate) attempts: u64,
    pub(crate) broken: Vec<String>,
    running: usize,
    pub(crate) max_running: usize,
}

#[derive(Debug, Default)]
struct Lane {
    running: Option<Position>,
    last_done: Option<Position>,
}

impl Book {
    pub(crate) fn shared() -> Arc<Watched<Book>> {
        Watched::new(Book::default())
    }

    pub(crate) fn begin(&mut self, attempt: &Attempt) {
        self.attempts += 1;
        self.running += 1;
        self.max_running = self.max_running.max(self.running);
        let at = attempt.position();
        let lane = self.lane(attempt);
        let before = (lane.running.replace(at), lane.last_done);
        if let (Some(other), _) = before {
            self.broken.push(format!("{at} began while {other} ran"));
        }
        if let (_, Some(last)) = before
            && last >= at
        {
            self.broken.push(format!("{at} began after {last} was done"));
        }
    }

    pub(crate) fn end(&mut self, attempt: &Attempt, done: bool) {
        self.running -= 1;
        let at = attempt.position();
        let lane = self.lane(attempt);
        let ran = lane.running.take();
        if done {
            lane.last_done = Some(at);
            *self.done.entry((attempt.partition().clone(), at)).or_default() += 1;
        }
        if ran != Some(at) {
            self.broken.push(format!("{at} ended while {ran:?} ran"));
        }
    }

    fn lane(&mut self, attempt: &Attempt) -> &mut Lane {
        let key = attempt.key().map(<[u8]>::to_vec);
        self.lanes.entry((attempt.partition().clone(), key)).or_default()
    }

    pub(crate) fn check(&self, handled: usize) {
        assert_eq!(self.broken, Vec::<String>::new());
        assert_eq!(self.done.len(), handled);
        assert!(self.done.values().all(|times| *times == 1), "something was done twice");
    }
}

/// Returns a rule with negligible backoff.
pub(crate) fn quick(attempts: u32, on_exhausted: OnExhausted) -> RetryRule {
    let wait = Duration::from_micros(500);
    let backoff = Backoff { first: wait, factor: 1, max: wait, jitter: Jitter::Full };
    RetryRule { limit: RetryLimit::attempts(attempts), backoff, on_exhausted }
}

pub(crate) fn keyed(key: impl ToString, number: u64) -> Record {
    Record::new(key.to_string(), number.to_string())
}

pub(crate) fn number(attempt: &Attempt) -> u64 {
    std::str::from_utf8(attempt.payload()).unwrap().parse().unwrap()
}

/// Pseudo-random generator: the same numbers for the same seed.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn roll(&mut self, below: u64) -> u64 {
        // Source: S. Vigna's splitmix64.
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % below
    }

    /// Returns a number below `below`; small numbers are frequent, as in Zipf's law with exponent
    /// 1.
    pub(crate) fn roll_skewed(&mut self, below: u64) -> u64 {
        let share = self.roll(1 << 20) as f64 / f64::from(1 << 20);
        ((below as f64).powf(share) - 1.0) as u64
    }
}
