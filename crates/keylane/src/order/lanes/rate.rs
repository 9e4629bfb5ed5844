//! Keys whose tasks may begin only so often.
//!
//! A task is charged under the lock under which it is taken, and if that was the last token of its key, the
//! key is held in the same section, as a paused one is, until the next token comes. So a key that is not held
//! has a token, nobody who takes a task has to ask first, and the tasks of other keys are never looked at.

use super::*;
use crate::order::rate::{Bucket, Rate};

/// So many entries are kept without a look at which of them are out of date.
const MIN_SWEEP_ENTRIES: usize = 64;

/// The rates of a shard's keys.
#[derive(Debug)]
pub(super) struct RateLimiter<K> {
    /// What holds for each key that has no rate of its own.
    common: Option<Rate>,
    /// Keys with a rate of their own, and those whose bucket was not full when it was last looked at.
    keys: HashTable<LimitedKey<K>>,
    /// Those of them with a rate of their own.
    owners: usize,
    /// Entries from which on those that are out of date are looked for.
    sweep_at: usize,
    /// Somebody will sweep.
    awaits_sweep: bool,
}

#[derive(Debug)]
struct LimitedKey<K> {
    hash: u32,
    key: K,
    own: Option<Rate>,
    bucket: Bucket,
}

/// When somebody has to look at a key again that is held for its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RateDeadline {
    /// The slot of its lane.
    pub(crate) slot: usize,
    /// When somebody was to look before.
    pub(crate) was: Option<u64>,
    /// When now; not at all, if it is held no longer.
    pub(crate) until: Option<u64>,
}

impl<K> RateLimiter<K> {
    fn new() -> Self {
        RateLimiter {
            common: None,
            keys: HashTable::new(),
            owners: 0,
            sweep_at: MIN_SWEEP_ENTRIES,
            awaits_sweep: false,
        }
    }
}

impl<K: Eq + Clone> RateLimiter<K> {
    fn find(&self, hash: u32, key: &K) -> Option<&LimitedKey<K>> {
        self.keys.find(spread(hash), |it| it.hash == hash && it.key == *key)
    }

    /// The rate of a key, and its bucket.
    fn of(&self, hash: u32, key: &K) -> Option<(Rate, Bucket)> {
        match self.find(hash, key) {
            Some(it) => Some((it.own.or(self.common)?, it.bucket)),
            None => Some((self.common?, Bucket::default())),
        }
    }

    /// A task of a key begins. Returns from when on the next may, if that is not now.
    fn charge(&mut self, hash: u32, key: &K, now: u64) -> Option<u64> {
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
        let mut bucket = Bucket::default();
        bucket.take(rate, now);
        self.insert(LimitedKey { hash, key: key.clone(), own: None, bucket }, now);
        Some(bucket.next_at(rate)).filter(|at| *at > now)
    }

    /// A task of a key that was charged has not begun.
    fn give_back(&mut self, hash: u32, key: &K) {
        let common = self.common;
        let is_it = |it: &LimitedKey<K>| it.hash == hash && it.key == *key;
        if let Some(found) = self.keys.find_mut(spread(hash), is_it)
            && let Some(rate) = found.own.or(common)
        {
            found.bucket.give_back(rate);
        }
    }

    fn insert(&mut self, entry: LimitedKey<K>, now: u64) {
        if self.keys.len() >= self.sweep_at {
            self.sweep(now);
        }
        self.keys.insert_unique(spread(entry.hash), entry, |it| spread(it.hash));
    }

    /// Forgets what is as if it had never been: each bucket that is full again. Costs what has been
    /// inserted since the last time.
    fn sweep(&mut self, now: u64) {
        self.keys.retain(|it| it.own.is_some() || !it.bucket.is_full(now));
        if self.keys.capacity() > 4 * self.keys.len().max(MIN_SWEEP_ENTRIES) {
            self.keys.shrink_to(2 * self.keys.len(), |it| spread(it.hash));
        }
        self.sweep_at = MIN_SWEEP_ENTRIES.max(2 * self.keys.len());
    }

    /// Gives a key a rate of its own, or takes it away.
    fn set_own(&mut self, hash: u32, key: &K, own: Option<Rate>, now: u64) {
        let common = self.common;
        let is_it = |it: &LimitedKey<K>| it.hash == hash && it.key == *key;
        if let Ok(mut found) = self.keys.find_entry(spread(hash), is_it) {
            let it = found.get_mut();
            let before = std::mem::replace(&mut it.own, own);
            self.owners -= usize::from(before.is_some());
            change(&mut it.bucket, before.or(common), own.or(common), now);
            if own.is_none() && it.bucket.is_full(now) {
                found.remove();
            }
        } else if own.is_some() {
            self.insert(LimitedKey { hash, key: key.clone(), own, bucket: Bucket::default() }, now);
        }
        self.owners += usize::from(own.is_some());
    }

    /// Changes what holds for all other keys, and returns those for which that makes a difference.
    fn set_common(&mut self, common: Option<Rate>, now: u64) -> Vec<(u32, K)> {
        let before = std::mem::replace(&mut self.common, common);
        let mut changed = Vec::new();
        for it in self.keys.iter_mut().filter(|it| it.own.is_none()) {
            change(&mut it.bucket, before, common, now);
            changed.push((it.hash, it.key.clone()));
        }
        self.sweep(now);
        changed
    }
}

/// A key has had one rate, or none, and has another, or none.
fn change(bucket: &mut Bucket, before: Option<Rate>, after: Option<Rate>, now: u64) {
    match (before, after) {
        (Some(before), Some(after)) => bucket.change(before, after, now),
        _ => *bucket = Bucket::default(),
    }
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Charges the task that has this lane to itself, or shares it, and has just been taken. Holds its key
    /// if none of it may begin now.
    pub(crate) fn charge_lane(&mut self, slot: usize, now: u64) -> Option<RateDeadline> {
        let lane = &self.lanes[slot];
        let key = lane.key.as_ref().expect("a held lane has a key");
        let until = self.limiter.as_mut()?.charge(lane.hash, key, now)?;
        Some(self.hold_for_rate(slot, until))
    }

    /// The same for a rollup that has the key.
    pub(crate) fn charge_key(&mut self, hash: u32, key: &K, now: u64) -> Option<RateDeadline> {
        let until = self.limiter.as_mut()?.charge(hash, key, now)?;
        let slot = self.find(hash, key).expect("a task that has begun holds its lanes");
        Some(self.hold_for_rate(slot, until))
    }

    fn hold_for_rate(&mut self, slot: usize, until: u64) -> RateDeadline {
        if self.lanes[slot].holders.count() > 1 {
            // There may be others beside it that no worker has taken.
            self.pause_lane(slot);
        } else if !self.held.contains_key(&slot) {
            self.lanes[slot].waiting.push_front(LaneEntry::PauseMarker);
        }
        let reasons = self.held.entry(slot).or_default();
        let was = reasons.limited.replace(until);
        RateDeadline { slot, was, until: Some(until) }
    }

    /// The time has come that was given for a held lane: it goes on, as far as there are tokens. Returns
    /// when to look again, if so, and what is left of a lane that ended.
    pub(crate) fn rate_deadline_passed(
        &mut self,
        slot: usize,
        now: u64,
    ) -> (Option<RateDeadline>, Option<K>) {
        // It may have been let go meanwhile, and the slot be another key's.
        let is_due =
            |reasons: &&mut PauseReasons| reasons.limited.is_some_and(|until| until <= now);
        let Some(reasons) = self.held.get_mut(&slot).filter(is_due) else { return (None, None) };
        reasons.limited = None;
        if !reasons.is_empty() {
            return (None, None);
        }
        let lane = &self.lanes[slot];
        let key = lane.key.as_ref().expect("a held lane has a key");
        let Some((rate, mut bucket)) = self.limiter.as_ref().and_then(|it| it.of(lane.hash, key))
        else {
            return (None, self.end_pause(slot, usize::MAX).0);
        };
        let tokens = bucket.tokens(rate, now);
        debug_assert!(tokens != 0, "it is held until there is one");
        let (left, rest) = self.end_pause(slot, usize::try_from(tokens).unwrap_or(usize::MAX));
        if !rest {
            return (None, left);
        }
        // Others could begin beside those that were let in, but for the rate. They are next when these have
        // taken their tokens.
        (0..tokens).for_each(|_| bucket.take(rate, now));
        let until = bucket.next_at(rate);
        self.held.entry(slot).or_default().limited = Some(until);
        (Some(RateDeadline { slot, was: None, until: Some(until) }), left)
    }

    /// Tasks that were let go for tokens have not taken them, and no longer will: a lane that is held for its
    /// rate is held until there is a token, and no longer for those. Returns when the timer has to look.
    pub(super) fn refresh_rate_limit(&mut self, slot: usize) -> Option<RateDeadline> {
        let limited = self.held.get_mut(&slot)?.limited.as_mut()?;
        let lane = &self.lanes[slot];
        let key = lane.key.as_ref().expect("a held lane has a key");
        let (rate, bucket) = self.limiter.as_ref()?.of(lane.hash, key)?;
        let until = bucket.next_at(rate);
        let was = std::mem::replace(limited, until);
        (was != until).then_some(RateDeadline { slot, was: Some(was), until: Some(until) })
    }

    /// A task that was charged has not begun, and goes back to its line.
    pub(super) fn uncharge(&mut self, slot: usize) {
        let lane = &self.lanes[slot];
        if let (Some(limiter), Some(key)) = (&mut self.limiter, &lane.key) {
            limiter.give_back(lane.hash, key);
        }
    }

    /// Gives a key a rate of its own from now on, or only what holds for all.
    pub(crate) fn set_rate_of(
        &mut self,
        hash: u32,
        key: &K,
        own: Option<Rate>,
        now: u64,
    ) -> (Option<RateDeadline>, Option<K>) {
        let limiter = self.limiter.get_or_insert_with(|| Box::new(RateLimiter::new()));
        limiter.set_own(hash, key, own, now);
        self.reconsider(hash, key, now)
    }

    /// Changes what holds for all keys without a rate of their own.
    pub(crate) fn set_common_rate(
        &mut self,
        common: Option<Rate>,
        now: u64,
    ) -> Vec<(Option<RateDeadline>, Option<K>)> {
        let limiter = self.limiter.get_or_insert_with(|| Box::new(RateLimiter::new()));
        let changed = limiter.set_common(common, now);
        changed.iter().map(|(hash, key)| self.reconsider(*hash, key, now)).collect()
    }

    /// A key's rate has changed: holds it or lets it go.
    fn reconsider(&mut self, hash: u32, key: &K, now: u64) -> (Option<RateDeadline>, Option<K>) {
        let metered = self.limiter.as_ref().and_then(|limiter| limiter.of(hash, key));
        let until = metered.map(|(rate, bucket)| bucket.next_at(rate)).filter(|at| *at > now);
        match until {
            Some(until) => {
                let was = self.limit_of(hash, key);
                // Those that the former rate has let go and no worker has taken are called back.
                self.pause(hash, key, 0).0.limited = Some(until);
                let slot = self.find(hash, key).expect("it is held now");
                (Some(RateDeadline { slot, was, until: Some(until) }), None)
            }
            None => {
                let Some(was) = self.limit_of(hash, key) else { return (None, None) };
                let slot = self.find(hash, key).expect("it is held");
                let left = self.release_pause(hash, key, |reasons| reasons.limited = None);
                (Some(RateDeadline { slot, was: Some(was), until: None }), left)
            }
        }
    }

    fn limit_of(&self, hash: u32, key: &K) -> Option<u64> {
        self.held.get(&self.find(hash, key)?)?.limited
    }

    /// Says when somebody should sweep, unless somebody will: when a bucket that is empty now is full, but
    /// not at once.
    pub(crate) fn wants_sweep(&mut self, now: u64, at_least: u64) -> Option<u64> {
        let limiter = self.limiter.as_mut()?;
        if limiter.awaits_sweep || limiter.keys.len() == limiter.owners {
            return None;
        }
        limiter.awaits_sweep = true;
        let fills_in = limiter.common.map_or(0, Rate::fills_in);
        Some(now.saturating_add(fills_in.max(at_least)))
    }

    /// Forgets the buckets that are full.
    pub(crate) fn sweep_meter(&mut self, now: u64) {
        if let Some(limiter) = &mut self.limiter {
            limiter.awaits_sweep = false;
            limiter.sweep(now);
        }
    }

    /// Whether any key has a rate.
    pub(crate) fn is_metered(&self) -> bool {
        self.limiter.is_some()
    }

    /// How many keys have tasks that wait for nothing but their rate.
    pub(crate) fn limited_keys(&self) -> usize {
        let limited = self.held.iter().filter(|(_, why)| !why.is_for_somebody());
        limited
            .filter(|(slot, _)| self.lanes[**slot].waiting.iter().any(LaneEntry::is_task))
            .count()
    }

    /// How many keys something is remembered of for their rate.
    pub(crate) fn metered_keys(&self) -> usize {
        self.limiter.as_ref().map_or(0, |limiter| limiter.keys.len())
    }
}
