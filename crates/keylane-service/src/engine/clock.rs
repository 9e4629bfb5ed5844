//! Time of the service: milliseconds since 1970, as the system's clock shows them.
//!
//! # Protocol
//!
//! 1. **Two clocks.** A *steady* clock never stops or jumps, and includes the sleep of the machine
//!    (`CLOCK_BOOTTIME` where available). The *wall* clock is the system's, or a test's, and may be
//!    set at any moment. The time of the service is the steady clock plus an offset.
//! 2. **The offset follows the wall clock in one place.** [`Clock::step`] returns the difference of
//!    the two. The dispatcher reads it at least once a second, and under the lock of the engine
//!    state moves the offset of the scheduler (`scheduler/time.rs`), the deadlines of leases and
//!    then the offset here ([`Clock::follow`]). So backoffs, leases and rates keep their durations
//!    whatever the wall clock does meanwhile, and calendar times (`run_at`, `retention`, timestamps)
//!    follow the wall clock. The cost is proportional to the number of leases, independent of lanes
//!    and subtasks.
//! 3. **A time read under the lock of the engine state** is consistent with all deadlines there. A
//!    time read outside of the lock is for display, and may date from before a step.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use super::timer::sleep;
use super::wall_clock::WallClock;
use crate::wire::Timestamp;

/// Maximum forward step, in milliseconds, that is trusted at once: a machine may have started with
/// a wrong clock.
const MAX_BELIEVED_STEP: i64 = 60_000;

/// Time, in milliseconds, for which a distrusted clock must be consistent before data that is too
/// old by it is removed.
const SETTLING: i64 = 3_600_000;

/// Minimum difference of the wall clock, in milliseconds, that is followed: gradual NTP corrections
/// are applied in steps of this size.
const TOLERANCE: i64 = 250;

/// Source of steady time: the time since an arbitrary moment, including the sleep of the machine.
/// It never stops or jumps.
#[derive(Clone)]
pub(crate) struct SteadyClock(Arc<dyn Fn() -> Duration + Send + Sync>);

impl SteadyClock {
    pub(crate) fn new(now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        SteadyClock(Arc::new(now))
    }

    /// Returns the clock of the machine.
    pub(super) fn system() -> Self {
        SteadyClock::new(system_steady)
    }

    fn now(&self) -> Duration {
        (self.0)()
    }

    /// Waits until the clock shows `moment`. The sleep of the machine counts, and is noticed within
    /// a second. Cancel safe.
    async fn reached(&self, moment: Duration) {
        const GLANCE: Duration = Duration::from_secs(1);
        loop {
            let left = moment.saturating_sub(self.now());
            if left.is_zero() {
                return;
            }
            sleep(left.min(GLANCE)).await;
        }
    }

    fn ms(&self) -> i64 {
        i64::try_from(self.now().as_millis()).unwrap_or(i64::MAX)
    }
}

impl fmt::Debug for SteadyClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SteadyClock").field(&self.now()).finish()
    }
}

#[derive(Debug)]
pub(crate) struct Clock {
    wall: WallClock,
    steady: SteadyClock,
    /// Offset to the steady clock, in milliseconds. Written only under the lock of the engine
    /// state.
    offset: AtomicI64,
    started: Timestamp,
    /// Steady time of the last large forward step of the wall clock.
    doubted_since: AtomicI64,
    /// True if there was a large forward step.
    was_doubted: AtomicBool,
}

impl Clock {
    pub(super) fn start(wall: WallClock, steady: SteadyClock) -> Self {
        let started = wall.now();
        let offset = AtomicI64::new(started.0.cast_signed().wrapping_sub(steady.ms()));
        let (doubted_since, was_doubted) = (AtomicI64::new(0), AtomicBool::new(false));
        Clock { wall, steady, offset, started, doubted_since, was_doubted }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let now = self.steady.ms().saturating_add(self.offset.load(Relaxed));
        Timestamp(now.max(0).cast_unsigned())
    }

    /// Returns the steady time, independent of the wall clock, to measure durations.
    pub(super) fn steady(&self) -> Duration {
        self.steady.now()
    }

    /// Waits until the steady clock shows `moment`. Cancel safe.
    pub(super) async fn reached_steady(&self, moment: Duration) {
        self.steady.reached(moment).await;
    }

    /// Returns the steady time in milliseconds.
    pub(super) fn steady_ms(&self) -> u64 {
        self.steady.ms().max(0).cast_unsigned()
    }

    /// Returns the wall time of the service's start.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    /// Returns the duration until `at`; zero if it is past.
    pub(crate) fn until(&self, at: u64) -> Duration {
        Duration::from_millis(at.saturating_sub(self.now().0))
    }

    /// Returns the step of the wall clock since it was last followed, in milliseconds, if it was
    /// set.
    pub(super) fn step(&self) -> Option<i64> {
        let apart = self.wall.now().0.cast_signed().saturating_sub(self.now().0.cast_signed());
        (apart.abs() > TOLERANCE).then_some(apart)
    }

    /// Follows a [step](Self::step).
    pub(super) fn follow(&self, step: i64) {
        self.offset.fetch_add(step, Relaxed);
        if step > MAX_BELIEVED_STEP {
            self.doubt();
        }
    }

    /// Marks the wall clock as possibly wrong: nothing is removed by it for a while.
    pub(super) fn doubt(&self) {
        self.doubted_since.store(self.steady.ms(), Relaxed);
        self.was_doubted.store(true, Relaxed);
    }

    /// Returns the remaining time for which nothing may be removed for its age, if there is one:
    /// data removed by a wrong clock would be lost.
    pub(super) fn doubted_for(&self) -> Option<Duration> {
        if !self.was_doubted.load(Relaxed) {
            return None;
        }
        let left = self.doubted_since.load(Relaxed).saturating_add(SETTLING) - self.steady.ms();
        u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_millis)
    }
}

/// Returns the steady time of the machine.
#[cfg(target_os = "linux")]
fn system_steady() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::try_from(now).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn system_steady() -> Duration {
    static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    BEGIN.get_or_init(std::time::Instant::now).elapsed()
}

/// Returns a duration in whole milliseconds.
pub(super) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU64;

    use super::*;
    use crate::engine::ManualClock;

    #[test]
    fn it_follows_the_wall_clock_when_it_is_told_to() {
        let wall = ManualClock::at(1_000_000);
        let clock = Clock::start(WallClock::Manual(wall.clone()), SteadyClock::system());
        let begin = clock.now();
        assert!(begin.0 >= 1_000_000 && clock.doubted_for().is_none());
        // Small steps are ordinary corrections.
        clock.follow(30_000);
        clock.follow(-30_000);
        assert!(clock.doubted_for().is_none());
        wall.set(8_200_000);
        assert!(clock.now().0 < 8_000_000);
        let step = clock.step().unwrap();
        assert!(step > 7_000_000);
        clock.follow(step);
        assert!(clock.now().0 >= 8_200_000);
        assert!(clock.doubted_for().is_some_and(|left| left > Duration::from_secs(3000)));
        // Backward steps too, even to before 1970.
        wall.set(0);
        clock.follow(clock.step().unwrap());
        assert!(clock.now().0 < 1_000_000);
        assert_eq!(clock.started().0, 1_000_000);
    }

    #[test]
    fn only_the_steady_clock_moves_the_time_and_ends_the_doubt() {
        let wall = WallClock::Manual(ManualClock::at(1_000_000));
        let seconds = Arc::new(AtomicU64::new(5));
        let steady = {
            let seconds = Arc::clone(&seconds);
            SteadyClock::new(move || Duration::from_secs(seconds.load(Relaxed)))
        };
        let clock = Clock::start(wall, steady);
        assert_eq!(clock.now().0, 1_000_000);
        clock.doubt();
        seconds.store(5 + 3599, Relaxed);
        assert_eq!(clock.now().0, 1_000_000 + 3_599_000);
        assert_eq!(clock.doubted_for(), Some(Duration::from_secs(1)));
        seconds.store(5 + 3600, Relaxed);
        assert_eq!(clock.doubted_for(), None);
        assert_eq!(clock.until(4_600_500), Duration::from_millis(500));
    }
}
