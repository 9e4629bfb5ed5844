//! Retry policy: rules by class of error.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::Backoff;

/// Rules for failed attempts, by class of the error.
///
/// `C` is the type of the classes: an enum, a code, a name.
#[derive(Clone, Debug)]
pub struct RetryPolicy<C> {
    by_class: HashMap<C, RetryRule>,
    otherwise: RetryRule,
}

/// Rule for one class of errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryRule {
    /// Limit on attempts. Default: 10 attempts.
    pub limit: RetryLimit,
    /// Waits between attempts.
    pub backoff: Backoff,
    /// Action after the last attempt. Default: [`OnExhausted::Stop`], which loses no record and
    /// needs no dead letters.
    pub on_exhausted: OnExhausted,
}

/// Limits on further attempts. Both apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RetryLimit {
    /// Maximum number of attempts, including the first; `None` for no limit.
    pub attempts: Option<u32>,
    /// Maximum time from the first failure to the start of an attempt; `None` for no limit.
    pub time: Option<Duration>,
}

/// Action after a record's last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExhausted {
    /// Writes the record to the dead letters. It is complete when that write is acknowledged, and
    /// its key continues.
    DeadLetter,
    /// Skips the record. Its key continues.
    Skip,
    /// Leaves the record incomplete and stops its key; other keys continue. The key goes on after a
    /// [retry](crate::consumer::ConsumerHandle::retry) that succeeds.
    StopKey,
    /// Leaves the record incomplete and stops the consumer.
    #[default]
    Stop,
}

/// Decision after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Another attempt follows.
    Retry {
        /// Time of its start.
        at: Instant,
        /// Number of the attempt; the first was 1.
        attempt: u32,
    },
    /// No attempt follows.
    Exhausted(OnExhausted),
}

/// Failures of one record so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordFailures {
    failed: u32,
    first_failed: Option<Instant>,
}

/// Error of an invalid rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// The rule allows no attempt.
    #[error("`limit.attempts` is 0; a record needs at least 1 attempt")]
    NoAttempt,
    /// The waits would drop to zero.
    #[error("`backoff.factor` is 0; use at least 1, which keeps the wait constant")]
    ZeroFactor,
    /// The first wait exceeds the maximum.
    #[error(
        "the first wait of the backoff exceeds its maximum; lower the first or raise the maximum"
    )]
    FirstAboveMax,
}

impl RetryLimit {
    /// No limit: retries until success.
    pub const FOREVER: RetryLimit = RetryLimit { attempts: None, time: None };

    /// Limits the number of attempts only.
    #[must_use]
    pub const fn attempts(attempts: u32) -> Self {
        RetryLimit { attempts: Some(attempts), time: None }
    }
}

impl Default for RetryLimit {
    fn default() -> Self {
        RetryLimit::attempts(10)
    }
}

impl RecordFailures {
    /// Returns the number of failed attempts.
    #[must_use]
    pub const fn failed(&self) -> u32 {
        self.failed
    }

    /// Returns the number of the current or next attempt, counted from 1.
    #[must_use]
    pub const fn current(&self) -> u32 {
        self.failed.saturating_add(1)
    }

    fn note(&mut self, now: Instant) -> Instant {
        self.failed = self.failed.saturating_add(1);
        *self.first_failed.get_or_insert(now)
    }
}

impl<C: Eq + Hash> RetryPolicy<C> {
    /// Creates a policy with one rule for all errors.
    ///
    /// # Errors
    /// If the rule is invalid.
    pub fn new(otherwise: RetryRule) -> Result<Self, RuleError> {
        Ok(RetryPolicy { by_class: HashMap::new(), otherwise: checked(otherwise)? })
    }

    /// Sets the rule of one class.
    ///
    /// # Errors
    /// If the rule is invalid.
    pub fn with(mut self, class: C, rule: RetryRule) -> Result<Self, RuleError> {
        self.by_class.insert(class, checked(rule)?);
        Ok(self)
    }

    /// Returns the rule of a class.
    #[must_use]
    pub fn rule(&self, class: &C) -> &RetryRule {
        self.by_class.get(class).unwrap_or(&self.otherwise)
    }

    /// Iterates over all rules in no particular order.
    pub fn rules(&self) -> impl Iterator<Item = &RetryRule> {
        self.by_class.values().chain([&self.otherwise])
    }

    /// Records a failed attempt with an error of this class, and decides what follows.
    ///
    /// Failures of all classes count; the rule is that of the last failure's class. `random` must
    /// be uniformly distributed and is called at most once.
    pub fn failed(
        &self,
        attempts: &mut RecordFailures,
        class: &C,
        now: Instant,
        random: impl FnOnce() -> u64,
    ) -> RetryDecision {
        let rule = self.rule(class);
        let first_failed = attempts.note(now);
        if rule.limit.attempts.is_some_and(|max| attempts.failed >= max) {
            return RetryDecision::Exhausted(rule.on_exhausted);
        }
        let wait = rule.backoff.wait(attempts.failed, random());
        // The time exceeds the clock's range, so no attempt could follow.
        let Some(at) = now.checked_add(wait) else {
            return RetryDecision::Exhausted(rule.on_exhausted);
        };
        let late = |max| at.saturating_duration_since(first_failed) > max;
        if rule.limit.time.is_some_and(late) {
            return RetryDecision::Exhausted(rule.on_exhausted);
        }
        RetryDecision::Retry { at, attempt: attempts.current() }
    }
}

fn checked(rule: RetryRule) -> Result<RetryRule, RuleError> {
    if rule.limit.attempts == Some(0) {
        return Err(RuleError::NoAttempt);
    }
    if rule.backoff.factor == 0 {
        return Err(RuleError::ZeroFactor);
    }
    if rule.backoff.first > rule.backoff.max {
        return Err(RuleError::FirstAboveMax);
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::Jitter;

    const SECOND: Duration = Duration::from_secs(1);

    fn rule(limit: RetryLimit, on_exhausted: OnExhausted) -> RetryRule {
        RetryRule {
            limit,
            backoff: Backoff { jitter: Jitter::None, ..Backoff::default() },
            on_exhausted,
        }
    }

    fn no_chance() -> u64 {
        0
    }

    #[test]
    fn attempts_are_counted_and_the_last_one_is_the_last() {
        let policy = RetryPolicy::new(rule(RetryLimit::attempts(3), OnExhausted::Skip)).unwrap();
        let (mut attempts, now) = (RecordFailures::default(), Instant::now());
        assert_eq!(attempts.current(), 1);
        let next = policy.failed(&mut attempts, &(), now, no_chance);
        assert_eq!(next, RetryDecision::Retry { at: now + SECOND, attempt: 2 });
        let next = policy.failed(&mut attempts, &(), now + SECOND, no_chance);
        assert_eq!(next, RetryDecision::Retry { at: now + 3 * SECOND, attempt: 3 });
        let next = policy.failed(&mut attempts, &(), now, no_chance);
        assert_eq!((next, attempts.failed()), (RetryDecision::Exhausted(OnExhausted::Skip), 3));
    }

    #[test]
    fn one_attempt_means_no_retry_and_no_chance() {
        let policy =
            RetryPolicy::new(rule(RetryLimit::attempts(1), OnExhausted::DeadLetter)).unwrap();
        let never = || unreachable!("there is nothing to wait for");
        let next = policy.failed(&mut RecordFailures::default(), &(), Instant::now(), never);
        assert_eq!(next, RetryDecision::Exhausted(OnExhausted::DeadLetter));
    }

    #[test]
    fn no_attempt_begins_after_the_time() {
        let limit = RetryLimit { attempts: None, time: Some(4 * SECOND) };
        let policy = RetryPolicy::new(rule(limit, OnExhausted::StopKey)).unwrap();
        let (mut attempts, start) = (RecordFailures::default(), Instant::now());
        let mut failed = |at| policy.failed(&mut attempts, &(), at, no_chance);
        assert!(matches!(failed(start), RetryDecision::Retry { .. }));
        // Two seconds later would be exactly in time.
        assert_eq!(
            failed(start + 2 * SECOND),
            RetryDecision::Retry { at: start + 4 * SECOND, attempt: 3 }
        );
        assert_eq!(failed(start + 2 * SECOND), RetryDecision::Exhausted(OnExhausted::StopKey));
    }

    #[test]
    fn each_class_has_its_rule_and_all_failures_count() {
        let policy = RetryPolicy::new(rule(RetryLimit::FOREVER, OnExhausted::Stop)).unwrap();
        let policy = policy.with("bad", rule(RetryLimit::attempts(1), OnExhausted::Skip)).unwrap();
        let policy =
            policy.with("slow", rule(RetryLimit::attempts(4), OnExhausted::StopKey)).unwrap();
        let (mut attempts, now) = (RecordFailures::default(), Instant::now());
        for _ in 0..3 {
            let next = policy.failed(&mut attempts, &"unheard of", now, no_chance);
            assert!(matches!(next, RetryDecision::Retry { .. }));
        }
        // Its own first failure, but the record's fourth.
        let next = policy.failed(&mut attempts, &"slow", now, no_chance);
        assert_eq!(next, RetryDecision::Exhausted(OnExhausted::StopKey));
        let next = policy.failed(&mut RecordFailures::default(), &"bad", now, no_chance);
        assert_eq!(next, RetryDecision::Exhausted(OnExhausted::Skip));
    }

    #[test]
    fn without_a_bound_it_never_ends() {
        let policy = RetryPolicy::new(rule(RetryLimit::FOREVER, OnExhausted::Stop)).unwrap();
        let (mut attempts, now) = (RecordFailures::default(), Instant::now());
        for _ in 0..100_000 {
            let RetryDecision::Retry { at, .. } = policy.failed(&mut attempts, &(), now, no_chance)
            else {
                panic!("it ended");
            };
            assert!(at <= now + Backoff::default().max);
        }
        assert_eq!(attempts.current(), 100_001);
    }

    #[test]
    fn rules_without_sense_are_refused() {
        let good = RetryRule::default();
        let refused = |rule| RetryPolicy::<()>::new(rule).err();
        assert_eq!(refused(good), None);
        let none = RetryRule { limit: RetryLimit::attempts(0), ..good };
        assert_eq!(refused(none), Some(RuleError::NoAttempt));
        let zero = RetryRule { backoff: Backoff { factor: 0, ..good.backoff }, ..good };
        assert_eq!(refused(zero), Some(RuleError::ZeroFactor));
        let long = Backoff { first: 61 * SECOND, ..good.backoff };
        let refused =
            RetryPolicy::new(good).unwrap().with(1, RetryRule { backoff: long, ..good }).err();
        assert_eq!(refused, Some(RuleError::FirstAboveMax));
    }
}
