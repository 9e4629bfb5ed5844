//! Limits the rate at which tasks of a key begin.
//!
//! A task is charged under the lock under which it is taken. If it took the last token of its key,
//! the key is paused in the same section until the next token comes. So a key that is not paused
//! has a token, a worker that takes a task need not check, and tasks of other keys pay nothing.

use super::*;
use crate::order::TokenBucket;
use crate::order::rate::Rate;
use crate::order::rate_limiter::{RateDeadline, RateLimiter};

/// Time after which the timer looks again at a lane whose key has panicked, in nanoseconds.
const RETRY_NANOS: u64 = 1_000_000;

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Charges the task that has just been taken and holds or shares this lane. Pauses its key if
    /// no further task may begin now.
    /// If the key panics, nothing has changed, and the task must not run.
    pub(crate) fn charge_lane(
        &mut self,
        slot: usize,
        now: u64,
    ) -> Result<Option<RateDeadline>, KeyPanic> {
        let lane = &self.lanes[slot];
        let key = lane.key.as_ref().expect("a held lane has a key");
        let Some(limiter) = &mut self.limiter else { return Ok(None) };
        let until = catch_key_panic(|| limiter.charge(lane.hash, key, now))?;
        Ok(until.map(|until| self.pause_for_rate(slot, until)))
    }

    fn pause_for_rate(&mut self, slot: usize, until: u64) -> RateDeadline {
        if self.lanes[slot].holders.count() > 1 {
            // Other sharers may be granted beside it that no worker has taken.
            self.pause_lane(slot);
        } else if !self.paused.contains_key(&slot) {
            self.lanes[slot].waiting.push_front(LaneEntry::PauseMarker);
        }
        let reasons = self.paused.entry(slot).or_default();
        let was = reasons.limited.replace(until);
        RateDeadline { slot, was, until: Some(until) }
    }

    /// Resumes a lane whose deadline has passed, for as many tasks as there are tokens. Returns the
    /// next deadline, if any, and the key of a lane that ended.
    pub(crate) fn rate_deadline_passed(
        &mut self,
        slot: usize,
        now: u64,
    ) -> (Option<RateDeadline>, Option<K>) {
        // The key may have been resumed meanwhile, and the slot may have the lane of another key.
        let is_due = |reasons: &&PauseReasons| reasons.limited.is_some_and(|until| until <= now);
        if self.paused.get(&slot).filter(is_due).is_none() {
            return (None, None);
        }
        let found = self.look_up_rate(slot);
        let reasons = self.pause_reasons(slot);
        reasons.limited = None;
        let Ok(found) = found else {
            // The key has panicked: the timer tries again soon.
            let until = now.saturating_add(RETRY_NANOS);
            reasons.limited = Some(until);
            return (Some(RateDeadline { slot, was: None, until: Some(until) }), None);
        };
        if !reasons.is_empty() {
            return (None, None);
        }
        let Some((rate, mut bucket)) = found else {
            return (None, self.end_pause(slot, usize::MAX).0);
        };
        let tokens = bucket.tokens(rate, now);
        debug_assert!(tokens != 0, "it is held until there is one");
        let (left, rest) = self.end_pause(slot, usize::try_from(tokens).unwrap_or(usize::MAX));
        if !rest {
            return (None, left);
        }
        // More tasks could begin beside the granted ones, but for the rate. They are next after
        // these have taken their tokens.
        (0..tokens).for_each(|_| bucket.take(rate, now));
        let until = bucket.next_at(rate);
        self.paused.entry(slot).or_default().limited = Some(until);
        (Some(RateDeadline { slot, was: None, until: Some(until) }), left)
    }

    /// Recomputes the deadline after granted tasks were taken back without using their tokens: a
    /// lane that is paused for its rate waits until there is a token, and no longer. Returns the
    /// changed deadline, if any.
    pub(super) fn refresh_rate_limit(&mut self, slot: usize) -> Option<RateDeadline> {
        self.paused.get(&slot)?.limited?;
        // If the key panics, the lane keeps its deadline.
        let (rate, bucket) = self.look_up_rate(slot).ok()??;
        let limited = self.paused.get_mut(&slot)?.limited.as_mut()?;
        let until = bucket.next_at(rate);
        let was = std::mem::replace(limited, until);
        (was != until).then_some(RateDeadline { slot, was: Some(was), until: Some(until) })
    }

    /// Returns the rate and the bucket of the key of a lane. A panic of the key is noted.
    fn look_up_rate(&self, slot: usize) -> Result<Option<(Rate, TokenBucket)>, ()> {
        let lane = &self.lanes[slot];
        let key = lane.key.as_ref().expect("a held lane has a key");
        let Some(limiter) = &self.limiter else { return Ok(None) };
        catch_key_panic(|| limiter.of(lane.hash, key))
            .map_err(|payload| self.note_key_panic(payload))
    }

    /// Refunds a charged task that returns to its wait queue without having begun. If the key
    /// panics, the token is lost.
    pub(super) fn uncharge(&mut self, slot: usize) {
        let lane = &self.lanes[slot];
        if let (Some(limiter), Some(key)) = (&mut self.limiter, &lane.key)
            && let Err(payload) = catch_key_panic(|| limiter.give_back(lane.hash, key))
        {
            self.note_key_panic(payload);
        }
    }

    /// Sets a key's own rate from now on, or removes it.
    pub(crate) fn set_rate_of(
        &mut self,
        hash: u32,
        key: &K,
        own: Option<Rate>,
        now: u64,
    ) -> (Option<RateDeadline>, Option<K>) {
        let limiter = self.limiter.get_or_insert_with(|| Box::new(RateLimiter::new()));
        limiter.set_own(hash, key, own, now);
        self.update_pause(hash, key, now)
    }

    /// Changes the rate of all keys without one of their own.
    pub(crate) fn set_common_rate(
        &mut self,
        common: Option<Rate>,
        now: u64,
    ) -> Vec<(Option<RateDeadline>, Option<K>)> {
        let limiter = self.limiter.get_or_insert_with(|| Box::new(RateLimiter::new()));
        let changed = limiter.set_common(common, now);
        changed.iter().map(|(hash, key)| self.update_pause(*hash, key, now)).collect()
    }

    /// Pauses or resumes a key after its rate has changed.
    fn update_pause(&mut self, hash: u32, key: &K, now: u64) -> (Option<RateDeadline>, Option<K>) {
        let metered = self.limiter.as_ref().and_then(|limiter| limiter.of(hash, key));
        let until = metered.map(|(rate, bucket)| bucket.next_at(rate)).filter(|at| *at > now);
        match until {
            Some(until) => {
                // Tasks that the former rate granted and no worker has taken are called back.
                let (slot, _) = self.pause(hash, key, 0);
                let was = self.pause_reasons(slot).limited.replace(until);
                (Some(RateDeadline { slot, was, until: Some(until) }), None)
            }
            None => {
                let Some(slot) = self.find(hash, key) else { return (None, None) };
                let Some(was) = self.paused.get(&slot).and_then(|reasons| reasons.limited) else {
                    return (None, None);
                };
                let left = self.release_pause(slot, |reasons| reasons.limited = None);
                (Some(RateDeadline { slot, was: Some(was), until: None }), left)
            }
        }
    }

    /// Schedules a sweep, and returns its time, unless one is scheduled: the time at which a bucket
    /// that is empty now is full, but at least `at_least` nanoseconds from now.
    pub(crate) fn schedule_sweep(&mut self, now: u64, at_least: u64) -> Option<u64> {
        let limiter = self.limiter.as_mut()?;
        if limiter.sweep_scheduled || limiter.keys.len() == limiter.owners {
            return None;
        }
        limiter.sweep_scheduled = true;
        let fill_time = limiter.common.map_or(0, Rate::fill_time);
        Some(now.saturating_add(fill_time.max(at_least)))
    }

    /// Forgets the buckets that are full.
    pub(crate) fn sweep_rates(&mut self, now: u64) {
        if let Some(limiter) = &mut self.limiter {
            limiter.sweep_scheduled = false;
            limiter.sweep(now);
        }
    }

    /// Returns whether any key has a rate.
    pub(crate) fn is_metered(&self) -> bool {
        self.limiter.is_some()
    }

    /// Returns the number of keys with tasks that wait only for their rate.
    pub(crate) fn limited_keys(&self) -> usize {
        let limited = self.paused.iter().filter(|(_, why)| !why.is_until_resumed());
        limited
            .filter(|(slot, _)| self.lanes[**slot].waiting.iter().any(LaneEntry::is_task))
            .count()
    }

    /// Returns the number of keys with a bucket or a rate of their own.
    pub(crate) fn metered_keys(&self) -> usize {
        self.limiter.as_ref().map_or(0, |limiter| limiter.keys.len())
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::time::Duration;

    use super::*;

    /// Otherwise the timer would have one more alarm with each task, and would never rest.
    #[test]
    fn one_sweep_is_scheduled_at_a_time_and_none_for_rates_that_stay() {
        let mut lanes = Lanes::<u32, ()>::new(64);
        let rate = Rate::every(Duration::from_nanos(10));
        assert_eq!(lanes.schedule_sweep(0, 5), None, "there are no rates");
        lanes.set_rate_of(1, &1, Some(rate), 0);
        assert_eq!(lanes.schedule_sweep(0, 5), None, "a rate of its own is not forgotten");
        lanes.set_common_rate(Some(rate), 0);
        assert_eq!(lanes.schedule_sweep(0, 5), None, "no other key has a bucket");
        let limiter = lanes.limiter.as_mut().expect("there are rates");
        assert_eq!(limiter.charge(2, &2, 0), Some(10));
        assert_eq!(lanes.schedule_sweep(0, 50), Some(50));
        assert_eq!(lanes.schedule_sweep(0, 50), None, "one is scheduled");
        lanes.sweep_rates(5);
        assert_eq!(lanes.schedule_sweep(5, 50), Some(55), "the bucket was not full");
        lanes.sweep_rates(10);
        assert_eq!((lanes.schedule_sweep(10, 50), lanes.metered_keys()), (None, 1));
    }
}
