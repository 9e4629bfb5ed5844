//! Further attempts of failed work: each waits for its time without a worker, and is then run by one
//! of them.
//!
//! The work keeps its turn, so its lanes are held and no other part of the engine takes part: this
//! is a queue beside the shards.
//!
//! # Protocol
//! 1. Schedule: under the lock of the queue, put the attempt into `waiting`, unless the engine has
//!    stopped; then set the timer.
//! 2. Due, on the timer thread: under the lock, move the attempt to `ready` and count it; then wake a
//!    worker, as a thread does that sets a bit of the ready bitmap (`../run/idle.rs`).
//! 3. Take: a worker between two slices that reads a count above zero takes the first of `ready`.
//! 4. Paused: if one of its keys is paused or stopped, the worker puts the attempt into `paused`, and
//!    then looks at the keys once more: if none is paused any more, it takes the attempt out again,
//!    if it is still there.
//! 5. Resume: after a key was resumed, under the lock, move all of `paused` to `ready`, as in 2.
//! 6. Stop: under the lock, set `over` and take all attempts; then end their work as cancelled.
//!
//! # Why no attempt is left while a worker sleeps
//! The count is one more word that a worker reads with a read-modify-write when it is on the list of
//! sleepers, and that is raised by one: the proof in `../run/idle.rs` holds for it as for a bit. A
//! worker that was woken and takes an attempt passes the wake-up on.
//!
//! # Why no attempt stays paused after its key was resumed
//! A key is resumed under the lock of its lanes, before step 5. If the second look of step 4 sees the
//! key paused, that section comes later, and step 5 finds the attempt in the list. Otherwise the
//! worker takes the attempt out itself.
//!
//! # Cancellation
//! The cell of the work decides between the next attempt and a cancellation
//! (`../complete/retry_task.rs`). An attempt of cancelled work is withdrawn, or is taken and finds
//! nothing to do.

#[cfg(all(test, loom))]
mod models;

use std::any::Any;

use super::attempt_queue::NextAttempt;
use super::rate_state::TimerEvent;
use super::*;
use crate::run::{AttemptEngine, RetryAttempt};
use crate::unwind::call_catch_unwind;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Takes an attempt that may begin now, if there is one.
    pub(crate) fn take_attempt(&self) -> Option<NextAttempt> {
        loop {
            let (number, attempt) = self.attempts.pop()?;
            let turn = attempt.turn;
            if !self.is_turn_paused(turn) {
                return Some(attempt);
            }
            if let Some(attempt) = self.attempts.pause(number, attempt) {
                self.give_up(&attempt);
                return None;
            }
            if !self.is_turn_paused(turn)
                && let Some(attempt) = self.attempts.unpause(number)
            {
                return Some(attempt);
            }
        }
    }

    /// Returns whether one of the keys of a kept turn is paused until it is resumed.
    fn is_turn_paused(&self, turn: Option<(usize, usize)>) -> bool {
        let Some((shard, turn)) = turn else { return false };
        if !self.may_pause.load(Ordering::Acquire) {
            return false;
        }
        let lanes = self.shards[shard].lanes.lock();
        let turns = self.shards[shard].turns.lock();
        let rollup = match turns.held(turn) {
            Some(HeldLanes::Lane(slot)) => return lanes.is_slot_paused(*slot),
            Some(HeldLanes::Rollup(rollup)) => rollup.clone(),
            Some(HeldLanes::Free) | None => return false,
        };
        drop((lanes, turns));
        let RollupScope::Keys(claims) = &rollup.scope else { return false };
        claims.iter().any(|part| {
            let lanes = self.shards[self.shard_of(part.hash)].lanes.lock();
            part.held_slot().is_some_and(|slot| lanes.is_slot_paused(slot))
        })
    }

    /// Step 5.
    pub(super) fn resume_attempts(&self) {
        if self.attempts.resume_all() {
            self.idle.notify_work();
        }
    }

    /// Step 2, on the timer thread.
    pub(super) fn attempt_is_due(&self, number: u64) {
        if self.attempts.make_ready(number) {
            self.idle.notify_work();
        }
    }

    /// Step 6.
    pub(super) fn end_attempts(&self) {
        self.attempts.end().iter().for_each(|attempt| self.give_up(attempt));
    }

    fn give_up(&self, attempt: &NextAttempt) {
        if attempt.is_task() {
            self.counters.count_cancelled();
        }
        // Drops captures of the user.
        call_catch_unwind(|| attempt.give_up());
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> AttemptEngine
    for Engine<K, X, S>
{
    fn now(&self) -> u64 {
        self.rates.now()
    }

    fn is_stopping(&self) -> bool {
        self.stopping()
    }

    fn number_attempt(&self) -> u64 {
        self.attempts.number()
    }

    fn schedule_attempt(
        &self,
        number: u64,
        delay: Duration,
        work: Arc<dyn RetryAttempt>,
        turn: Option<(usize, usize)>,
    ) -> bool {
        let delay = u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX);
        let at = self.rates.now().saturating_add(delay);
        if !self.attempts.schedule(number, at, NextAttempt::here(work, turn)) {
            return false;
        }
        self.counters.count_retried();
        self.rates.set_alarm(None, Some(at), TimerEvent::Attempt { number });
        true
    }

    fn run_soon(&self, work: Arc<dyn RetryAttempt>, turn: Option<(usize, usize)>) {
        let number = self.attempts.number();
        if self.attempts.schedule(number, 0, NextAttempt::here(work, turn)) {
            // No timer is involved: the time has come.
            self.attempt_is_due(number);
        }
    }

    fn withdraw_attempt(&self, number: u64) {
        if let Some(at) = self.attempts.withdraw(number) {
            self.rates.set_alarm(Some(at), None, TimerEvent::Attempt { number });
        }
    }

    fn cancelled(&self) {
        self.counters.count_cancelled();
    }

    fn failed(&self) {
        self.counters.count_failed();
    }

    fn panicked(&self, payload: &(dyn Any + Send)) {
        Engine::panicked(self, payload);
    }
}
