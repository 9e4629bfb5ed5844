//! Clock for the times of attempts: setting the system's clock does not reorder them.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Moment by the steady and by the system's clock.
#[derive(Debug)]
pub(super) struct OutputClock(Instant, SystemTime);

impl OutputClock {
    pub(super) fn start() -> Self {
        OutputClock(Instant::now(), SystemTime::now())
    }

    /// Returns the time in microseconds since 1970.
    pub(super) fn now_us(&self) -> i64 {
        let since_1970 = self.1.duration_since(UNIX_EPOCH).unwrap_or_default() + self.0.elapsed();
        i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX)
    }
}
