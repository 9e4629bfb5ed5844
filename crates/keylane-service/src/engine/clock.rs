//! The service's time: milliseconds since 1970 that never go back while it runs.

use std::time::{Duration, Instant};

use crate::wire::Timestamp;

/// The system's time at the start, and what a steady clock has counted since. So a clock that is set while
/// the service runs moves no time-out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    begin: Instant,
    begin_ms: u64,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Clock { begin: Instant::now(), begin_ms: Timestamp::now().0 }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let since = u64::try_from(self.begin.elapsed().as_millis()).unwrap_or(u64::MAX);
        Timestamp(self.begin_ms.saturating_add(since))
    }

    /// When it was started.
    pub(crate) fn started(&self) -> Timestamp {
        Timestamp(self.begin_ms)
    }

    /// How long it is until then; nothing if it is past.
    pub(crate) fn until(&self, at: u64) -> Duration {
        Duration::from_millis(at.saturating_sub(self.now().0))
    }
}
