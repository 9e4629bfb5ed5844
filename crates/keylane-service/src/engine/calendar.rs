//! The time by which schedules fire: the system's clock, for what people say of it is what they mean; or one that a
//! test moves.
//!
//! Unlike the service's own [`Clock`](super::Clock), which counts steadily from the start, it follows the system's
//! clock when that is set, and over the sleep of a machine.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::wire::Timestamp;

/// How long nobody looks at the system's clock: what is set, or sleeps, is noticed within this.
const GLANCE: Duration = Duration::from_secs(1);

/// A clock that stands until it is told to move, for tests of schedules. A clone is the same clock.
///
/// # Examples
/// ```
/// use keylane_service::{ManualClock, Settings};
///
/// let clock = ManualClock::at(1_763_000_000_000);
/// let settings = Settings { clock: Some(clock.clone()), ..Settings::new("tasks") };
/// clock.set(1_763_000_060_000); // A minute later, for all schedules of the service.
/// # drop(settings);
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<watch::Sender<u64>>);

impl ManualClock {
    /// One that shows this: milliseconds since 1970.
    #[must_use]
    pub fn at(ms: u64) -> Self {
        ManualClock(Arc::new(watch::channel(ms).0))
    }

    /// It shows this from now on, which may be earlier.
    pub fn set(&self, ms: u64) {
        self.0.send_replace(ms);
    }

    /// What it shows.
    #[must_use]
    pub fn now(&self) -> u64 {
        *self.0.borrow()
    }
}

/// What schedules look at.
#[derive(Clone, Debug)]
pub(crate) enum Calendar {
    System,
    Manual(ManualClock),
}

impl Calendar {
    pub(crate) fn now(&self) -> Timestamp {
        match self {
            Calendar::System => Timestamp::now(),
            Calendar::Manual(clock) => Timestamp(clock.now()),
        }
    }

    /// Waits until then, if there is such a time; otherwise for ever. Dropped, it has done nothing.
    pub(super) async fn reached(&self, at: Option<u64>) {
        let Some(at) = at else { return std::future::pending().await };
        match self {
            Calendar::System => loop {
                let left = Duration::from_millis(at.saturating_sub(Timestamp::now().0));
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(GLANCE)).await;
            },
            Calendar::Manual(clock) => {
                let mut shown = clock.0.subscribe();
                let reached = shown.wait_for(|now| *now >= at).await;
                reached.expect("the clock has its sender");
            }
        }
    }
}
