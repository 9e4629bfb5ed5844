//! Rate limit for the start of tasks: a rate, and the token bucket that enforces it.
//!
//! A plain state machine with the time passed in. It is the generic cell rate algorithm in its
//! virtual scheduling form (ITU-T Recommendation I.371, annex A): a token bucket stored as one
//! number. Not the number of tokens, which changes all the time, but the time at which the bucket
//! will be full if no token is taken, which changes only when one is taken.

use std::time::Duration;

/// Rate at which tasks may begin: a number per time, and a burst.
///
/// A token bucket holds at most [`burst`](Self::burst) tokens. It starts full, and gains one token
/// per [interval](Self::interval) until it is full again. A task takes a token when it begins, and
/// waits while there is none. So in any time `t` at most `burst + t / interval` tasks begin.
///
/// ```
/// use std::time::Duration;
/// use keylane::Rate;
///
/// let rate = Rate::per_second(50).burst(10);
/// assert_eq!(rate.interval(), Duration::from_millis(20));
/// let slow = Rate::per_minute(2);
/// assert_eq!((slow.interval(), slow.max_at_once()), (Duration::from_secs(30), 1));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Rate {
    /// Time from one token to the next, in nanoseconds. At least one.
    interval: u64,
    /// Capacity of the bucket, in tokens. At least one.
    burst: u32,
}

const SECOND: u64 = 1_000_000_000;

impl Rate {
    /// Returns a rate of `tasks` per second with a burst of one. The interval is rounded up to a
    /// nanosecond.
    ///
    /// # Panics
    ///
    /// If `tasks` is zero.
    pub const fn per_second(tasks: u32) -> Self {
        Self::per(tasks, SECOND)
    }

    /// Returns a rate of `tasks` per minute with a burst of one. The interval is rounded up to a
    /// nanosecond.
    ///
    /// # Panics
    ///
    /// If `tasks` is zero.
    pub const fn per_minute(tasks: u32) -> Self {
        Self::per(tasks, 60 * SECOND)
    }

    /// Returns a rate of `tasks` per hour with a burst of one. The interval is rounded up to a
    /// nanosecond.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Rate;
    ///
    /// assert_eq!(Rate::per_hour(60).interval(), Duration::from_secs(60));
    /// ```
    ///
    /// # Panics
    ///
    /// If `tasks` is zero.
    pub const fn per_hour(tasks: u32) -> Self {
        Self::per(tasks, 3600 * SECOND)
    }

    const fn per(tasks: u32, nanos: u64) -> Self {
        assert!(
            tasks != 0,
            "`tasks` is zero: a rate allows at least one task; to start none, pause the key"
        );
        Rate { interval: nanos.div_ceil(tasks as u64), burst: 1 }
    }

    /// Returns a rate of one task per `interval`, with a burst of one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Rate;
    ///
    /// let rate = Rate::every(Duration::from_millis(250));
    /// assert_eq!((rate.interval(), rate.max_at_once()), (Rate::per_second(4).interval(), 1));
    /// ```
    ///
    /// # Panics
    ///
    /// If the interval is zero, or longer than 2^64 - 1 nanoseconds (about 584 years).
    pub const fn every(interval: Duration) -> Self {
        let nanos = interval.as_nanos();
        assert!(
            nanos != 0,
            "`interval` is zero: it must be at least 1 ns; for no limit, set no rate"
        );
        assert!(
            nanos <= u64::MAX as u128,
            "`interval` is too long: it must be at most 2^64 - 1 ns"
        );
        Rate { interval: nanos as u64, burst: 1 }
    }

    /// Sets the number of tasks that may begin at once after a pause: by default one.
    ///
    /// A pool sustains a high rate only with some burst: a task begins slightly later than it may,
    /// and the burst makes up for what its interval lost. The tasks of a tenth of a second are
    /// enough.
    ///
    /// # Panics
    ///
    /// If `tasks` is zero.
    pub const fn burst(self, tasks: u32) -> Self {
        assert!(tasks != 0, "`tasks` is zero: a burst is at least one task");
        Rate { burst: tasks, ..self }
    }

    /// Returns the time from one task to the next once the burst is used up.
    pub const fn interval(self) -> Duration {
        Duration::from_nanos(self.interval)
    }

    /// Returns the burst: the number of tasks that may begin at once.
    pub const fn max_at_once(self) -> u32 {
        self.burst
    }

    /// Returns the time that an empty bucket takes to be full, in nanoseconds.
    pub(crate) fn fill_time(self) -> u64 {
        self.interval.saturating_mul(self.burst.into())
    }
}

/// Token bucket of one rate. Times are nanoseconds since any fixed moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TokenBucket {
    /// Time at which the bucket is full if no token is taken before. In the past if it is full.
    full_at: u64,
}

impl TokenBucket {
    pub(crate) fn is_full(self, now: u64) -> bool {
        self.full_at <= now
    }

    /// Returns the time from which on there is a token.
    pub(crate) fn next_at(self, rate: Rate) -> u64 {
        // There is one as soon as at most `burst - 1` tokens are missing.
        self.full_at.saturating_sub(rate.fill_time() - rate.interval)
    }

    /// Returns the number of tokens at `now`.
    pub(crate) fn tokens(self, rate: Rate, now: u64) -> u64 {
        let missing = self.full_at.saturating_sub(now);
        rate.fill_time().saturating_sub(missing) / rate.interval
    }

    /// Takes a token. If there is none, it is owed, and the next one comes an interval later.
    pub(crate) fn take(&mut self, rate: Rate, now: u64) {
        self.full_at = self.full_at.max(now).saturating_add(rate.interval);
    }

    /// Returns a token that was taken and not used.
    pub(crate) fn give_back(&mut self, rate: Rate) {
        self.full_at = self.full_at.saturating_sub(rate.interval);
    }

    /// Changes the rate. Taken tokens stay taken, up to the capacity of the new bucket, so frequent
    /// changes of the rate never allow more than the rates do.
    pub(crate) fn change(&mut self, from: Rate, to: Rate, now: u64) {
        let missing = self.full_at.saturating_sub(now);
        let taken = u128::from(missing) * u128::from(to.interval) / u128::from(from.interval);
        let taken = u64::try_from(taken).unwrap_or(u64::MAX).min(to.fill_time());
        self.full_at = now.saturating_add(taken);
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Model of a bucket: counts its content, in nanoseconds' worth of tokens, whenever it is read.
    struct Slow {
        level: i128,
        seen: u64,
    }

    impl Slow {
        fn at(&mut self, rate: Rate, now: u64) -> &mut Self {
            let full = i128::from(rate.interval) * i128::from(rate.burst);
            self.level = full.min(self.level + i128::from(now - self.seen));
            self.seen = now;
            self
        }

        fn tokens(&self, rate: Rate) -> u64 {
            (self.level.max(0) / i128::from(rate.interval)) as u64
        }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Pass(u64),
        Take,
        GiveBack,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..50_u64).prop_map(Step::Pass),
            4 => Just(Step::Take),
            1 => Just(Step::GiveBack),
        ]
    }

    proptest! {
        #[test]
        fn it_is_a_bucket_of_tokens(
            interval in 1..20_u64, burst in 1..6_u32, steps in prop::collection::vec(step(), 1..200),
        ) {
            let rate = Rate { interval, burst };
            let mut now = 1_000;
            let mut slow = Slow { level: i128::from(interval) * i128::from(burst), seen: now };
            let mut bucket = TokenBucket::default();
            // Tokens taken at this very moment, which may therefore be returned.
            let mut fresh = 0;
            for step in steps {
                match step {
                    Step::Pass(nanos) => {
                        now += nanos;
                        fresh = if nanos == 0 { fresh } else { 0 };
                    }
                    Step::Take => {
                        bucket.take(rate, now);
                        slow.at(rate, now).level -= i128::from(interval);
                        fresh += 1;
                    }
                    Step::GiveBack if fresh > 0 => {
                        bucket.give_back(rate);
                        slow.at(rate, now).level += i128::from(interval);
                        fresh -= 1;
                    }
                    Step::GiveBack => {}
                }
                let slow = slow.at(rate, now);
                prop_assert_eq!(bucket.tokens(rate, now), slow.tokens(rate));
                prop_assert_eq!(bucket.next_at(rate) <= now, slow.tokens(rate) > 0);
                prop_assert_eq!(
                    bucket.is_full(now), slow.tokens(rate) == u64::from(burst)
                );
                // The next token is there at the announced time, and not before.
                let next = bucket.next_at(rate);
                if next > now {
                    prop_assert_eq!(bucket.tokens(rate, next - 1), 0);
                    prop_assert!(bucket.tokens(rate, next) >= 1);
                }
            }
        }

        /// The promise of the rate, stated without a bucket: a count in every window.
        #[test]
        fn no_window_has_more_than_it_may(
            interval in 1..20_u64, burst in 1..6_u32, waits in prop::collection::vec(0..40_u64, 1..100),
        ) {
            let rate = Rate { interval, burst };
            let mut bucket = TokenBucket::default();
            let (mut now, mut began) = (0, Vec::new());
            for wait in waits {
                now += wait;
                if bucket.next_at(rate) <= now {
                    bucket.take(rate, now);
                    began.push(now);
                }
            }
            for (first, start) in began.iter().enumerate() {
                for (last, end) in began.iter().enumerate().skip(first) {
                    let most = u64::from(burst) + (end - start) / interval;
                    prop_assert!((last - first + 1) as u64 <= most);
                }
            }
        }

        #[test]
        fn what_was_taken_stays_taken_when_the_rate_changes(
            interval in 1..20_u64, burst in 1..6_u32, taken in 0..8_u32,
            to_interval in 1..20_u64, to_burst in 1..6_u32,
        ) {
            let (from, to) = (
                Rate { interval, burst },
                Rate { interval: to_interval, burst: to_burst },
            );
            let mut bucket = TokenBucket::default();
            (0..taken).for_each(|_| bucket.take(from, 500));
            bucket.change(from, to, 500);
            prop_assert_eq!(bucket.tokens(to, 500), u64::from(to_burst.saturating_sub(taken)));
        }
    }

    #[test]
    fn an_interval_is_never_too_short() {
        assert_eq!(Rate::per_second(3).interval, 333_333_334);
        assert_eq!(Rate::per_second(u32::MAX).interval, 1);
        assert_eq!(Rate::per_hour(7200).interval(), Duration::from_millis(500));
    }

    #[test]
    fn no_number_is_too_large() {
        let rate = Rate::every(Duration::from_nanos(u64::MAX)).burst(u32::MAX);
        let mut bucket = TokenBucket::default();
        for _ in 0..3 {
            bucket.take(rate, u64::MAX - 1);
            bucket.change(rate, rate, 5);
            assert!(bucket.next_at(rate) <= bucket.full_at);
        }
        bucket.give_back(rate);
        assert!(bucket.is_full(u64::MAX));
    }

    #[test]
    #[should_panic(expected = "a rate allows at least one task")]
    fn a_rate_of_nothing_is_refused() {
        Rate::per_second(0);
    }
}
