//! What a consumer takes from outside of its state machines: clocks and random numbers. The
//! simulation passes its own in, and its own [lanes](super::record_lanes).

use std::fmt;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

/// Clocks of a consumer.
pub(super) trait Clock: Send + Sync {
    /// Returns the steady time.
    fn now(&self) -> Instant;

    /// Returns the time of day.
    fn wall(&self) -> SystemTime;
}

/// Clocks of the operating system.
struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        Instant::now()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// Clocks and random numbers of a consumer.
pub(super) struct Outside {
    clock: Box<dyn Clock>,
    /// Number of random numbers drawn; each is hashed with the seed.
    drawn: AtomicU64,
    seed: u64,
}

impl Outside {
    pub(super) fn new(clock: impl Clock + 'static, seed: u64) -> Self {
        Outside { clock: Box::new(clock), drawn: AtomicU64::new(0), seed }
    }

    /// Clocks of the operating system, and a random seed.
    pub(super) fn system() -> Self {
        Outside::new(SystemClock, foldhash::quality::RandomState::default().hash_one(0))
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.now()
    }

    pub(super) fn wall(&self) -> SystemTime {
        self.clock.wall()
    }

    /// Returns a random number. Predictable numbers are fine: they only spread retries.
    pub(super) fn random(&self) -> u64 {
        let number = self.drawn.fetch_add(1, Ordering::Relaxed);
        foldhash::quality::FixedState::with_seed(self.seed).hash_one(number)
    }
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").finish_non_exhaustive()
    }
}
