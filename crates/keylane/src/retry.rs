//! Rules for further attempts of failed work. Plain: time and randomness are passed in.

mod backoff;

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

pub use self::backoff::{Backoff, Jitter};

/// Rules for the attempts of a task that may fail: their maximum number, the total time, and the
/// waits between them. For [`Task::retry`](crate::Task::retry) and
/// [`handler::retrying`](crate::handler::retrying).
///
/// ```
/// use std::time::Duration;
/// use keylane::{Backoff, Retry};
///
/// // At most five attempts within a minute, after waits of up to 0.1, 0.2, 0.4 and 0.8 seconds.
/// let retry = Retry::attempts(5)
///     .backoff(Backoff::exponential(Duration::from_millis(100), Duration::from_secs(10)))
///     .max_elapsed(Duration::from_secs(60));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Retry {
    /// Maximum number of attempts, including the first; `None` for no limit.
    max_attempts: Option<u32>,
    /// Maximum time from the first failure to the start of an attempt; `None` for no limit.
    max_elapsed: Option<Duration>,
    backoff: Backoff,
}

impl Retry {
    /// Allows at most `max` attempts, the first one included, with the default [`Backoff`].
    ///
    /// # Panics
    ///
    /// If `max` is 0.
    #[must_use]
    #[track_caller]
    pub const fn attempts(max: u32) -> Self {
        assert!(max > 0, "`Retry::attempts` is 0: a task needs at least 1 attempt");
        Retry { max_attempts: Some(max), ..Retry::forever() }
    }

    /// Allows any number of attempts, with the default [`Backoff`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Backoff, Pool, Retry};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let retry = Retry::forever().backoff(Backoff::constant(Duration::ZERO));
    /// let mut attempts = 0;
    /// let task = pool.task(7).fallible().retry(retry).submit(move || {
    ///     attempts += 1;
    ///     if attempts < 20 { Err("busy") } else { Ok(attempts) }
    /// })?;
    /// assert_eq!(task.wait()?.ok(), Some(20));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub const fn forever() -> Self {
        Retry { max_attempts: None, max_elapsed: None, backoff: Backoff::DEFAULT }
    }

    /// Sets the waits between the attempts.
    #[must_use]
    pub const fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Sets the maximum time from the first failure to the start of an attempt: an attempt that
    /// would begin later does not take place. A running attempt is not cut off.
    #[must_use]
    pub const fn max_elapsed(mut self, max: Duration) -> Self {
        self.max_elapsed = Some(max);
        self
    }

    /// Counts a failed attempt that ended at `now`, in nanoseconds. Returns the wait before the
    /// next one, or `None` if no attempt follows.
    pub(crate) fn after_failure(
        &self,
        failures: &mut FailedAttempts,
        now: u64,
        random: impl FnOnce() -> u64,
    ) -> Option<Duration> {
        failures.count = failures.count.saturating_add(1);
        let first = *failures.first.get_or_insert(now);
        if self.max_attempts.is_some_and(|max| failures.count >= max) {
            return None;
        }
        let wait = self.backoff.wait(failures.count, random());
        let elapsed = Duration::from_nanos(now.saturating_sub(first)).checked_add(wait)?;
        let is_late = self.max_elapsed.is_some_and(|max| elapsed > max);
        (!is_late).then_some(wait)
    }
}

/// Returns a random number for the jitter of a wait.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

/// Failed attempts of one task.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FailedAttempts {
    count: u32,
    /// Time of the first failure, in nanoseconds.
    first: Option<u64>,
}

impl FailedAttempts {
    /// Number of the current attempt, counted from 1.
    pub(crate) fn attempt(&self) -> u32 {
        self.count.saturating_add(1)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the waits after failures at these seconds, until no attempt follows.
    fn waits(retry: Retry, at: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let mut failures = FailedAttempts::default();
        at.into_iter()
            .map_while(|at| retry.after_failure(&mut failures, at * 1_000_000_000, || u64::MAX))
            .map(|wait| wait.as_secs())
            .collect()
    }

    #[test]
    fn attempts_are_limited() {
        let every = Retry::attempts(4).backoff(Backoff::constant(2 * SECOND));
        assert_eq!(waits(every, 0..9), [2, 2, 2]);
        assert_eq!(waits(Retry::attempts(1), 0..9), []);
        assert_eq!(waits(Retry::forever().backoff(Backoff::constant(SECOND)), 0..9), [1; 9]);
    }

    #[test]
    fn no_attempt_begins_after_the_maximum_time() {
        let retry = Retry::forever()
            .backoff(Backoff::exponential(SECOND, 100 * SECOND))
            .max_elapsed(7 * SECOND);
        // The fourth attempt would begin 3 + 4 seconds after the first failure, the fifth later.
        assert_eq!(waits(retry, [10, 11, 13, 17]), [1, 2, 4]);
        assert_eq!(waits(retry, [10, 11, 14]), [1, 2]);
    }
}
