//! A clock that is cheap enough to be read for every task, and no more exact than that asks for.

use std::time::{Duration, Instant};

/// Milliseconds since the pool was built, to within the operating system's tick (1 to 10 ms).
///
/// `Instant::now` costs as much as everything else that a submission does; on Linux the coarse
/// monotonic clock costs a tenth of it.
#[derive(Debug)]
pub(crate) struct Clock {
    #[cfg(target_os = "linux")]
    start: u32,
    /// When the pool was built.
    epoch: Instant,
}

/// A coarse time fits below the mark that a task's label has in the highest bit.
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

    /// The time since `then`, a reading of this clock less than 24 days ago. Its highest bit is ignored.
    pub(crate) fn since(&self, then: u32) -> Duration {
        Duration::from_millis(Self::passed(then, self.now()).into())
    }

    /// The milliseconds from one reading of this clock to another; in the upper half of all that there
    /// can be if it is the other that came first.
    pub(crate) fn passed(from: u32, to: u32) -> u32 {
        to.wrapping_sub(from) & MASK
    }

    /// The most that can pass, twice of what can be told from an earlier time.
    pub(crate) const MAX: u32 = MASK;

    /// When the pool was built: where its exact times begin.
    pub(crate) fn epoch(&self) -> Instant {
        self.epoch
    }

    /// The exact time: nanoseconds since the pool was built.
    pub(crate) fn nanos(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }
}
