//! Exponential backoff with jitter.

use std::time::Duration;

/// Exponential backoff: waits between attempts grow with each failure up to a maximum, and are
/// randomized.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Wait after the first failure, before jitter. Default: 1 s.
    pub first: Duration,
    /// Growth per further failure; 1 for constant waits. Default: 2.
    pub factor: u32,
    /// Maximum wait. Default: 1 minute.
    pub max: Duration,
    /// Random part of a wait. Default: [`Jitter::Full`].
    pub jitter: Jitter,
}

/// Random part of a wait, so that simultaneous failures are not retried simultaneously.
///
/// Source: M. Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog, 2015, which found
/// full jitter to need the fewest calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Jitter {
    /// No jitter.
    None,
    /// Between half of the wait and all of it.
    Equal,
    /// Between zero and the whole wait.
    Full,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff::DEFAULT
    }
}

impl Backoff {
    /// Value of [`Backoff::default`].
    pub(crate) const DEFAULT: Backoff =
        Backoff::exponential(Duration::from_secs(1), Duration::from_secs(60));

    /// Waits `wait` after each failure, without jitter.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Backoff;
    ///
    /// let second = Duration::from_secs(1);
    /// assert_eq!(Backoff::constant(second).wait(7, 0), second);
    /// ```
    #[must_use]
    pub const fn constant(wait: Duration) -> Self {
        Backoff { first: wait, factor: 1, max: wait, jitter: Jitter::None }
    }

    /// Waits `first` after the first failure and twice as long after each further one, up to `max`,
    /// with full jitter.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Backoff;
    ///
    /// let backoff = Backoff::exponential(Duration::from_millis(100), Duration::from_secs(5));
    /// assert_eq!(backoff.ceiling(3), Duration::from_millis(400));
    /// assert_eq!(backoff.ceiling(30), Duration::from_secs(5));
    /// ```
    #[must_use]
    pub const fn exponential(first: Duration, max: Duration) -> Self {
        Backoff { first, factor: 2, max, jitter: Jitter::Full }
    }

    /// Returns the maximum wait after the given number of consecutive failures.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Backoff, Jitter};
    ///
    /// let (first, max) = (Duration::from_secs(1), Duration::from_secs(20));
    /// let backoff = Backoff { first, factor: 3, max, jitter: Jitter::Full };
    /// let ceilings = (1..=4).map(|failures| backoff.ceiling(failures).as_secs());
    /// assert_eq!(ceilings.collect::<Vec<_>>(), [1, 3, 9, 20]);
    /// ```
    #[must_use]
    pub fn ceiling(&self, failures: u32) -> Duration {
        let grown = self.factor.checked_pow(failures.saturating_sub(1));
        let grown = grown.and_then(|factor| self.first.checked_mul(factor));
        // An overflow exceeds any maximum, unless the first wait is zero.
        let overflown = if self.first.is_zero() { Duration::ZERO } else { self.max };
        grown.unwrap_or(overflown).min(self.max)
    }

    /// Returns the wait after the given number of consecutive failures. `random` must be uniformly
    /// distributed.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Backoff, Jitter};
    ///
    /// let grows = Backoff::exponential(Duration::from_secs(2), Duration::from_secs(60));
    /// let backoff = Backoff { jitter: Jitter::Equal, ..grows };
    /// // Two failures: half of four seconds at least, and all of them at most.
    /// assert_eq!(backoff.wait(2, 0), Duration::from_secs(2));
    /// assert_eq!(backoff.wait(2, u64::MAX), Duration::from_secs(4));
    /// ```
    #[must_use]
    pub fn wait(&self, failures: u32, random: u64) -> Duration {
        let ceiling = self.ceiling(failures);
        match self.jitter {
            Jitter::None => ceiling,
            Jitter::Equal => ceiling / 2 + share(ceiling - ceiling / 2, random),
            Jitter::Full => share(ceiling, random),
        }
    }
}

/// Returns a part of `whole`, from zero to all of it, both included.
fn share(whole: Duration, random: u64) -> Duration {
    // Multiplication maps the random number to the range without a division.
    let nanos = (whole.as_nanos() + 1).saturating_mul(u128::from(random)) >> 64;
    // 2⁶⁴ ns are 584 years.
    u64::try_from(nanos).map_or(whole, Duration::from_nanos)
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MILLI: Duration = Duration::from_millis(1);

    fn plain() -> Backoff {
        Backoff { first: MILLI, factor: 3, max: 50 * MILLI, jitter: Jitter::None }
    }

    #[test]
    fn waits_grow_to_the_bound() {
        let waits: Vec<_> = (1..7).map(|failures| plain().wait(failures, 9).as_millis()).collect();
        assert_eq!(waits, [1, 3, 9, 27, 50, 50]);
        assert_eq!(plain().wait(u32::MAX, 9), 50 * MILLI);
        assert_eq!(Backoff { first: Duration::ZERO, ..plain() }.wait(u32::MAX, 9), Duration::ZERO);
        assert_eq!(Backoff { factor: 1, ..plain() }.wait(1000, 9), MILLI);
    }

    #[test]
    fn jitter_goes_from_end_to_end() {
        let ends = |jitter| {
            let backoff = Backoff { jitter, ..plain() };
            [0, u64::MAX / 2, u64::MAX].map(|random| backoff.wait(3, random).as_micros())
        };
        assert_eq!(ends(Jitter::None), [9000, 9000, 9000]);
        assert_eq!(ends(Jitter::Equal), [4500, 6750, 9000]);
        assert_eq!(ends(Jitter::Full), [0, 4500, 9000]);
    }

    proptest! {
        #[test]
        fn no_wait_leaves_its_range(
            first in 0u64..u64::MAX, factor in any::<u32>(), max in 0u64..u64::MAX,
            failures in any::<u32>(), random in any::<u64>(),
        ) {
            let backoff = Backoff {
                first: Duration::from_secs(first),
                factor,
                max: Duration::from_secs(max),
                jitter: Jitter::Full,
            };
            let ceiling = backoff.ceiling(failures);
            prop_assert!(ceiling <= backoff.max);
            prop_assert!(backoff.wait(failures, random) <= ceiling);
            let equal = Backoff { jitter: Jitter::Equal, ..backoff }.wait(failures, random);
            prop_assert!(equal >= ceiling / 2 && equal <= ceiling);
        }
    }
}
