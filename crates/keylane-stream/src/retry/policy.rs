use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, Instant};

use super::Backoff;

/// What becomes of records whose handling failed, by the class of the error.
///
/// `C` is whatever the handler's errors are sorted into: an enum, a code, a name.
#[derive(Clone, Debug)]
pub struct RetryPolicy<C> {
    by_class: HashMap<C, Rule>,
    otherwise: Rule,
}

/// What is done about one class of errors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    /// How long it is tried. Default: 10 attempts, however long they take.
    pub limit: Limit,
    /// How long to wait between attempts.
    pub backoff: Backoff,
    /// What happens after the last attempt. Default: [`OnExhausted::Stop`], for it loses nothing and needs no
    /// place for dead letters.
    pub on_exhausted: OnExhausted,
}

/// When no further attempt is made. Both bounds hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// How often it is tried in all, the first time included; none for no bound.
    pub attempts: Option<u32>,
    /// No attempt begins later than this after the first failure; none for no bound.
    pub time: Option<Duration>,
}

/// What happens to a record after its last attempt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnExhausted {
    /// It is written to the dead letters, and done when that write is acknowledged. Its key goes on.
    DeadLetter,
    /// It is done without having been handled. Its key goes on.
    Skip,
    /// It stays incomplete, and its key stops; all others go on.
    StopKey,
    /// It stays incomplete, and everything stops.
    #[default]
    Stop,
}

/// What comes after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryDecision {
    /// Another attempt.
    Retry {
        /// When it begins.
        at: Instant,
        /// Its number; the first was 1.
        attempt: u32,
    },
    /// None.
    Exhausted(OnExhausted),
}

/// The failures of one record so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attempts {
    failed: u32,
    first_failed: Option<Instant>,
}

/// A rule that makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RuleError {
    /// No attempt at all is allowed.
    #[error("a record needs at least one attempt")]
    NoAttempt,
    /// The waits would become shorter and end at nothing.
    #[error("a factor of 0 leaves no wait at all after the second failure; 1 keeps it the same")]
    ZeroFactor,
    /// The first wait is longer than the longest.
    #[error("the first wait is longer than the longest")]
    FirstAboveLongest,
}

impl Limit {
    /// No bound: it is tried until it succeeds.
    pub const FOREVER: Limit = Limit { attempts: None, time: None };

    /// Only the number of attempts counts.
    #[must_use]
    pub const fn attempts(attempts: u32) -> Self {
        Limit { attempts: Some(attempts), time: None }
    }
}

impl Default for Limit {
    fn default() -> Self {
        Limit::attempts(10)
    }
}

impl Attempts {
    /// How many have failed.
    #[must_use]
    pub const fn failed(&self) -> u32 {
        self.failed
    }

    /// The number of the one that is next, or is on; the first is 1.
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
    /// The same rule for all errors.
    ///
    /// # Errors
    /// If the rule makes no sense.
    pub fn new(otherwise: Rule) -> Result<Self, RuleError> {
        Ok(RetryPolicy { by_class: HashMap::new(), otherwise: checked(otherwise)? })
    }

    /// Another rule for one class.
    ///
    /// # Errors
    /// If the rule makes no sense.
    pub fn with(mut self, class: C, rule: Rule) -> Result<Self, RuleError> {
        self.by_class.insert(class, checked(rule)?);
        Ok(self)
    }

    /// The rule for a class.
    #[must_use]
    pub fn rule(&self, class: &C) -> &Rule {
        self.by_class.get(class).unwrap_or(&self.otherwise)
    }

    /// All rules, in no order.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.by_class.values().chain([&self.otherwise])
    }

    /// Notes that an attempt has failed with an error of this class, and decides what is next.
    ///
    /// All failures count, whatever the class of each; it is the last one's class whose rule holds.
    /// `random` gives any number, all equally likely; it is called once at the most.
    pub fn failed(
        &self,
        attempts: &mut Attempts,
        class: &C,
        now: Instant,
        random: impl FnOnce() -> u64,
    ) -> RetryDecision {
        let rule = self.rule(class);
        let first_failed = attempts.note(now);
        if rule.limit.attempts.is_some_and(|most| attempts.failed >= most) {
            return RetryDecision::Exhausted(rule.on_exhausted);
        }
        let wait = rule.backoff.wait(attempts.failed, random());
        // A time that no clock will reach: nobody can wait for it.
        let Some(at) = now.checked_add(wait) else {
            return RetryDecision::Exhausted(rule.on_exhausted);
        };
        let late = |most| at.saturating_duration_since(first_failed) > most;
        if rule.limit.time.is_some_and(late) {
            return RetryDecision::Exhausted(rule.on_exhausted);
        }
        RetryDecision::Retry { at, attempt: attempts.current() }
    }
}

fn checked(rule: Rule) -> Result<Rule, RuleError> {
    if rule.limit.attempts == Some(0) {
        return Err(RuleError::NoAttempt);
    }
    if rule.backoff.factor == 0 {
        return Err(RuleError::ZeroFactor);
    }
    if rule.backoff.first > rule.backoff.max {
        return Err(RuleError::FirstAboveLongest);
    }
    Ok(rule)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::retry::Jitter;

    const SECOND: Duration = Duration::from_secs(1);

    fn rule(limit: Limit, on_exhausted: OnExhausted) -> Rule {
        Rule {
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
        let policy = RetryPolicy::new(rule(Limit::attempts(3), OnExhausted::Skip)).unwrap();
        let (mut attempts, now) = (Attempts::default(), Instant::now());
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
        let policy = RetryPolicy::new(rule(Limit::attempts(1), OnExhausted::DeadLetter)).unwrap();
        let never = || unreachable!("there is nothing to wait for");
        let next = policy.failed(&mut Attempts::default(), &(), Instant::now(), never);
        assert_eq!(next, RetryDecision::Exhausted(OnExhausted::DeadLetter));
    }

    #[test]
    fn no_attempt_begins_after_the_time() {
        let limit = Limit { attempts: None, time: Some(4 * SECOND) };
        let policy = RetryPolicy::new(rule(limit, OnExhausted::StopKey)).unwrap();
        let (mut attempts, start) = (Attempts::default(), Instant::now());
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
        let policy = RetryPolicy::new(rule(Limit::FOREVER, OnExhausted::Stop)).unwrap();
        let policy = policy.with("bad", rule(Limit::attempts(1), OnExhausted::Skip)).unwrap();
        let policy = policy.with("slow", rule(Limit::attempts(4), OnExhausted::StopKey)).unwrap();
        let (mut attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..3 {
            let next = policy.failed(&mut attempts, &"unheard of", now, no_chance);
            assert!(matches!(next, RetryDecision::Retry { .. }));
        }
        // Its own first failure, but the record's fourth.
        let next = policy.failed(&mut attempts, &"slow", now, no_chance);
        assert_eq!(next, RetryDecision::Exhausted(OnExhausted::StopKey));
        let next = policy.failed(&mut Attempts::default(), &"bad", now, no_chance);
        assert_eq!(next, RetryDecision::Exhausted(OnExhausted::Skip));
    }

    #[test]
    fn without_a_bound_it_never_ends() {
        let policy = RetryPolicy::new(rule(Limit::FOREVER, OnExhausted::Stop)).unwrap();
        let (mut attempts, now) = (Attempts::default(), Instant::now());
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
        let good = Rule::default();
        let refused = |rule| RetryPolicy::<()>::new(rule).err();
        assert_eq!(refused(good), None);
        let none = Rule { limit: Limit::attempts(0), ..good };
        assert_eq!(refused(none), Some(RuleError::NoAttempt));
        let zero = Rule { backoff: Backoff { factor: 0, ..good.backoff }, ..good };
        assert_eq!(refused(zero), Some(RuleError::ZeroFactor));
        let long = Backoff { first: 61 * SECOND, ..good.backoff };
        let refused = RetryPolicy::new(good).unwrap().with(1, Rule { backoff: long, ..good }).err();
        assert_eq!(refused, Some(RuleError::FirstAboveLongest));
    }
}
