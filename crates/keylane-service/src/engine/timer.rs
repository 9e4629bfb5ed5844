//! Timers of the engine. They belong to the runtime that the engine was started on, so a runtime
//! with simulated time moves all of them.
//!
//! Only this file names `tokio::time`. A timer does not run while the machine sleeps; a wait until a
//! moment of the steady clock includes that sleep ([`Clock::reached_steady`](super::clock::Clock)).

use std::time::Duration;

use tokio::time::Instant;

/// Waits for a duration. Cancel safe.
pub(super) async fn sleep(duration: Duration) {
    tokio::time::sleep(duration).await;
}

/// Waits for `work`, at most for `duration`. Returns `None` if the duration was over first.
pub(super) async fn timeout<T>(duration: Duration, work: impl Future<Output = T>) -> Option<T> {
    tokio::time::timeout(duration, work).await.ok()
}

/// Moment at which a wait ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    /// Creates the deadline of a wait that begins now.
    pub(super) fn after(wait: Duration) -> Self {
        let now = Instant::now();
        // A wait beyond the range of the clock lasts as long as the range allows.
        Deadline(now.checked_add(wait).unwrap_or_else(|| now + Duration::from_secs(1 << 30)))
    }

    /// Returns the remaining duration; zero if the deadline has passed.
    pub(super) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    pub(super) fn has_passed(self) -> bool {
        self.left().is_zero()
    }
}
