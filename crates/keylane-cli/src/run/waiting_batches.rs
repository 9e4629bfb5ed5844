//! Decides which records of a key are one batch: a plain state machine, to which the time is passed.
//!
//! A batch is open from its first record until it is full or starts. It *lingers* at first, and is
//! *ready* when it is full, when its first record has waited for the linger time, or when all batches
//! are made ready. A ready batch that is not full takes further records until it starts. So the
//! batches of a key become ready in the order of their numbers, and a key that waits for its turn
//! collects a whole batch meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use crate::key::RecordKey;

/// Maximum linger time. A longer one could exceed the range of the clock.
const MAX_LINGER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Number of a batch, in the order of first records.
pub(super) type BatchNumber = u64;

/// Batches that have not started.
#[derive(Debug)]
pub(super) struct WaitingBatches<R> {
    /// At least 1.
    max_records: usize,
    linger: Duration,
    batches: HashMap<BatchNumber, WaitingBatch<R>, RandomState>,
    /// The batch of each key that takes further records.
    open: HashMap<RecordKey, BatchNumber, RandomState>,
    /// Ends of the linger times. With the numbers they grow, because each batch lingers equally long.
    lingering: BTreeMap<BatchNumber, Instant>,
    last: BatchNumber,
}

#[derive(Debug)]
struct WaitingBatch<R> {
    key: RecordKey,
    records: Vec<R>,
}

/// A batch that may start when its key has its turn.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ReadyBatch {
    pub(super) number: BatchNumber,
    pub(super) key: RecordKey,
}

impl<R> WaitingBatches<R> {
    pub(super) fn new(max_records: usize, linger: Duration) -> Self {
        WaitingBatches {
            max_records: max_records.max(1),
            linger: linger.min(MAX_LINGER),
            batches: HashMap::default(),
            open: HashMap::default(),
            lingering: BTreeMap::new(),
            last: 0,
        }
    }

    /// Adds a record. Returns its batch if that is ready now, and was not before.
    pub(super) fn add(&mut self, key: &RecordKey, record: R, now: Instant) -> Option<ReadyBatch> {
        let number = match self.open.get(key) {
            Some(number) => *number,
            None => self.begin(key, now),
        };
        let batch = self.batches.get_mut(&number).expect("an open batch waits");
        batch.records.push(record);
        // A record without a key has nothing in common with a later one.
        let is_full =
            batch.records.len() >= self.max_records || matches!(key, RecordKey::Unkeyed(_));
        if is_full {
            self.open.remove(key);
        }
        let is_ready = is_full || self.linger.is_zero();
        (is_ready && self.lingering.remove(&number).is_some())
            .then(|| ReadyBatch { number, key: key.clone() })
    }

    fn begin(&mut self, key: &RecordKey, now: Instant) -> BatchNumber {
        self.last += 1;
        let batch = WaitingBatch { key: key.clone(), records: Vec::new() };
        self.batches.insert(self.last, batch);
        self.open.insert(key.clone(), self.last);
        self.lingering.insert(self.last, now + self.linger);
        self.last
    }

    /// Returns the batches whose linger time has passed, the earliest first. They are ready.
    pub(super) fn due(&mut self, now: Instant) -> Vec<ReadyBatch> {
        let mut ready = Vec::new();
        while let Some(first) = self.lingering.first_entry()
            && *first.get() <= now
        {
            let number = first.remove_entry().0;
            ready.extend(self.ready(number));
        }
        ready
    }

    /// Returns all batches that linger, the earliest first. They are ready.
    pub(super) fn all_lingering(&mut self) -> Vec<ReadyBatch> {
        let numbers = std::mem::take(&mut self.lingering).into_keys();
        numbers.filter_map(|number| self.ready(number)).collect()
    }

    fn ready(&self, number: BatchNumber) -> Option<ReadyBatch> {
        let batch = self.batches.get(&number)?;
        Some(ReadyBatch { number, key: batch.key.clone() })
    }

    /// Returns the end of the linger time that ends first.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lingering.first_key_value().map(|(_, due)| *due)
    }

    /// Takes the records of a batch, which starts. It takes no further ones.
    pub(super) fn take(&mut self, number: BatchNumber) -> Vec<R> {
        let Some(WaitingBatch { key, records }) = self.batches.remove(&number) else {
            return Vec::new();
        };
        if self.open.get(&key) == Some(&number) {
            self.open.remove(&key);
        }
        self.lingering.remove(&number);
        records
    }

    /// Takes the records of all batches.
    pub(super) fn take_all(&mut self) -> Vec<R> {
        self.open.clear();
        self.lingering.clear();
        std::mem::take(&mut self.batches).into_values().flat_map(|batch| batch.records).collect()
    }
}

#[cfg(test)]
#[path = "waiting_batches_tests.rs"]
mod tests;
