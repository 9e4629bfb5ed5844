//! Coarse clock, cheap enough to read for every task.

use std::time::{Duration, Instant};

/// Milliseconds since the pool was built, with the resolution of the operating system's tick (1 to
/// 10 ms).
///
/// `Instant::now` costs as much as all other work of a submission; on Linux the coarse monotonic
/// clock costs a tenth of it.
#[derive(Debug)]
pub(crate) struct Clock {
    #[cfg(target_os = "linux")]
    start: u32,
    /// Time at which the pool was built.
    epoch: Instant,
}

/// Range of a coarse time: leaves the highest bit free, which marks task metadata.
const MASK: u32 = u32::MAX >> 1;

#[cfg(target_os = "linux")]
fn coarse_millis() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    (now.tv_sec as u32).wrapping_mul(1000).wrapping_add(now.tv_nsec as u32 / 1_000_000)
}

impl Clock {
    #[cfg(target_os = "linux")]
    pub(crate) fn new() -> Self {
        Clock { start: coarse_millis(), epoch: Instant::now() }
    }

    #[cfg(target_os = "linux")]
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        coarse_millis().wrapping_sub(self.start) & MASK
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) fn new() -> Self {
        Clock { epoch: Instant::now() }
    }

    #[cfg(not(target_os = "linux"))]
    #[inline]
    pub(crate) fn now(&self) -> u32 {
        self.epoch.elapsed().as_millis() as u32 & MASK
    }

    /// Time since `then`, a reading of this clock less than 24 days ago. Ignores the highest bit of
    /// `then`.
    pub(crate) fn since(&self, then: u32) -> Duration {
        Duration::from_millis(Self::passed(then, self.now()).into())
    }

    /// Milliseconds from one reading of this clock to another. In the upper half of the range if
    /// `to` is the earlier one.
    pub(crate) fn passed(from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & MASK
    }

    /// Largest difference of two readings; differences up to half of it are positive.
    pub(crate) const MAX: u32 = MASK;

    /// Time at which the pool was built, from which `nanos` counts.
    pub(crate) fn epoch(&self) -> Instant {
        self.epoch
    }

    /// Exact time, in nanoseconds since the pool was built.
    pub(crate) fn nanos(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}
