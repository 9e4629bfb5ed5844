//! Rates and buckets of the keys of a shard. `lanes/rate.rs` has the rules.

use hashbrown::HashTable;

use super::lane_index::spread;
use super::rate::{Rate, TokenBucket};
use crate::unwind::drop_catch_unwind;

/// Number of entries that are kept without a search for full buckets.
pub(super) const MIN_SWEEP_ENTRIES: usize = 64;

/// Rates of a shard's keys.
#[derive(Debug)]
pub(super) struct RateLimiter<K> {
    /// Rate of each key that has no rate of its own.
    pub(super) common: Option<Rate>,
    /// Keys with a rate of their own, and keys whose bucket was not full at its last use.
    pub(super) keys: HashTable<LimitedKey<K>>,
    /// Number of `keys` with a rate of their own.
    pub(super) owners: usize,
    /// Number of entries at which full buckets are searched for.
    pub(super) sweep_at: usize,
    /// Whether a sweep is scheduled.
    pub(super) sweep_scheduled: bool,
}

#[derive(Debug)]
pub(super) struct LimitedKey<K> {
    pub(super) hash: u32,
    pub(super) key: K,
    pub(super) own: Option<Rate>,
    pub(super) bucket: TokenBucket,
}

/// Change of the time at which the timer must look at a key that is paused for its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateDeadline {
    /// Slot of the key's lane.
    pub(crate) slot: usize,
    /// Deadline before the change.
    pub(crate) was: Option<u64>,
    /// Deadline after the change. Absent if the key is no longer paused for its rate.
    pub(crate) until: Option<u64>,
}

impl<K> RateLimiter<K> {
    pub(super) fn new() -> Self {
        RateLimiter {
            common: None,
            keys: HashTable::new(),
            owners: 0,
            sweep_at: MIN_SWEEP_ENTRIES,
            sweep_scheduled: false,
        }
    }
}

impl<K: Eq + Clone> RateLimiter<K> {
    pub(super) fn find(&self, hash: u32, key: &K) -> Option<&LimitedKey<K>> {
        self.keys.find(spread(hash), |it| it.hash == hash && it.key == *key)
    }

    /// Returns the rate of a key, and its bucket.
    pub(super) fn of(&self, hash: u32, key: &K) -> Option<(Rate, TokenBucket)> {
        match self.find(hash, key) {
            Some(it) => Some((it.own.or(self.common)?, it.bucket)),
            None => Some((self.common?, TokenBucket::default())),
        }
    }

    /// Charges a task that begins. Returns the time from which on the next may begin, if that is in
    /// the future.
    pub(super) fn charge(&mut self, hash: u32, key: &K, now: u64) -> Option<u64> {
        let common = self.common;
        if common.is_none() && self.keys.is_empty() {
            return None;
        }
        let is_it = |it: &LimitedKey<K>| it.hash == hash && it.key == *key;
        if let Some(found) = self.keys.find_mut(spread(hash), is_it) {
            let rate = found.own.or(common)?;
            found.bucket.take(rate, now);
            return Some(found.bucket.next_at(rate)).filter(|at| *at > now);
        }
        let rate = common?;
        let mut bucket = TokenBucket::default();
        bucket.take(rate, now);
        self.insert(LimitedKey { hash, key: key.clone(), own: None, bucket }, now);
        Some(bucket.next_at(rate)).filter(|at| *at > now)
    }

    /// Refunds a charged task that did not begin.
    pub(super) fn give_back(&mut self, hash: u32, key: &K) {
        let common = self.common;
        let is_it = |it: &LimitedKey<K>| it.hash == hash && it.key == *key;
        if let Some(found) = self.keys.find_mut(spread(hash), is_it)
            && let Some(rate) = found.own.or(common)
        {
            found.bucket.give_back(rate);
        }
    }

    pub(super) fn insert(&mut self, entry: LimitedKey<K>, now: u64) {
        if self.keys.len() >= self.sweep_at {
            self.sweep(now);
        }
        self.keys.insert_unique(spread(entry.hash), entry, |it| spread(it.hash));
    }

    /// Forgets every full bucket, which equals a bucket that was never used. The cost is in
    /// proportion to the insertions since the last sweep.
    pub(super) fn sweep(&mut self, now: u64) {
        // One by one, since the drop of a key may panic.
        self.keys
            .extract_if(|it| it.own.is_none() && it.bucket.is_full(now))
            .for_each(drop_catch_unwind);
        if self.keys.capacity() > 4 * self.keys.len().max(MIN_SWEEP_ENTRIES) {
            self.keys.shrink_to(2 * self.keys.len(), |it| spread(it.hash));
        }
        self.sweep_at = MIN_SWEEP_ENTRIES.max(2 * self.keys.len());
    }

    /// Sets or removes a key's own rate.
    pub(super) fn set_own(&mut self, hash: u32, key: &K, own: Option<Rate>, now: u64) {
        let common = self.common;
        let is_it = |it: &LimitedKey<K>| it.hash == hash && it.key == *key;
        if let Ok(mut found) = self.keys.find_entry(spread(hash), is_it) {
            let it = found.get_mut();
            let before = std::mem::replace(&mut it.own, own);
            self.owners -= usize::from(before.is_some());
            change(&mut it.bucket, before.or(common), own.or(common), now);
            if own.is_none() && it.bucket.is_full(now) {
                drop_catch_unwind(found.remove().0);
            }
        } else if own.is_some() {
            self.insert(
                LimitedKey { hash, key: key.clone(), own, bucket: TokenBucket::default() },
                now,
            );
        }
        self.owners += usize::from(own.is_some());
    }

    /// Changes the rate of all keys without one of their own, and returns the keys that have a
    /// bucket.
    pub(super) fn set_common(&mut self, common: Option<Rate>, now: u64) -> Vec<(u32, K)> {
        // Copied first: if a clone panics, nothing has changed.
        let without_own = self.keys.iter().filter(|it| it.own.is_none());
        let changed = without_own.map(|it| (it.hash, it.key.clone())).collect();
        let before = std::mem::replace(&mut self.common, common);
        for it in self.keys.iter_mut().filter(|it| it.own.is_none()) {
            change(&mut it.bucket, before, common, now);
        }
        self.sweep(now);
        changed
    }
}

/// Converts a bucket from one rate, or none, to another, or none.
pub(super) fn change(
    bucket: &mut TokenBucket,
    before: Option<Rate>,
    after: Option<Rate>,
    now: u64,
) {
    match (before, after) {
        (Some(before), Some(after)) => bucket.change(before, after, now),
        _ => *bucket = TokenBucket::default(),
    }
}
