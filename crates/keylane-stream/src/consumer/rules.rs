use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::failure::Failure;
use crate::retry::{Attempts, Last, Next, Policy};

/// What is done about failures: a policy, and what sorts failures into its classes.
pub(super) struct Rules {
    decide: Box<dyn Decide>,
    /// Counts the random numbers.
    drawn: AtomicU64,
    seed: foldhash::quality::RandomState,
}

/// A policy whose classes only it knows.
trait Decide: Send + Sync {
    fn failed(
        &self,
        attempts: &mut Attempts,
        failure: &Failure,
        now: Instant,
        random: &dyn Fn() -> u64,
    ) -> Next;

    fn last(&self, failure: &Failure) -> Last;

    fn buries(&self) -> bool;
}

struct Sorted<C, F> {
    policy: Policy<C>,
    classify: F,
}

impl<C, F> Decide for Sorted<C, F>
where
    C: Eq + Hash + Send + Sync,
    F: Fn(&Failure) -> C + Send + Sync,
{
    fn failed(
        &self,
        attempts: &mut Attempts,
        failure: &Failure,
        now: Instant,
        random: &dyn Fn() -> u64,
    ) -> Next {
        self.policy.failed(attempts, &(self.classify)(failure), now, random)
    }

    fn last(&self, failure: &Failure) -> Last {
        self.policy.rule(&(self.classify)(failure)).last
    }

    fn buries(&self) -> bool {
        self.policy.rules().any(|rule| rule.last == Last::DeadLetter)
    }
}

impl Rules {
    pub(super) fn new<C, F>(policy: Policy<C>, classify: F) -> Self
    where
        C: Eq + Hash + Send + Sync + 'static,
        F: Fn(&Failure) -> C + Send + Sync + 'static,
    {
        let decide = Box::new(Sorted { policy, classify });
        Rules { decide, drawn: AtomicU64::new(0), seed: foldhash::quality::RandomState::default() }
    }

    /// Notes that an attempt has failed, and decides what is next.
    pub(super) fn failed(&self, attempts: &mut Attempts, failure: &Failure, now: Instant) -> Next {
        // Nobody must be kept from guessing it: it only spreads attempts.
        let random = || self.seed.hash_one(self.drawn.fetch_add(1, Ordering::Relaxed));
        let next = || self.decide.failed(attempts, failure, now, &random);
        // The user's function has panicked: nobody can say what to do, so nothing is lost.
        catch_unwind(AssertUnwindSafe(next)).unwrap_or(Next::Last(Last::Stop))
    }

    /// What is done after the last attempt.
    pub(super) fn last(&self, failure: &Failure) -> Last {
        catch_unwind(AssertUnwindSafe(|| self.decide.last(failure))).unwrap_or(Last::Stop)
    }

    /// Whether any rule asks for dead letters.
    pub(super) fn buries(&self) -> bool {
        self.decide.buries()
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rules").finish_non_exhaustive()
    }
}
