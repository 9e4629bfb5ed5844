//! Where the time comes from by which rates are kept: the system, or whoever tests something.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{Mutex, Thread, park, park_timeout};

/// A clock that stands still until it is [advanced](Self::advance), for tests of what happens in time.
///
/// A pool that was [built](crate::Builder::clock) with one keeps its rates by it. Copies are the same clock.
///
/// ```
/// use std::time::Duration;
/// use keylane::{MockClock, Pool, Rate};
///
/// let clock = MockClock::new();
/// let pool = Pool::<&str>::builder().rate_per_key(Rate::per_hour(1)).clock(&clock).build()?;
/// let first = pool.submit("alice", || "first")?;
/// let second = pool.submit("alice", || "second")?;
/// assert_eq!(first.wait()?.ok(), Some("first"));
/// assert!(!second.is_finished());
/// clock.advance(Duration::from_secs(3600));
/// assert_eq!(second.wait()?.ok(), Some("second"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct MockClock(Arc<Mutex<ManualTime>>);

#[derive(Debug, Default)]
struct ManualTime {
    /// Nanoseconds since the clock was made.
    now: u64,
    /// Whom to tell when that changes, each with the number that it knows itself by.
    listeners: Vec<(usize, Thread)>,
    /// The number of the next.
    next: usize,
}

impl MockClock {
    /// A clock at zero.
    pub fn new() -> Self {
        MockClock::default()
    }

    /// How far it has been advanced.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.lock().now)
    }

    /// Lets so much time pass at once. What becomes possible by that is done by the pool's threads, so it
    /// need not have happened when this returns.
    pub fn advance(&self, by: Duration) {
        let mut hands = self.0.lock();
        hands.now = hands.now.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX));
        let listeners = hands.listeners.clone();
        drop(hands);
        listeners.iter().for_each(|(_, thread)| thread.unpark());
    }
}

/// A source of time: nanoseconds since some moment.
#[derive(Clone, Debug)]
pub(crate) enum RateClock {
    /// Since this one, by the system's monotonic clock.
    System(Instant),
    Manual(MockClock),
}

impl RateClock {
    pub(crate) fn new(manual: Option<MockClock>) -> Self {
        manual.map_or_else(|| RateClock::System(Instant::now()), RateClock::Manual)
    }

    pub(crate) fn now(&self) -> u64 {
        match self {
            RateClock::System(epoch) => {
                u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
            RateClock::Manual(clock) => clock.0.lock().now,
        }
    }

    /// Has a thread unparked whenever a clock is advanced that stands still otherwise.
    pub(super) fn listen(&self, thread: &Thread) -> Option<usize> {
        let RateClock::Manual(clock) = self else { return None };
        let mut hands = clock.0.lock();
        let number = hands.next;
        hands.next += 1;
        hands.listeners.push((number, thread.clone()));
        Some(number)
    }

    /// Takes that back.
    pub(super) fn forget(&self, listener: Option<usize>) {
        if let (RateClock::Manual(clock), Some(listener)) = (self, listener) {
            clock.0.lock().listeners.retain(|(number, _)| *number != listener);
        }
    }

    /// Parks the calling thread until that time has come; or until it is unparked, or for no reason at all.
    pub(super) fn park_until(&self, at: Option<u64>) {
        match (self, at) {
            (RateClock::System(_), Some(at)) => {
                park_timeout(Duration::from_nanos(at.saturating_sub(self.now())))
            }
            // Who advances the clock unparks.
            _ => park(),
        }
    }
}
