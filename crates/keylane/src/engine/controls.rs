//! Controls single keys of a running pool: pauses them, resumes them, and takes their waiting
//! tasks.
//!
//! Each operation is one section under the lock of the key's lanes, at no cost to other keys: see
//! `../order/lanes/pause.rs`.

use super::rate_state::PendingWakeups;
use super::*;
use crate::observe::{PauseReason, PausedKey};
use crate::order::{KeyStop, PauseReasons, TakenTasks, UnrunTask};
use crate::unwind::drop_catch_unwind;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Pauses a key. Returns false if it was paused already.
    pub(crate) fn pause_key(&self, key: &K) -> bool {
        let (shard, hash) = self.place_of(key);
        let now = self.clock.now();
        self.may_pause.store(true, Ordering::Release);
        let mut lanes = self.shards[shard].lanes.lock();
        let (slot, recall) = lanes.pause(hash, key, now);
        let reasons = lanes.pause_reasons(slot);
        let changes = reasons.paused.is_none();
        reasons.paused.get_or_insert(now);
        lanes.check();
        drop(lanes);
        self.set_timers(shard, PendingWakeups::recall(recall));
        changes
    }

    /// Resumes a key that was paused or stopped, and returns whether it was. Resets its failures,
    /// keeps its rate.
    pub(crate) fn resume_key(&self, key: &K) -> bool {
        let (shard, hash) = self.place_of(key);
        let mut lanes = self.shards[shard].lanes.lock();
        let mut held = false;
        self.clear_failures(&mut lanes, hash, key);
        let slot = lanes.slot_of(hash, key);
        let left =
            slot.and_then(|slot| lanes.release_pause(slot, |reasons| held = reasons.resume()));
        lanes.check();
        let offer = lanes.has_offer();
        drop(lanes);
        // A key's own drop is user code.
        drop_catch_unwind(left);
        if offer {
            self.mark_ready(shard);
        }
        self.resume_attempts();
        held
    }

    /// Takes out the tasks that have only this key and have not begun, in order, and releases
    /// everything they had acquired.
    pub(crate) fn take_key(&self, key: &K) -> Vec<UnrunTask<K, X::Work>> {
        let (shard, hash) = self.place_of(key);
        let mut lanes = self.shards[shard].lanes.lock();
        let mut inbox = self.shards[shard].inbox.lock();
        let may_take = |work: &X::Work| X::may_take(work) && !X::is_scoped(work);
        let TakenTasks { tasks: mut taken, left, recall, unused } =
            lanes.take_key(&mut inbox, hash, key, may_take);
        lanes.check();
        let offer = lanes.has_offer();
        drop((lanes, inbox));
        unused.into_iter().for_each(drop_catch_unwind);
        drop_catch_unwind(left);
        if offer {
            self.mark_ready(shard);
        }
        self.set_timers(shard, PendingWakeups::recall(recall));
        if let Some(bounds) = &self.bounds {
            self.intact(|| self.forget(bounds, &taken));
        }
        self.admission.release(taken.len());
        taken.append(&mut self.take_delayed(key));
        taken
    }

    /// Returns a kept turn, of a task with one key of which nothing has begun, to the front of the
    /// wait queue if its key was paused or stopped, with the work that `note` makes. Returns
    /// whether it did. If its worker has not finished its step yet, the task counts as taken and
    /// stays. If the key's `Clone` panics, nothing has changed.
    pub(crate) fn requeue_if_paused(
        &self,
        shard: usize,
        turn: usize,
        note: impl FnOnce() -> X::Work,
    ) -> Result<bool, KeyPanic> {
        if !self.may_pause.load(Ordering::Acquire) {
            return Ok(false);
        }
        let lanes = self.shards[shard].lanes.lock();
        let mut turns = self.shards[shard].turns.lock();
        let Some(held) = turns.held_alone(turn).filter(|held| lanes.must_wait_paused(held)) else {
            return Ok(false);
        };
        let key = catch_key_panic(|| lanes.copy_key(held))?;
        // No other thread ends this turn, so the lane stays with it until it is released below.
        let held = turns.withdraw(turn);
        drop((lanes, turns));
        self.check_end(shard, &held);
        let note = note();
        let mut lanes = self.shards[shard].lanes.lock();
        let recall = lanes.requeue_paused(held, key, note);
        lanes.check();
        let offer = lanes.has_offer();
        drop(lanes);
        if offer {
            self.mark_ready(shard);
        }
        self.set_timers(shard, PendingWakeups::recall(recall));
        Ok(true)
    }

    /// Returns the reason for which no task of a key begins, if there is one.
    pub(crate) fn paused_key(&self, key: &K) -> Option<PausedKey<K>> {
        let (shard, hash) = self.place_of(key);
        let lanes = self.shards[shard].lanes.lock();
        lanes.paused_key(hash, key).and_then(|held| self.describe(held))
    }

    /// Returns the keys of which no task begins.
    pub(crate) fn paused_keys(&self) -> Vec<PausedKey<K>> {
        let mut keys = Vec::new();
        for shard in &self.shards {
            let lanes = shard.lanes.lock();
            keys.extend(lanes.paused_keys().filter_map(|held| self.describe(held)));
        }
        keys
    }

    pub(super) fn describe(
        &self,
        (key, running, why): (&K, usize, &PauseReasons),
    ) -> Option<PausedKey<K>> {
        let paused = why.paused.map(|at| PauseReason::Paused { since: self.clock.since(at) });
        let stopped = why.stopped.map(|KeyStop { failures, at }| PauseReason::Stopped {
            failures,
            since: self.clock.since(at),
        });
        let limited =
            why.limited.map(|at| PauseReason::RateLimited { left: self.rates.left_until(at) });
        let hold = stopped.or(paused).or(limited)?;
        Some(PausedKey { key: key.clone(), hold, running })
    }

    /// Returns the shard of a key, and the half of its hash in [`TaskMeta::hash`].
    pub(super) fn place_of(&self, key: &K) -> (usize, u32) {
        let hash = self.hasher.hash_one(key);
        (self.shard_of(hash), hash as u32)
    }
}
