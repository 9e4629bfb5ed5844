//! Tasks that wait for a token of a key: no subtask of a kind with a rate per key starts without a token of
//! each key that it does not share.
//!
//! A task that would become ready is held back if one of its keys has no token (`key_rates.rs`). A
//! token is taken at the start. Several ready tasks may have one limited key; those that find its
//! tokens taken when their turn comes are held back then. A task that is released looks at all its
//! keys again, so it may be held back by another one. It holds no token meanwhile.

use super::RateLimit;
use super::state::Scheduler;
use super::task::TaskPhase;

/// Maximum number of buckets that one search for a start looks at.
const MAX_RELEASED: usize = 1024;

impl Scheduler {
    fn rate_per_key(&self, slot: u32) -> Option<RateLimit> {
        self.kinds.look(self.jobs[slot].kind)?.limits.rate_per_key
    }

    /// Holds back a task that is about to be ready, if one of its keys has no token. The task then waits.
    pub(super) fn lacks_key_token(&mut self, slot: u32, task: u32, now: u64) -> bool {
        if self.rate_per_key(slot).is_none() || !self.tasks[task].is_subtask() {
            return false;
        }
        let kind = self.jobs[slot].kind.0;
        let Scheduler { lanes, tasks, key_rates, .. } = self;
        let mut keys = lanes.own_keys(tasks, task);
        let empty = keys.find_map(|key| key_rates.find_empty(kind, key, now));
        drop(keys);
        let Some(bucket) = empty else { return false };
        key_rates.hold_back(bucket, task, now);
        tasks[task].blocked += 1;
        true
    }

    /// Holds back the task that the job would start next, if one of its keys has no token.
    pub(super) fn is_held_by_key(&mut self, slot: u32, now: u64) -> bool {
        let Some(task) = self.jobs[slot].ready.first() else { return false };
        if self.ready_step(slot).is_some() || !self.lacks_key_token(slot, task, now) {
            return false;
        }
        self.wait_again(task, now);
        true
    }

    /// Takes a token of each key of a task that starts.
    pub(super) fn take_key_tokens(&mut self, slot: u32, task: u32, now: u64) {
        let Some(rate) = self.rate_per_key(slot) else { return };
        let kind = self.jobs[slot].kind.0;
        let Scheduler { lanes, tasks, key_rates, .. } = self;
        for key in lanes.own_keys(tasks, task) {
            key_rates.take(kind, rate, key, now);
        }
    }

    /// Releases the tasks of the next bucket whose time has come. False if none is due.
    pub(super) fn release_due_key(&mut self, now: u64) -> bool {
        let Some(released) = self.key_rates.pop_due(now) else { return false };
        for task in released {
            self.tasks[task].blocked -= 1;
            let is_free = self.tasks[task].blocked == 0;
            if is_free && self.tasks[task].phase == TaskPhase::Waiting && !self.is_dropped(task) {
                self.wake(task, now);
            }
        }
        true
    }

    /// Releases tasks of due buckets, up to a bound, until the allocator has work. False if it has none.
    pub(super) fn release_until_offered(&mut self, now: u64) -> bool {
        for _ in 0..MAX_RELEASED {
            if !self.release_due_key(now) {
                return false;
            }
            if self.allocator.peek(now).is_some() {
                return true;
            }
        }
        false
    }

    /// Number of keys that have started lately, so that a later start may have to wait for a token.
    #[must_use]
    pub fn keys_with_rate(&self) -> usize {
        self.key_rates.len()
    }
}
