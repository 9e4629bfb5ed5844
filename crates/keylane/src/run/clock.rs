//! Clock of rate limits, delays and further attempts: the system's, or one that a test advances.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::sync::{Mutex, Thread, park, park_timeout};

/// Clock that advances only by calls of [`advance`](Self::advance), for tests of time limits.
///
/// A pool that was [built](crate::Builder::clock) with one uses it for its rates, its delays and the
/// waits between attempts. Clones share the same time.
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
    /// Nanoseconds since the clock was created.
    now: u64,
    /// Threads to unpark when the time changes, each with its listener number.
    listeners: Vec<(usize, Thread)>,
    /// Number of the next listener.
    next: usize,
}

impl MockClock {
    /// Creates a clock at zero.
    pub fn new() -> Self {
        MockClock::default()
    }

    /// Time since the clock was created.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::MockClock;
    ///
    /// let clock = MockClock::new();
    /// assert_eq!(clock.now(), Duration::ZERO);
    /// clock.clone().advance(Duration::from_secs(60)); // clones share the time
    /// assert_eq!(clock.now(), Duration::from_secs(60));
    /// ```
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.0.lock().now)
    }

    /// Advances the clock by `by`. The pool's threads react asynchronously, so the effects may come
    /// after this returns.
    pub fn advance(&self, by: Duration) {
        let mut time = self.0.lock();
        time.now = time.now.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX));
        let listeners = time.listeners.clone();
        drop(time);
        listeners.iter().for_each(|(_, thread)| thread.unpark());
    }
}

/// Time source: nanoseconds since its start.
#[derive(Clone, Debug)]
pub(crate) enum TimeSource {
    /// System's monotonic clock, since this moment.
    System(Instant),
    Manual(MockClock),
}

impl TimeSource {
    pub(crate) fn new(manual: Option<MockClock>) -> Self {
        manual.map_or_else(|| TimeSource::System(Instant::now()), TimeSource::Manual)
    }

    pub(crate) fn now(&self) -> u64 {
        match self {
            TimeSource::System(epoch) => {
                u64::try_from(epoch.elapsed().as_nanos()).unwrap_or(u64::MAX)
            }
            TimeSource::Manual(clock) => clock.0.lock().now,
        }
    }

    /// Registers a thread to be unparked whenever a manual clock is advanced. Returns its listener
    /// number.
    pub(super) fn listen(&self, thread: &Thread) -> Option<usize> {
        let TimeSource::Manual(clock) = self else { return None };
        let mut time = clock.0.lock();
        let number = time.next;
        time.next += 1;
        time.listeners.push((number, thread.clone()));
        Some(number)
    }

    /// Removes a listener.
    pub(super) fn unlisten(&self, listener: Option<usize>) {
        if let (TimeSource::Manual(clock), Some(listener)) = (self, listener) {
            clock.0.lock().listeners.retain(|(number, _)| *number != listener);
        }
    }

    /// Parks the calling thread until the time `at`. May return earlier.
    pub(super) fn park_until(&self, at: Option<u64>) {
        match (self, at) {
            (TimeSource::System(_), Some(at)) => {
                park_timeout(Duration::from_nanos(at.saturating_sub(self.now())))
            }
            // Without a time, or with a manual clock, whose `advance` unparks its listeners.
            _ => park(),
        }
    }
}
