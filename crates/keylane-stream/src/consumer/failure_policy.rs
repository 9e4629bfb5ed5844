//! Decision after a failed attempt: a retry policy, and the user's function that classifies
//! failures for it.

use std::fmt;
use std::hash::Hash;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::failure::AttemptFailure;
use crate::retry::{OnExhausted, RecordFailures, RetryDecision, RetryPolicy};

/// Retry policy with a classifier.
pub(super) struct FailurePolicy {
    policy: Box<dyn ErasedPolicy>,
}

/// A policy whose class type is erased.
trait ErasedPolicy: Send + Sync {
    fn failed(
        &self,
        attempts: &mut RecordFailures,
        failure: &AttemptFailure,
        now: Instant,
        random: &dyn Fn() -> u64,
    ) -> RetryDecision;

    fn on_exhausted(&self, failure: &AttemptFailure) -> OnExhausted;

    fn uses_dead_letters(&self) -> bool;
}

struct ClassifiedPolicy<C, F> {
    policy: RetryPolicy<C>,
    classify: F,
}

impl<C, F> ErasedPolicy for ClassifiedPolicy<C, F>
where
    C: Eq + Hash + Send + Sync,
    F: Fn(&AttemptFailure) -> C + Send + Sync,
{
    fn failed(
        &self,
        attempts: &mut RecordFailures,
        failure: &AttemptFailure,
        now: Instant,
        random: &dyn Fn() -> u64,
    ) -> RetryDecision {
        self.policy.failed(attempts, &(self.classify)(failure), now, random)
    }

    fn on_exhausted(&self, failure: &AttemptFailure) -> OnExhausted {
        self.policy.rule(&(self.classify)(failure)).on_exhausted
    }

    fn uses_dead_letters(&self) -> bool {
        self.policy.rules().any(|rule| rule.on_exhausted == OnExhausted::DeadLetter)
    }
}

impl FailurePolicy {
    pub(super) fn new<C, F>(policy: RetryPolicy<C>, classify: F) -> Self
    where
        C: Eq + Hash + Send + Sync + 'static,
        F: Fn(&AttemptFailure) -> C + Send + Sync + 'static,
    {
        let policy = Box::new(ClassifiedPolicy { policy, classify });
        FailurePolicy { policy }
    }

    /// Records a failed attempt and decides on the next step.
    pub(super) fn failed(
        &self,
        attempts: &mut RecordFailures,
        failure: &AttemptFailure,
        now: Instant,
        random: &dyn Fn() -> u64,
    ) -> RetryDecision {
        let next = || self.policy.failed(attempts, failure, now, random);
        // The user's classifier has panicked, so no class is known. Stopping loses no record.
        catch_unwind(AssertUnwindSafe(next)).unwrap_or(RetryDecision::Exhausted(OnExhausted::Stop))
    }

    /// Returns the action after the last attempt.
    pub(super) fn on_exhausted(&self, failure: &AttemptFailure) -> OnExhausted {
        catch_unwind(AssertUnwindSafe(|| self.policy.on_exhausted(failure)))
            .unwrap_or(OnExhausted::Stop)
    }

    /// Returns whether any rule uses dead letters.
    pub(super) fn uses_dead_letters(&self) -> bool {
        self.policy.uses_dead_letters()
    }
}

impl fmt::Debug for FailurePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FailurePolicy").finish_non_exhaustive()
    }
}
