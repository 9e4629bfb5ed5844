//! A clock that is cheap enough to be read for every task, and no more exact than that asks for.

use std::time::Duration;
#[cfg(not(target_os = "linux"))]
use std::time::Instant;

/// Milliseconds since the pool was built, to within the operating system's tick (1 to 10 ms).
///
/// `Instant::now` costs as much as everything else that a submission does; on Linux the coarse
/// monotonic clock costs a tenth of it.
#[derive(Debug)]
pub(crate) struct Clock {
    #[cfg(target_os = "linux")]
    start: u32,
    #[cfg(not(target_os = "linux"))]
    start: Instant,
}

#[cfg(target_os = "linux")]
fn coarse_millis() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    (now.tv_sec as u32).wrapping_mul(1000).wrapping_add(now.tv_nsec as u32 / 1_000_000)
}

impl Clock {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> Self {
        Clock { start: coarse_millis() }
    }

    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        coarse_millis().wrapping_sub(self.start)
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> Self {
        Clock { start: Instant::now() }
    }

    #[cfg(not(target_os = "linux"))]
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.start.elapsed().as_millis() as u32
    }

    /// The time since `then`, a reading of this clock less than 49 days ago.
    pub(crate) fn since(&self, then: u32) -> Duration {
        Duration::from_millis(self.now().wrapping_sub(then).into())
    }
}
