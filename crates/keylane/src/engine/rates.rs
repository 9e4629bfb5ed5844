//! Limits the rate at which tasks begin: of each key, and of the whole pool.
//!
//! # Rate of a key
//! It is enforced in the key's lanes: `../order/lanes/rate.rs`. A worker charges the task that it
//! takes, in the section in which it takes it; a rollup is charged in each of its shards, before
//! the body begins. When the next token of a paused key comes, the timer thread resumes the key.
//!
//! # Rate of the pool
//! 1. A worker takes a token before it looks for a task, in the same step, and returns it if it
//!    finds none. Without a token it only ends the task that it has run.
//! 2. A worker that finds no token *shuts* the pool, and sets the timer for the time of the next
//!    one. While the pool is shut, workers behave as if nothing were offered.
//! 3. The timer, or a worker that returns a token, opens the pool and, if anything is offered,
//!    notifies a sleeping worker.
//!
//! # Why no offer is overlooked
//! For a worker that falls asleep, `shut` is like a bit of the ready bitmap: it is cleared by a
//! read-modify-write, and read by one when the worker is on the list of sleepers. If that read sees
//! it set, it is cleared later, by a thread that sees the worker on the list, and then looks at the
//! ready bitmap. From there it is the proof in `../run/idle.rs`. It is set and cleared under the
//! lock of the bucket, by a thread that has just seen that there is no token, or is one; and the
//! thread that sets it sets the timer. So it is never set for good.

#[cfg(all(test, loom))]
mod models;

use super::rate_state::{PendingWakeups, PoolRate, SWEEP_NANOS, TimerEvent};
use super::*;
use crate::error::BuildError;
use crate::order::{MarkerRole, RateDeadline, TokenBucket};
use crate::unwind::drop_catch_unwind;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Returns whether there is work for a worker that may begin now.
    pub(crate) fn offers_anything(&self) -> bool {
        self.attempts.is_ready()
            || !self.rates.is_shut() && (self.ready_shards.any() || self.sharing.offers())
    }

    /// Returns whether there is work that may begin now, for a worker that is about to fall asleep.
    pub(crate) fn offers_synced(&self) -> bool {
        self.attempts.is_ready_synced()
            || !self.rates.is_shut_synced()
                && (self.ready_shards.any_synced() || self.sharing.offers_synced())
    }

    /// Takes a token of the pool for a task, if there is one now.
    #[inline]
    pub(crate) fn take_token(&self) -> bool {
        !self.rates.limits_pool() || self.rates.take()
    }

    /// Returns a token with which no task has begun.
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

    /// Opens the pool if there is a token, and notifies a worker.
    fn open(&self, pool: MutexGuard<'_, PoolRate>) {
        let opened = self.rates.open(&pool);
        drop(pool);
        if opened && (self.ready_shards.any_synced() || self.sharing.offers_synced()) {
            self.idle.notify_work();
        }
    }

    /// Uses the token for the task that was found, or returns it if there is none.
    pub(super) fn spend_token(
        &self,
        next: Option<&StepResult<K, X::Work>>,
        task_slot: &mut TaskSlot<K, X::Work>,
    ) {
        let Some(next) = next else { return self.return_token() };
        if self.rates.limits_pool() && !task_slot.peek().is_some_and(X::may_take) {
            // The entry acts for a subtask in its lane; the subtask takes a token when a worker
            // comes for it.
            self.return_token();
        }
        if let HeldLanes::Rollup(rollup) = &next.held
            && rollup.role == MarkerRole::None
            && let Err(payload) = self.charge_rollup(rollup)
        {
            task_slot.fail(payload);
        }
    }

    /// Charges the key of the task that was taken. If the key panics, the task fails.
    pub(super) fn charge(
        &self,
        lanes: &mut Lanes<K, X::Work>,
        held: &HeldLanes<K, X::Work>,
        task_slot: &mut TaskSlot<K, X::Work>,
    ) -> PendingWakeups {
        if !lanes.is_metered() {
            return PendingWakeups::default();
        }
        let now = self.rates.time.now();
        let charged = match held {
            HeldLanes::Lane(slot) => lanes.charge_lane(*slot, now),
            HeldLanes::Rollup(rollup) if rollup.role != MarkerRole::None => {
                lanes.charge_lane(rollup.held_slot(), now)
            }
            HeldLanes::Free | HeldLanes::Rollup(_) => Ok(None),
        };
        let recall = charged.unwrap_or_else(|payload| {
            task_slot.fail(payload);
            None
        });
        PendingWakeups { recall, sweep: lanes.schedule_sweep(now, SWEEP_NANOS) }
    }

    /// Charges all keys of a rollup, which holds their lanes.
    #[cold]
    fn charge_rollup(&self, rollup: &Rollup<K, X::Work>) -> Result<(), KeyPanic> {
        let RollupScope::Keys(claims) = &rollup.scope else { return Ok(()) };
        for part in claims {
            let shard = self.shard_of(part.hash);
            let mut lanes = self.shards[shard].lanes.lock();
            if !lanes.is_metered() {
                continue;
            }
            let now = self.rates.time.now();
            let slot = part.held_slot().expect("a task that begins holds its lanes");
            let recall = lanes.charge_lane(slot, now)?;
            let sweep = lanes.schedule_sweep(now, SWEEP_NANOS);
            lanes.check();
            drop(lanes);
            self.set_timers(shard, PendingWakeups { recall, sweep });
        }
        Ok(())
    }

    /// Applies the changes to the timer.
    #[inline]
    pub(super) fn set_timers(&self, shard: usize, wakeups: PendingWakeups) {
        if let Some(RateDeadline { slot, was, until }) = wakeups.recall {
            self.rates.timer.set(was, until, TimerEvent::RateDeadline { shard, slot });
        }
        if wakeups.sweep.is_some() {
            self.rates.timer.set(None, wakeups.sweep, TimerEvent::Sweep { shard });
        }
    }

    /// Handles a wake-up, on the timer thread.
    fn fire(&self, wakeup: TimerEvent) {
        let now = self.rates.time.now();
        match wakeup {
            TimerEvent::Open => self.open(self.rates.pool.lock()),
            TimerEvent::Attempt { number } => self.attempt_is_due(number),
            TimerEvent::Delayed { .. } => unreachable!("the timer enters delayed tasks itself"),
            TimerEvent::RateDeadline { shard, slot } => {
                let mut lanes = self.shards[shard].lanes.lock();
                let (recall, left) = lanes.rate_deadline_passed(slot, now);
                lanes.check();
                let offer = lanes.has_offer();
                drop(lanes);
                self.after_change(shard, recall, left, offer);
            }
            TimerEvent::Sweep { shard } => {
                let mut lanes = self.shards[shard].lanes.lock();
                lanes.sweep_rates(now);
                let sweep = lanes.schedule_sweep(now, SWEEP_NANOS);
                drop(lanes);
                self.set_timers(shard, PendingWakeups { recall: None, sweep });
            }
        }
    }

    /// Follows up on a key that was paused or resumed, after its lanes are unlocked.
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
    /// Starts the timer, unless it runs.
    pub(crate) fn start_timer(self: &Arc<Self>) -> std::io::Result<()> {
        let engine = self.clone();
        let run = move || {
            engine.rates.timer.run(&engine.rates.time, |wakeup| match wakeup {
                TimerEvent::Delayed { number } => engine.delay_is_over(number),
                wakeup => engine.intact_quietly(|| engine.fire(wakeup)),
            })
        };
        self.rates.timer.start(format!("{}-timer", self.settings.thread_name), run)
    }

    /// Enables rate limits, if they are not: marks all shards as checked, since a rollup may be
    /// taken in any of its own, and starts the timer.
    pub(crate) fn keep_rates(self: &Arc<Self>) -> Result<(), BuildError> {
        self.start_timer().map_err(BuildError::Thread)?;
        // Also if they are enabled already: the thread that enabled them may not have reached this
        // line.
        self.shards.iter().for_each(|shard| shard.lanes.lock().is_checked = true);
        Ok(())
    }

    /// Changes the rate of the pool.
    pub(crate) fn set_rate(self: &Arc<Self>, rate: Option<Rate>) -> Result<(), BuildError> {
        self.keep_rates()?;
        let mut pool = self.rates.pool.lock();
        let now = self.rates.time.now();
        match (pool.rate, rate) {
            (Some(before), Some(after)) => pool.bucket.change(before, after, now),
            _ => pool.bucket = TokenBucket::default(),
        }
        pool.rate = rate;
        self.rates.limits_pool.store(rate.is_some(), Ordering::Release);
        self.open(pool);
        Ok(())
    }

    /// Changes the rate of all keys without one of their own.
    pub(crate) fn set_rate_per_key(self: &Arc<Self>, rate: Option<Rate>) -> Result<(), BuildError> {
        self.keep_rates()?;
        for (index, shard) in self.shards.iter().enumerate() {
            let mut lanes = shard.lanes.lock();
            let changes = lanes.set_common_rate(rate, self.rates.time.now());
            lanes.check();
            let offer = lanes.has_offer();
            drop(lanes);
            for (recall, left) in changes {
                self.after_change(index, recall, left, offer);
            }
        }
        Ok(())
    }

    /// Sets or removes a key's own rate.
    pub(crate) fn set_rate_of(
        self: &Arc<Self>,
        key: &K,
        rate: Option<Rate>,
    ) -> Result<(), BuildError> {
        self.keep_rates()?;
        let (shard, hash) = self.place_of(key);
        let mut lanes = self.shards[shard].lanes.lock();
        let (recall, left) = lanes.set_rate_of(hash, key, rate, self.rates.time.now());
        lanes.check();
        let offer = lanes.has_offer();
        drop(lanes);
        self.after_change(shard, recall, left, offer);
        Ok(())
    }
}
