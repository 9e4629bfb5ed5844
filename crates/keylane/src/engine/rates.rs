//! Tasks that may begin only so often: those of a key, and all of the pool.
//!
//! # The rate of a key
//! is kept in its lanes: `../order/lanes/rate.rs`. A worker charges the task that it takes, in the section in
//! which it takes it; a rollup in each of its shards, before the body begins. When the next token of a key that
//! is held comes, the timer's thread lets it go on.
//!
//! # The rate of the pool
//! 1. A worker takes a token before it looks for a task, in the same step, and puts it back if it finds none.
//!    Without a token it only ends the task that it has run.
//! 2. Who finds no token *shuts* the pool, and sets the timer for when the next one comes. While it is shut
//!    workers behave as if nothing were offered.
//! 3. The timer, or whoever puts a token back, opens the pool and, if anything is offered, tells a worker that sleeps.
//!
//! # Why no offer is overlooked
//! `shut` is to a worker that falls asleep as a bit of the ready bitmap: it is lowered by a read-modify-write, and read
//! by one when the worker is on the list of sleepers. If that read sees it raised, it is lowered later, by
//! somebody who sees the worker on the list, and then looks at the ready bitmap. From there it is the proof in
//! `../run/idle.rs`. It is raised and lowered under the lock of the bucket, by whoever has just seen that there
//! is no token, or is one; and whoever raises it sets the timer. So it is never raised for good.

#[cfg(all(test, loom))]
mod models;

use std::time::Duration;

use super::*;
use crate::error::BuildError;
use crate::order::{Bucket, RateDeadline, Role};
use crate::run::{RateClock, Timer};
use crate::unwind::drop_catch_unwind;

/// So long a bucket that is full is remembered at the least. Short against what it costs to keep it, long
/// against looking for those that can be forgotten.
const SWEEP_NANOS: u64 = 1_000_000_000;

/// How often tasks may begin.
#[derive(Debug)]
pub(crate) struct Rates {
    time: RateClock,
    timer: Timer<Wakeup>,
    /// What the tasks of all keys take their tokens from. Taken under the lock of a shard's lanes, and
    /// no other lock but the timer's is taken under it.
    pool: Mutex<PoolRate>,
    /// Whether the pool has a rate. Written under `pool`, read without it.
    limits_pool: AtomicBool,
    /// There is no token for the pool, and the timer will tell when there is one. Written under `pool`, read
    /// without it.
    shut: AtomicBool,
}

#[derive(Debug)]
struct PoolRate {
    rate: Option<Rate>,
    bucket: Bucket,
}

/// What the timer's thread is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wakeup {
    /// Open the pool.
    Open,
    /// Look at a lane that is held.
    RateDeadline { shard: usize, slot: usize },
    /// Forget what is out of date.
    Sweep { shard: usize },
}

/// What the timer is to be told when the lanes are unlocked.
#[derive(Debug, Default)]
pub(super) struct PendingWakeups {
    recall: Option<RateDeadline>,
    sweep: Option<u64>,
}

impl PendingWakeups {
    /// A key is to be looked at, and nothing else.
    pub(super) fn recall(recall: Option<RateDeadline>) -> Self {
        PendingWakeups { recall, sweep: None }
    }
}

impl Rates {
    pub(super) fn new(settings: &EngineSettings) -> Self {
        Rates {
            time: RateClock::new(settings.clock.clone()),
            timer: Timer::new(),
            pool: Mutex::new(PoolRate { rate: settings.rate, bucket: Bucket::default() }),
            limits_pool: AtomicBool::new(settings.rate.is_some()),
            shut: AtomicBool::new(false),
        }
    }

    /// Whether nothing may begin.
    #[inline]
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// The same, read so that it is ordered with its lowering.
    fn is_shut_synced(&self) -> bool {
        self.shut.fetch_or(false, Ordering::AcqRel)
    }

    pub(crate) fn limits_pool(&self) -> bool {
        self.limits_pool.load(Ordering::Acquire)
    }

    /// How long it is until then.
    pub(super) fn left_until(&self, at: u64) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.time.now()))
    }

    /// How long nothing begins, if the pool is shut.
    pub(super) fn shut_for(&self) -> Option<Duration> {
        let pool = self.pool.lock();
        let rate = pool.rate.filter(|_| self.is_shut())?;
        Some(self.left_until(pool.bucket.next_at(rate)))
    }

    /// Takes a token of the pool, if there is one or it needs none. Else it is shut.
    fn take(&self) -> bool {
        let mut pool = self.pool.lock();
        let Some(rate) = pool.rate else { return true };
        let (now, next) = (self.time.now(), pool.bucket.next_at(rate));
        if next <= now {
            pool.bucket.take(rate, now);
            return true;
        }
        if !self.shut.swap(true, Ordering::AcqRel) {
            self.timer.set(None, Some(next), Wakeup::Open);
        }
        false
    }

    /// Opens the pool, unless there is still no token. Returns whether it was shut.
    fn open(&self, pool: &PoolRate) -> bool {
        if let Some(rate) = pool.rate
            && let next = pool.bucket.next_at(rate)
            && next > self.time.now()
        {
            if self.is_shut() {
                self.timer.set(None, Some(next), Wakeup::Open);
            }
            return false;
        }
        self.shut.swap(false, Ordering::AcqRel)
    }

    /// The pool is stopped: nothing will begin any more.
    pub(super) fn end(&self) {
        self.timer.end();
    }

    pub(super) fn join(&self) {
        self.timer.join();
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Whether a worker would find anything that may begin.
    pub(crate) fn offers_anything(&self) -> bool {
        !self.rates.is_shut() && (self.ready_shards.any() || self.sharing.offers())
    }

    /// The same for one that is about to fall asleep.
    pub(crate) fn offers_synced(&self) -> bool {
        !self.rates.is_shut_synced()
            && (self.ready_shards.any_synced() || self.sharing.offers_synced())
    }

    /// Takes what somebody needs to let a task begin, if it can be had now.
    #[inline]
    pub(crate) fn take_token(&self) -> bool {
        !self.rates.limits_pool() || self.rates.take()
    }

    /// Puts that back: no task has begun.
    pub(crate) fn return_token(&self) {
        if !self.rates.limits_pool() {
            return;
        }
        let mut pool = self.rates.pool.lock();
        if let Some(rate) = pool.rate {
            pool.bucket.give_back(rate);
        }
        if self.rates.is_shut() {
            self.open(pool);
        }
    }

    /// Opens the pool if it may be, and has a worker look.
    fn open(&self, pool: MutexGuard<'_, PoolRate>) {
        let opened = self.rates.open(&pool);
        drop(pool);
        if opened && (self.ready_shards.any_synced() || self.sharing.offers_synced()) {
            self.idle.notify_work();
        }
    }

    /// A token was taken for what has been found, if anything was.
    pub(super) fn spend_token(
        &self,
        next: Option<&StepResult<K, X::Work>>,
        task_slot: &TaskSlot<K, X::Work>,
    ) {
        let Some(next) = next else { return self.return_token() };
        if self.rates.limits_pool() && !task_slot.peek().is_some_and(X::may_take) {
            // It stands in the lane for a subtask, which takes one when a worker comes for it.
            self.return_token();
        }
        if let Held::Rollup(rollup) = &next.held
            && rollup.role == Role::None
        {
            self.charge_rollup(rollup);
        }
    }

    /// The task that is taken takes a token of its key.
    pub(super) fn charge(
        &self,
        lanes: &mut Lanes<K, X::Work>,
        held: &Held<K, X::Work>,
    ) -> PendingWakeups {
        if !lanes.is_metered() {
            return PendingWakeups::default();
        }
        let now = self.rates.time.now();
        let recall = match held {
            Held::Lane(slot) => lanes.charge_lane(*slot, now),
            Held::Rollup(rollup) if rollup.role != Role::None => {
                let (hash, key, _) = rollup.claim(0);
                lanes.charge_key(hash, key, now)
            }
            Held::Free | Held::Rollup(_) => None,
        };
        PendingWakeups { recall, sweep: lanes.schedule_sweep(now, SWEEP_NANOS) }
    }

    /// The same of a task with several keys, which holds all their lanes.
    #[cold]
    fn charge_rollup(&self, rollup: &Rollup<K, X::Work>) {
        let Scope::Keys(claims) = &rollup.scope else { return };
        for (hash, claim) in claims {
            let shard = self.shard_of(*hash);
            let mut lanes = self.shards[shard].lanes.lock();
            if !lanes.is_metered() {
                continue;
            }
            let now = self.rates.time.now();
            let recall = lanes.charge_key(*hash as u32, &claim.key, now);
            let sweep = lanes.schedule_sweep(now, SWEEP_NANOS);
            lanes.check();
            drop(lanes);
            self.set_timers(shard, PendingWakeups { recall, sweep });
        }
    }

    /// Tells the timer.
    #[inline]
    pub(super) fn set_timers(&self, shard: usize, wakeups: PendingWakeups) {
        if let Some(RateDeadline { slot, was, until }) = wakeups.recall {
            self.rates.timer.set(was, until, Wakeup::RateDeadline { shard, slot });
        }
        if wakeups.sweep.is_some() {
            self.rates.timer.set(None, wakeups.sweep, Wakeup::Sweep { shard });
        }
    }

    /// What the timer's thread does.
    fn fire(&self, wakeup: Wakeup) {
        let now = self.rates.time.now();
        match wakeup {
            Wakeup::Open => self.open(self.rates.pool.lock()),
            Wakeup::RateDeadline { shard, slot } => {
                let mut lanes = self.shards[shard].lanes.lock();
                let (recall, left) = lanes.rate_deadline_passed(slot, now);
                lanes.check();
                let offer = lanes.has_offer();
                drop(lanes);
                self.after_change(shard, recall, left, offer);
            }
            Wakeup::Sweep { shard } => {
                let mut lanes = self.shards[shard].lanes.lock();
                lanes.sweep_rates(now);
                let sweep = lanes.schedule_sweep(now, SWEEP_NANOS);
                drop(lanes);
                self.set_timers(shard, PendingWakeups { recall: None, sweep });
            }
        }
    }

    /// A key has been held or let go: what follows from it when its lanes are unlocked.
    fn after_change(
        &self,
        shard: usize,
        recall: Option<RateDeadline>,
        left: Option<K>,
        offer: bool,
    ) {
        // A key's own drop is user code.
        drop_catch_unwind(left);
        if offer {
            self.mark_ready(shard);
        }
        self.set_timers(shard, PendingWakeups::recall(recall));
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> Engine<K, X, S> {
    /// Keeps rates from now on, if it is not done: each step looks closer, in all shards, for a
    /// rollup may be taken in any of its own.
    pub(crate) fn keep_rates(self: &Arc<Self>) -> Result<(), BuildError> {
        let engine = self.clone();
        let run = move || {
            engine.rates.timer.run(&engine.rates.time, |wakeup| {
                engine.intact_quietly(|| engine.fire(wakeup));
            })
        };
        let name = format!("{}-rates", self.settings.thread_name);
        self.rates.timer.start(name, run).map_err(BuildError::Thread)?;
        // Also if they are kept already: whoever has begun to keep them may not be as far as this.
        self.shards.iter().for_each(|shard| shard.lanes.lock().is_checked = true);
        Ok(())
    }

    /// Changes how often tasks may begin.
    pub(crate) fn set_rate(self: &Arc<Self>, rate: Option<Rate>) -> Result<(), BuildError> {
        self.keep_rates()?;
        let mut pool = self.rates.pool.lock();
        let now = self.rates.time.now();
        match (pool.rate, rate) {
            (Some(before), Some(after)) => pool.bucket.change(before, after, now),
            _ => pool.bucket = Bucket::default(),
        }
        pool.rate = rate;
        self.rates.limits_pool.store(rate.is_some(), Ordering::Release);
        self.open(pool);
        Ok(())
    }

    /// Changes how often tasks of each key may begin that has no rate of its own.
    pub(crate) fn set_rate_per_key(self: &Arc<Self>, rate: Option<Rate>) -> Result<(), BuildError> {
        self.keep_rates()?;
        for (index, shard) in self.shards.iter().enumerate() {
            let (changes, offer) = self.intact(|| {
                let mut lanes = shard.lanes.lock();
                let changes = lanes.set_common_rate(rate, self.rates.time.now());
                lanes.check();
                (changes, lanes.has_offer())
            });
            for (recall, left) in changes {
                self.after_change(index, recall, left, offer);
            }
        }
        Ok(())
    }

    /// Gives a key a rate of its own, or takes it away.
    pub(crate) fn set_rate_of(
        self: &Arc<Self>,
        key: &K,
        rate: Option<Rate>,
    ) -> Result<(), BuildError> {
        self.keep_rates()?;
        let (shard, hash) = self.place_of(key);
        let (recall, left, offer) = self.intact(|| {
            let mut lanes = self.shards[shard].lanes.lock();
            let (recall, left) = lanes.set_rate_of(hash, key, rate, self.rates.time.now());
            lanes.check();
            (recall, left, lanes.has_offer())
        });
        self.after_change(shard, recall, left, offer);
        Ok(())
    }
}
