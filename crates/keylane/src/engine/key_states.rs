//! States of keys for handlers: the engine's part, and their expiry.
//!
//! `../admit/kept_states.rs` has the protocol of a state. A sweep of idle states is work of a worker
//! whose time has come, as a further attempt is: see `attempts.rs`.
//!
//! # Why no idle state is left without a sweep
//! A put makes the state visible under the lock of its part, and then exchanges `is_scheduled`. If it
//! reads true, a sweep has not reset the flag yet. The sweep resets it by an exchange that reads the
//! put's or a later one, so its scan comes after the put, and it schedules the next sweep if it
//! leaves a state of an idle key. A key that is not idle then puts its state again, or ends without.

use std::sync::Weak;

use super::attempt_queue::NextAttempt;
use super::rate_state::TimerEvent;
use super::state_expiry::StateExpiry;
use super::*;
use crate::key_state::ErasedKeyState;
use crate::run::{AttemptEngine, RetryAttempt};

/// Sweep of idle states. Does not keep the engine alive.
struct Sweep<K: Key, X: Execute<K>, S>(Weak<Engine<K, X, S>>);

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> Engine<K, X, S> {
    /// Takes the state of a running task's key.
    pub(crate) fn take_state(&self, key: &K) -> Option<ErasedKeyState> {
        let keys = self.bounds.as_ref()?.keys.as_ref()?;
        self.intact(|| keys.take_state(&self.key_ref(self.hasher.hash_one(key), key)))
    }

    /// Puts the state of a running task's key back. Returns it if it ends with the task.
    pub(crate) fn put_state(
        self: &Arc<Self>,
        key: &K,
        state: ErasedKeyState,
    ) -> Option<ErasedKeyState> {
        let Some(bounds) = &self.bounds else { return Some(state) };
        let Some(keys) = &bounds.keys else { return Some(state) };
        let now = if bounds.expiry.is_some() { self.rates.now() } else { 0 };
        let key_ref = self.key_ref(self.hasher.hash_one(key), key);
        let ended = self.intact(|| keys.put_state(&key_ref, state, now));
        if let Some(expiry) = &bounds.expiry
            && ended.is_none()
        {
            self.schedule_sweep(expiry, now);
        }
        ended
    }

    /// Schedules a sweep for states that were last used at `last_use`, unless there is one.
    fn schedule_sweep(self: &Arc<Self>, expiry: &StateExpiry, last_use: u64) {
        if !expiry.must_schedule() {
            return;
        }
        let at = last_use.saturating_add(expiry.idle);
        let number = self.attempts.number();
        let sweep = Arc::new(Sweep(Arc::downgrade(self)));
        if self.attempts.schedule(number, at, NextAttempt::here(sweep, None)) {
            self.rates.set_alarm(None, Some(at), TimerEvent::Attempt { number });
        }
    }

    fn sweep_states(self: &Arc<Self>) {
        let Some(bounds) = &self.bounds else { return };
        let (Some(keys), Some(expiry)) = (&bounds.keys, &bounds.expiry) else { return };
        expiry.begin_sweep();
        let now = self.rates.now();
        let expired = now.checked_sub(expiry.idle);
        let earliest = self.intact(|| expired.map(|until| keys.expire_states(until)));
        // Sweeps have a quarter of the time between them, so that few states are no frequent work.
        let soonest = now.saturating_sub(expiry.idle - expiry.idle / 4);
        match earliest {
            None => self.schedule_sweep(expiry, now),
            Some(None) => {}
            Some(Some(last_use)) => self.schedule_sweep(expiry, last_use.max(soonest)),
        }
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> RetryAttempt
    for Sweep<K, X, S>
{
    fn run(self: Arc<Self>, _: &Arc<dyn AttemptEngine>) {
        if let Some(engine) = self.0.upgrade() {
            engine.intact_quietly(|| engine.sweep_states());
        }
    }

    fn give_up(&self) {}

    fn is_task(&self) -> bool {
        false
    }
}
