//! Shares of the most frequent keys in the records read so far, from which the progress estimates what is still to come.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

use crate::key::RecordKey;
use crate::key_counts::{KeyCounts, KeyLimits};

/// Bounds of the table: keys with more than a thousandth of the records stay in it.
const LIMITS: KeyLimits = KeyLimits { keys: 4_000, bytes: 4 << 20 };

/// Number of the most frequent keys among which the last one to end is searched.
const MAX_CANDIDATES: usize = 16;

/// Counts of the keys of a run, if they are displayed.
#[derive(Debug)]
pub(crate) struct FrequentKeys {
    is_counting: AtomicBool,
    counts: Mutex<KeyCounts<()>>,
}

/// The key whose records take longest, one after another.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct HottestKey {
    pub(crate) key: RecordKey,
    /// Its unfinished records that were read.
    pub(crate) open: usize,
    /// Estimated number of its records that are not read yet.
    pub(crate) to_come: f64,
}

impl FrequentKeys {
    pub(crate) fn new() -> Self {
        FrequentKeys {
            is_counting: AtomicBool::new(false),
            counts: Mutex::new(KeyCounts::new(LIMITS)),
        }
    }

    /// Counts from now on.
    pub(crate) fn start(&self) {
        self.is_counting.store(true, Relaxed);
    }

    /// Adds the keys of a record that was read.
    pub(crate) fn read<'k>(&self, keys: impl Iterator<Item = &'k RecordKey>) {
        if self.is_counting.load(Relaxed) {
            let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
            keys.for_each(|key| counts.entry(key).records += 1);
        }
    }

    /// Returns the key with the most records left. `open` has the keys with unfinished records and the numbers of
    /// these, the highest first; `read` is the number of records read, and `unread` an estimate of the others.
    pub(crate) fn hottest<'k>(
        &self,
        open: impl Iterator<Item = (&'k RecordKey, usize)> + Clone,
        read: u64,
        unread: f64,
    ) -> Option<HottestKey> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let to_come = |records: u64| records as f64 / read.max(1) as f64 * unread;
        let frequent = counts.hottest(MAX_CANDIDATES).into_iter().map(|(key, count)| {
            let open = open.clone().find(|(other, _)| *other == key).map_or(0, |(_, len)| len);
            HottestKey { key: key.clone(), open, to_come: to_come(count.records) }
        });
        let longest = open.clone().take(MAX_CANDIDATES).map(|(key, open)| {
            let records = counts.get(key).map_or(0, |count| count.records);
            HottestKey { key: key.clone(), open, to_come: to_come(records) }
        });
        longest
            .chain(frequent)
            .reduce(|first, next| if next.left() > first.left() { next } else { first })
    }
}

impl HottestKey {
    /// Estimated number of records that are left of the key.
    pub(crate) fn left(&self) -> f64 {
        self.open as f64 + self.to_come
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> RecordKey {
        RecordKey::Named(name.as_bytes().into())
    }

    #[test]
    fn records_that_are_not_read_yet_count_by_the_share_of_their_key() {
        let (hot, cold) = (key("hot"), key("cold"));
        let keys = FrequentKeys::new();
        keys.read([&hot].into_iter());
        keys.start();
        (0..100)
            .for_each(|place| keys.read([if place % 2 == 0 { &hot } else { &cold }].into_iter()));
        // Of 300 records to come a half has the hot key, of which none waits.
        let open = [(&cold, 3)];
        let hottest = keys.hottest(open.into_iter(), 100, 300.0).unwrap();
        assert_eq!((hottest.open, hottest.to_come), (3, 150.0));
        let open = [(&hot, 20), (&cold, 3)];
        let hottest = keys.hottest(open.into_iter(), 100, 300.0).unwrap();
        assert_eq!(hottest, HottestKey { key: hot, open: 20, to_come: 150.0 });
    }

    #[test]
    fn at_the_end_of_the_input_the_longest_queue_counts() {
        let (a, b) = (key("a"), key("b"));
        let keys = FrequentKeys::new();
        assert_eq!(keys.hottest([].into_iter(), 0, 0.0), None);
        keys.start();
        (0..9).for_each(|_| keys.read([&a].into_iter()));
        keys.read([&b].into_iter());
        let hottest = keys.hottest([(&b, 1)].into_iter(), 10, 0.0).unwrap();
        assert_eq!(hottest, HottestKey { key: b, open: 1, to_come: 0.0 });
        assert_eq!(hottest.left(), 1.0);
    }
}
