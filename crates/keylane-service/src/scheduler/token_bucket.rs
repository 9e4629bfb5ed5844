//! Token bucket in whole numbers, so that rounding loses no tokens.
//!
//! It holds up to `burst` tokens, is full at first, and gains `tokens` every `period_ms`, evenly. A
//! start takes one (the leaky bucket as a meter: Turner, "New directions in communications", 1986).

use super::RateLimit;

#[derive(Clone, Debug)]
pub(super) struct TokenBucket {
    rate: RateLimit,
    /// Level in fractions of a token; one token is `period_ms` fractions.
    level: u64,
    /// Time up to which gained tokens are included, in milliseconds.
    counted: u64,
}

impl TokenBucket {
    pub(super) fn new(rate: RateLimit, now: u64) -> Self {
        let rate = RateLimit { period_ms: rate.period_ms.max(1), burst: rate.burst.max(1), ..rate };
        TokenBucket { rate, level: most(rate), counted: now }
    }

    /// Changes the rate and keeps the level, up to the new burst.
    pub(super) fn change(&mut self, rate: RateLimit, now: u64) {
        self.count(now);
        let new = TokenBucket::new(rate, now);
        let kept = u128::from(self.level) * u128::from(new.rate.period_ms)
            / u128::from(self.rate.period_ms);
        let level = u64::try_from(kept).unwrap_or(u64::MAX).min(new.level);
        *self = TokenBucket { level, ..new };
    }

    /// Number of whole tokens.
    pub(super) fn tokens(&mut self, now: u64) -> u64 {
        self.count(now);
        self.level / token(self.rate)
    }

    /// Takes an existing token.
    pub(super) fn take(&mut self, now: u64) {
        self.count(now);
        self.level -= token(self.rate);
    }

    /// Time of the next token, in milliseconds; `None` if there will be none.
    pub(super) fn next(&mut self, now: u64) -> Option<u64> {
        self.count(now);
        let missing = token(self.rate).saturating_sub(self.level);
        let wait = match self.rate.tokens {
            _ if missing == 0 => 0,
            0 => return None,
            tokens => missing.div_ceil(u64::from(tokens)),
        };
        Some(self.counted.saturating_add(wait))
    }

    /// Time at which it is full, in milliseconds; `None` if it never is.
    pub(super) fn full_at(&mut self, now: u64) -> Option<u64> {
        self.count(now);
        let missing = most(self.rate) - self.level;
        let wait = match self.rate.tokens {
            _ if missing == 0 => 0,
            0 => return None,
            tokens => missing.div_ceil(u64::from(tokens)),
        };
        Some(self.counted.saturating_add(wait))
    }

    fn count(&mut self, now: u64) {
        let passed = now.saturating_sub(self.counted);
        let gained = passed.saturating_mul(u64::from(self.rate.tokens));
        self.level = self.level.saturating_add(gained).min(most(self.rate));
        self.counted = self.counted.max(now);
    }
}

fn most(rate: RateLimit) -> u64 {
    token(rate) * u64::from(rate.burst)
}

/// Number of fractions of one token.
fn token(rate: RateLimit) -> u64 {
    u64::from(rate.period_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = TokenBucket::new(RateLimit { tokens: 3, period_ms: 1000, burst: 2 }, 0);
        let mut given = Vec::new();
        let mut now = 0;
        while given.len() < 8 {
            now = bucket.next(now).unwrap();
            bucket.take(now);
            given.push(now);
        }
        // Two at once, then three a second, without drift.
        assert_eq!(given, [0, 0, 334, 667, 1000, 1334, 1667, 2000]);
        assert_eq!(bucket.tokens(1_000_000), 2);
    }

    #[test]
    fn another_rate_keeps_what_is_there() {
        let mut bucket = TokenBucket::new(RateLimit { tokens: 1, period_ms: 100, burst: 5 }, 0);
        (0..3).for_each(|_| bucket.take(0));
        bucket.change(RateLimit { tokens: 1, period_ms: 7, burst: 9 }, 0);
        assert_eq!(bucket.tokens(0), 2);
        bucket.change(RateLimit { tokens: 0, period_ms: 7, burst: 1 }, 0);
        assert_eq!(bucket.tokens(0), 1);
        bucket.take(0);
        assert_eq!(bucket.next(50), None);
    }
}
