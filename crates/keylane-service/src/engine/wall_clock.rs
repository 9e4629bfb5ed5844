//! Wall clock of schedules: the system's clock, because users mean its times; or a clock that a
//! test moves.
//!
//! In contrast to the service's own [`Clock`](super::Clock), which advances steadily from the
//! start, it follows the system's clock when that is set, and across the sleep of a machine.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use super::timer::sleep;
use crate::wire::Timestamp;

/// Interval between reads of the system's clock: the maximum delay until a changed clock or a sleep
/// is noticed.
const GLANCE: Duration = Duration::from_secs(1);

/// Wall clock that moves only on request, for tests of schedules. Clones share one clock.
///
/// # Examples
/// ```
/// use keylane_service::{ManualClock, ServiceSettings};
///
/// let clock = ManualClock::at(1_763_000_000_000);
/// let settings = ServiceSettings { clock: Some(clock.clone()), ..ServiceSettings::new("tasks") };
/// clock.set(1_763_000_060_000); // A minute later, for all schedules of the service.
/// # drop(settings);
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<watch::Sender<u64>>);

impl ManualClock {
    /// Creates a clock that shows `ms` milliseconds since 1970.
    #[must_use]
    pub fn at(ms: u64) -> Self {
        ManualClock(Arc::new(watch::channel(ms).0))
    }

    /// Sets the clock to `ms` milliseconds since 1970, which may be earlier than its time.
    pub fn set(&self, ms: u64) {
        self.0.send_replace(ms);
    }

    /// Returns the time in milliseconds since 1970.
    #[must_use]
    pub fn now(&self) -> u64 {
        *self.0.borrow()
    }
}

/// Source of wall time.
#[derive(Clone)]
pub(crate) enum WallClock {
    /// Clock that advances by itself and may be set at any moment.
    Running(Arc<dyn Fn() -> Timestamp + Send + Sync>),
    Manual(ManualClock),
}

impl WallClock {
    /// Returns the clock of the machine.
    pub(crate) fn system() -> Self {
        WallClock::running(Timestamp::now)
    }

    /// Creates a clock that advances by itself.
    pub(crate) fn running(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        WallClock::Running(Arc::new(now))
    }

    pub(crate) fn now(&self) -> Timestamp {
        match self {
            WallClock::Running(now) => now(),
            WallClock::Manual(clock) => Timestamp(clock.now()),
        }
    }

    /// Waits until the clock shows `at`, or forever if that is `None`. Cancel safe.
    pub(super) async fn reached(&self, at: Option<u64>) {
        let Some(at) = at else { return std::future::pending().await };
        match self {
            WallClock::Running(now) => loop {
                let left = Duration::from_millis(at.saturating_sub(now().0));
                if left.is_zero() {
                    return;
                }
                sleep(left.min(GLANCE)).await;
            },
            WallClock::Manual(clock) => {
                let mut shown = clock.0.subscribe();
                let reached = shown.wait_for(|now| *now >= at).await;
                reached.expect("the clock has its sender");
            }
        }
    }
}

impl fmt::Debug for WallClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WallClock").field(&self.now()).finish()
    }
}
