//! State of the rate limits of an engine, and the wake-ups of its timer.

use std::time::Duration;

use crate::order::{Rate, RateDeadline, TokenBucket};
use crate::run::{MockClock, TimeSource, Timer};
use crate::sync::{AtomicBool, Mutex, Ordering};

/// Shortest time between two sweeps of full buckets, in nanoseconds. Short compared with the cost
/// of keeping a bucket, long compared with the cost of a sweep.
pub(super) const SWEEP_NANOS: u64 = 1_000_000_000;

/// Rate limits of a pool, and the timer of the engine.
#[derive(Debug)]
pub(crate) struct RateLimits {
    pub(super) time: TimeSource,
    pub(super) timer: Timer<TimerEvent>,
    /// Tokens for the tasks of all keys. Locked under a shard's lanes; only the timer's lock is
    /// taken under it.
    pub(super) pool: Mutex<PoolRate>,
    /// Whether the pool has a rate. Written under `pool`, read without it.
    pub(super) limits_pool: AtomicBool,
    /// Whether the pool has no token, and the timer is set for the next one. Written under `pool`,
    /// read without it.
    pub(super) shut: AtomicBool,
}

#[derive(Debug)]
pub(super) struct PoolRate {
    pub(super) rate: Option<Rate>,
    pub(super) bucket: TokenBucket,
}

/// Work of the timer thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerEvent {
    /// Opens the pool.
    Open,
    /// Resumes a paused lane, as far as there are tokens.
    RateDeadline { shard: usize, slot: usize },
    /// Forgets full buckets.
    Sweep { shard: usize },
    /// Makes a further attempt of failed work ready.
    Attempt { number: u64 },
    /// Enters a delayed task.
    Delayed { number: u64 },
}

/// Changes for the timer, to be made when the lanes are unlocked.
#[derive(Debug, Default)]
pub(super) struct PendingWakeups {
    pub(super) recall: Option<RateDeadline>,
    pub(super) sweep: Option<u64>,
}

impl PendingWakeups {
    /// Creates a change of a key's deadline alone.
    pub(super) fn recall(recall: Option<RateDeadline>) -> Self {
        PendingWakeups { recall, sweep: None }
    }
}

impl RateLimits {
    pub(super) fn new(clock: Option<MockClock>, rate: Option<Rate>) -> Self {
        RateLimits {
            time: TimeSource::new(clock),
            timer: Timer::new(),
            pool: Mutex::new(PoolRate { rate, bucket: TokenBucket::default() }),
            limits_pool: AtomicBool::new(rate.is_some()),
            shut: AtomicBool::new(false),
        }
    }

    /// Returns whether no task may begin.
    #[inline]
    pub(crate) fn is_shut(&self) -> bool {
        self.shut.load(Ordering::Acquire)
    }

    /// Returns whether no task may begin, ordered with the store that clears the flag.
    pub(super) fn is_shut_synced(&self) -> bool {
        self.shut.fetch_or(false, Ordering::AcqRel)
    }

    pub(crate) fn limits_pool(&self) -> bool {
        self.limits_pool.load(Ordering::Acquire)
    }

    /// Returns the time on the clock of the timer, in nanoseconds.
    pub(super) fn now(&self) -> u64 {
        self.time.now()
    }

    /// Cancels the wake-up at `was`, if any, and sets one at `at`.
    pub(super) fn set_alarm(&self, was: Option<u64>, at: Option<u64>, wakeup: TimerEvent) {
        self.timer.set(was, at, wakeup);
    }

    /// Returns the time left until `at`.
    pub(super) fn left_until(&self, at: u64) -> Duration {
        Duration::from_nanos(at.saturating_sub(self.time.now()))
    }

    /// Returns the time for which no task begins, if the pool is shut.
    pub(super) fn shut_for(&self) -> Option<Duration> {
        let pool = self.pool.lock();
        let rate = pool.rate.filter(|_| self.is_shut())?;
        Some(self.left_until(pool.bucket.next_at(rate)))
    }

    /// Takes a token of the pool, if there is one or none is needed. Otherwise shuts the pool and
    /// returns false.
    pub(super) fn take(&self) -> bool {
        let mut pool = self.pool.lock();
        let Some(rate) = pool.rate else { return true };
        let (now, next) = (self.time.now(), pool.bucket.next_at(rate));
        if next <= now {
            pool.bucket.take(rate, now);
            return true;
        }
        if !self.shut.swap(true, Ordering::AcqRel) {
            self.timer.set(None, Some(next), TimerEvent::Open);
        }
        false
    }

    /// Opens the pool, unless there is still no token. Returns whether it was shut.
    pub(super) fn open(&self, pool: &PoolRate) -> bool {
        if let Some(rate) = pool.rate
            && let next = pool.bucket.next_at(rate)
            && next > self.time.now()
        {
            if self.is_shut() {
                self.timer.set(None, Some(next), TimerEvent::Open);
            }
            return false;
        }
        self.shut.swap(false, Ordering::AcqRel)
    }

    /// Ends the timer: the pool is stopped, and nothing will begin any more.
    pub(super) fn end(&self) {
        self.timer.end();
    }

    pub(super) fn join(&self) {
        self.timer.join();
    }
}
