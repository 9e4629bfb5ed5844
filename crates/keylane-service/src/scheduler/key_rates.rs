//! Rates of keys: for each key of a kind, how many subtasks may start in a time.
//!
//! A key has a token bucket from its first start until the bucket is full again, so a key that is not
//! used costs nothing. A task whose key has no token is *held back*: it waits in the bucket, blocked once more than
//! by its lanes, and is released when a token comes. Only exclusive and limited keys count: so at most
//! as many tasks as the limit of a key wait in its bucket. The state machine around it is in `rate_waits.rs`.

use std::collections::BTreeMap;

use super::RateLimit;
use super::slab::Slab;
use super::timers::{TimerEvent, Timers};
use super::token_bucket::TokenBucket;

/// Buckets of one kind, by key. A tree, because a large hash table would hold the lock while it grows.
type BucketsOfKind = BTreeMap<Box<[u8]>, u32>;

#[derive(Debug, Default)]
struct KeyBucket {
    kind: u32,
    key: Box<[u8]>,
    /// None if the bucket is removed.
    tokens: Option<TokenBucket>,
    /// Tasks that are held back, by turn.
    waiting: BTreeMap<u64, u32>,
    /// Time of its timer: of the next token if tasks wait, otherwise when it is full.
    timer: Option<u64>,
}

/// Token buckets of all keys, and the tasks that wait for tokens.
#[derive(Debug)]
pub(super) struct KeyRates {
    kinds: BTreeMap<u32, BucketsOfKind>,
    buckets: Slab<KeyBucket>,
    /// Buckets of rates that were changed. Their tasks are released one bucket at a time.
    retired: Vec<BucketsOfKind>,
    /// Bucket and turn of each task that is held back.
    waits: BTreeMap<u32, (u32, u64)>,
    turns: u64,
    timers: Timers,
}

impl KeyRates {
    pub(super) fn new() -> Self {
        KeyRates {
            kinds: BTreeMap::new(),
            buckets: Slab::new(),
            retired: Vec::new(),
            waits: BTreeMap::new(),
            turns: 0,
            timers: Timers::default(),
        }
    }

    /// Number of keys with a bucket that is not full.
    pub(super) fn len(&self) -> usize {
        self.buckets.len()
    }

    /// Bucket of a key that has no token.
    pub(super) fn find_empty(&mut self, kind: u32, key: &[u8], now: u64) -> Option<u32> {
        let bucket = *self.kinds.get(&kind)?.get(key)?;
        let tokens = self.buckets[bucket].tokens.as_mut()?;
        (tokens.tokens(now) == 0).then_some(bucket)
    }

    /// Takes a token of a key.
    pub(super) fn take(&mut self, kind: u32, rate: RateLimit, key: &[u8], now: u64) {
        let of_kind = self.kinds.entry(kind).or_default();
        let bucket = match of_kind.get(key) {
            Some(bucket) => *bucket,
            None => {
                let tokens = Some(TokenBucket::new(rate, now));
                let new = KeyBucket { kind, key: key.into(), tokens, ..KeyBucket::default() };
                let bucket = self.buckets.insert(new);
                of_kind.insert(key.into(), bucket);
                bucket
            }
        };
        if let Some(tokens) = &mut self.buckets[bucket].tokens {
            tokens.take(now);
        }
        self.set_timer(bucket, now);
    }

    /// Holds a task back until the bucket has a token.
    pub(super) fn hold_back(&mut self, bucket: u32, task: u32, now: u64) {
        self.turns += 1;
        self.buckets[bucket].waiting.insert(self.turns, task);
        self.waits.insert(task, (bucket, self.turns));
        self.set_timer(bucket, now);
    }

    /// Removes a task that is held back. False if it is not.
    pub(super) fn leave(&mut self, task: u32) -> bool {
        if self.waits.is_empty() {
            return false;
        }
        let Some((bucket, turn)) = self.waits.remove(&task) else { return false };
        self.buckets[bucket].waiting.remove(&turn);
        true
    }

    /// Key for whose token a task waits, and the time of that, unless there will be none.
    pub(super) fn wait_of(&self, task: u32) -> Option<(&[u8], Option<u64>)> {
        let (bucket, _) = self.waits.get(&task)?;
        let bucket = &self.buckets[*bucket];
        Some((&bucket.key, bucket.timer))
    }

    /// Lets the buckets of a kind go, because its rate has changed.
    pub(super) fn retire(&mut self, kind: u32) {
        self.retired.extend(self.kinds.remove(&kind));
    }

    /// Time of the next [`pop_due`](Self::pop_due), in milliseconds.
    pub(super) fn next(&self) -> Option<u64> {
        if self.retired.is_empty() { self.timers.first() } else { Some(0) }
    }

    /// Handles the next bucket whose time has come. Returns the tasks to release; `None` if no bucket is due.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<Vec<u32>> {
        if let Some(retired) = self.retired.last_mut() {
            let first = retired.pop_first();
            if retired.is_empty() {
                self.retired.pop();
            }
            let Some((_, bucket)) = first else { return Some(Vec::new()) };
            let removed = self.remove(bucket);
            return Some(self.release(removed.waiting));
        }
        let (at, TimerEvent::Token(bucket)) = self.timers.pop_due(now)? else {
            unreachable!("buckets have timers of one type")
        };
        debug_assert_eq!(self.buckets[bucket].timer, Some(at));
        let due = &mut self.buckets[bucket];
        due.timer = None;
        let waiting = std::mem::take(&mut due.waiting);
        let is_full = due.tokens.as_mut().is_none_or(|tokens| tokens.full_at(now) == Some(now));
        if is_full {
            let KeyBucket { kind, key, .. } = self.remove(bucket);
            if let Some(of_kind) = self.kinds.get_mut(&kind) {
                of_kind.remove(&key);
                if of_kind.is_empty() {
                    self.kinds.remove(&kind);
                }
            }
        } else {
            self.set_timer(bucket, now);
        }
        Some(self.release(waiting))
    }

    fn release(&mut self, waiting: BTreeMap<u64, u32>) -> Vec<u32> {
        let tasks: Vec<u32> = waiting.into_values().collect();
        tasks.iter().for_each(|task| _ = self.waits.remove(task));
        tasks
    }

    fn remove(&mut self, bucket: u32) -> KeyBucket {
        let removed = self.buckets.remove(bucket);
        if let Some(at) = removed.timer {
            self.timers.call_off(at, TimerEvent::Token(bucket));
        }
        removed
    }

    fn set_timer(&mut self, bucket: u32, now: u64) {
        let changed = &mut self.buckets[bucket];
        let Some(tokens) = &mut changed.tokens else { return };
        let at = match changed.waiting.is_empty() {
            true => tokens.full_at(now),
            false => tokens.next(now),
        };
        let earlier = std::mem::replace(&mut changed.timer, at);
        if earlier == at {
            return;
        }
        if let Some(earlier) = earlier {
            self.timers.call_off(earlier, TimerEvent::Token(bucket));
        }
        if let Some(at) = at {
            self.timers.set(at, TimerEvent::Token(bucket));
        }
    }
}
