//! Counts of keys in bounded memory: exact up to a number of different keys, with a known maximum error beyond it.
//!
//! When the table is full, the half of its keys with the fewest records is dropped. `dropped` is the highest count of
//! a dropped key: a key that comes afterwards may have had that many records before, which its entry says. Frequent
//! keys stay, so their counts are exact.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::key::RecordKey;

/// Keys with a count and a state of each.
#[derive(Debug)]
pub(crate) struct KeyCounts<S> {
    entries: HashMap<RecordKey, CountedKey<S>, RandomState>,
    limits: KeyLimits,
    /// Bytes of all keys in the table.
    bytes: usize,
    dropped: u64,
}

/// Count of one key.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CountedKey<S> {
    /// Records since the key is in the table.
    pub(crate) records: u64,
    /// Maximum number of its records before.
    pub(crate) missed: u64,
    pub(crate) state: S,
}

/// Bounds of a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KeyLimits {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
}

impl<S: Default> KeyCounts<S> {
    pub(crate) fn new(limits: KeyLimits) -> Self {
        KeyCounts { entries: HashMap::default(), limits, bytes: 0, dropped: 0 }
    }

    /// Returns the entry of a key, a new one with no records if there is none.
    pub(crate) fn entry(&mut self, key: &RecordKey) -> &mut CountedKey<S> {
        if !self.entries.contains_key(key) {
            let is_full = self.entries.len() >= self.limits.keys
                || self.bytes + key.bytes().len() > self.limits.bytes;
            if is_full {
                self.drop_half();
            }
            self.bytes += key.bytes().len();
            let new = CountedKey { records: 0, missed: self.dropped, state: S::default() };
            self.entries.insert(key.clone(), new);
        }
        self.entries.get_mut(key).expect("the key was inserted if it was absent")
    }

    /// Drops the half of the keys with the fewest records, at least one.
    fn drop_half(&mut self) {
        let mut counts: Vec<_> = self.entries.values().map(CountedKey::max).collect();
        if counts.is_empty() {
            return;
        }
        let middle = (counts.len() - 1) / 2;
        let (_, &mut median, _) = counts.select_nth_unstable(middle);
        let mut left = middle + 1;
        let bytes = &mut self.bytes;
        self.entries.retain(|key, count| {
            let stays = left == 0 || count.max() > median;
            if !stays {
                left -= 1;
                *bytes -= key.bytes().len();
            }
            stays
        });
        self.dropped = self.dropped.max(median);
    }
}

impl<S> KeyCounts<S> {
    /// Returns the entry of a key that is in the table.
    pub(crate) fn get(&self, key: &RecordKey) -> Option<&CountedKey<S>> {
        self.entries.get(key)
    }

    /// Number of different keys; the number of those in the table, if some were dropped.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Highest count of a key that was dropped; 0 if all counts are exact.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Returns the `max` keys with the most records, those first. Keys with equal counts are in the order of their bytes.
    pub(crate) fn hottest(&self, max: usize) -> Vec<(&RecordKey, &CountedKey<S>)> {
        let mut all: Vec<_> = self.entries.iter().collect();
        let rank = |(key, count): &(&RecordKey, &CountedKey<S>)| {
            (std::cmp::Reverse(count.records), key.bytes().to_vec())
        };
        if all.len() > max && max > 0 {
            all.select_nth_unstable_by_key(max - 1, rank);
        }
        all.truncate(max);
        all.sort_by_cached_key(rank);
        all
    }
}

impl<S> CountedKey<S> {
    /// The key had at most that many records.
    pub(crate) fn max(&self) -> u64 {
        self.records + self.missed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> RecordKey {
        RecordKey::Named(number.to_string().into_bytes().into())
    }

    fn counted(numbers: impl IntoIterator<Item = u64>, limits: KeyLimits) -> KeyCounts<()> {
        let mut counts = KeyCounts::new(limits);
        numbers.into_iter().for_each(|number| counts.entry(&key(number)).records += 1);
        counts
    }

    const LIMITS: KeyLimits = KeyLimits { keys: 100, bytes: 1 << 20 };

    /// A stream in which key `n` of the first ten comes often, and each other key once.
    fn skewed() -> Vec<u64> {
        (0..20_000).map(|place| if place % 3 == 0 { place % 10 } else { 1_000 + place }).collect()
    }

    #[test]
    fn counts_are_exact_up_to_the_limit() {
        let counts = counted((0..100).flat_map(|number| [number; 3]), LIMITS);
        assert_eq!((counts.len(), counts.dropped()), (100, 0));
        assert!(counts.hottest(200).iter().all(|(_, count)| count.records == 3));
    }

    #[test]
    fn beyond_the_limit_hot_keys_stay_exact_and_others_have_true_bounds() {
        let stream = skewed();
        let counts = counted(stream.iter().copied(), LIMITS);
        assert!(counts.len() <= 100 && counts.dropped() > 0);
        for (found, count) in counts.hottest(100) {
            let number: u64 = String::from_utf8_lossy(found.bytes()).parse().unwrap();
            let real = stream.iter().filter(|&&other| other == number).count() as u64;
            assert!(count.records <= real && real <= count.max(), "{number}: {count:?}, {real}");
        }
        let hottest: Vec<_> =
            counts.hottest(10).iter().map(|(found, _)| (*found).clone()).collect();
        assert!((0..10).all(|number| hottest.contains(&key(number))), "{hottest:?}");
        assert!(counts.hottest(10).iter().all(|(_, count)| count.missed == 0));
    }

    #[test]
    fn long_keys_are_bounded_by_their_bytes() {
        let mut counts = KeyCounts::<()>::new(KeyLimits { keys: 100, bytes: 1_000 });
        for number in 0..50_u8 {
            let long = RecordKey::Named([b'a' + number % 26, number].repeat(100).into());
            counts.entry(&long).records += 1;
            let held: usize = counts.hottest(100).iter().map(|(key, _)| key.bytes().len()).sum();
            assert!(held == counts.bytes && held <= 1_000);
        }
        // A key beyond the bound alone is the only one.
        counts.entry(&RecordKey::Named(vec![0; 2_000].into())).records += 1;
        assert!(counts.len() <= 3);
    }

    #[test]
    fn the_hottest_come_first_and_equal_ones_by_name() {
        let counts = counted([3, 1, 2, 2, 3, 3], LIMITS);
        let named: Vec<_> = counts.hottest(3).iter().map(|(key, _)| key.bytes().to_vec()).collect();
        assert_eq!(named, [b"3", b"2", b"1"]);
        assert_eq!(counted([], LIMITS).hottest(3).len(), 0);
    }
}
