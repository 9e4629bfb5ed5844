//! The service's time: milliseconds since 1970, as the system's clock has them.
//!
//! # Protocol
//!
//! 1. **Two clocks.** A *steady* clock counts on through everything, the sleep of the machine included
//!    (`CLOCK_BOOTTIME` where there is one). The *wall* clock is the system's, or a test's, and may be set at any
//!    moment. The time of the service is the steady clock plus an offset.
//! 2. **The offset follows the wall clock in one place.** [`Clock::step`] says how far the two are apart;
//!    the dispatcher asks it once a second at least, and under the lock of the books moves the offset of the scheduler
//!    (`schedule/time.rs`), the deadlines of leases and then the offset here ([`Clock::follow`]). So a backoff, a lease and
//!    a rate last as long as they were to, whatever the clock does meanwhile; and times of the calendar (`run_at`, `keep`,
//!    when something was) go by the wall clock. It costs as much as there are leases, and nothing for lanes and subtasks.
//! 3. **A time read under the lock of the books** is one that all deadlines there go by. Outside of it a time
//!    is for people, and may be of before a step.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering::Relaxed};
use std::time::Duration;

use super::calendar::Calendar;
use crate::wire::Timestamp;

/// A clock that was set forward further than this may be wrong: a machine may have started with a wrong one.
const MAX_BELIEVED_STEP: i64 = 60_000;

/// How long such a clock has to show the same before what is too old by it is removed.
const SETTLING: i64 = 3_600_000;

/// How far the wall clock may be off before it is followed: what NTP corrects bit by bit comes in steps of this.
const TOLERANCE: i64 = 250;

#[derive(Debug)]
pub(crate) struct Clock {
    wall: Calendar,
    /// Milliseconds to be added to the steady clock. Changed under the lock of the books alone.
    offset: AtomicI64,
    started: Timestamp,
    /// When, by the steady clock, the wall clock was last found to have been set forward far.
    doubted_since: AtomicI64,
    /// Whether it was ever.
    was_doubted: AtomicBool,
}

impl Clock {
    pub(crate) fn start(wall: Calendar) -> Self {
        let started = wall.now();
        let offset = AtomicI64::new(started.0.cast_signed().wrapping_sub(steady()));
        let (doubted_since, was_doubted) = (AtomicI64::new(0), AtomicBool::new(false));
        Clock { wall, offset, started, doubted_since, was_doubted }
    }

    pub(crate) fn now(&self) -> Timestamp {
        let now = steady().saturating_add(self.offset.load(Relaxed));
        Timestamp(now.max(0).cast_unsigned())
    }

    /// Milliseconds that count on whatever the wall clock shows, for how long something has lasted.
    pub(crate) fn steady(&self) -> u64 {
        steady().max(0).cast_unsigned()
    }

    /// When it was started, as the wall clock then was.
    pub(crate) fn started(&self) -> Timestamp {
        self.started
    }

    /// How long it is until then; nothing if it is past.
    pub(crate) fn until(&self, at: u64) -> Duration {
        Duration::from_millis(at.saturating_sub(self.now().0))
    }

    /// How many milliseconds the wall clock was set forward since it was followed last, if it was set.
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

    /// The wall clock may be in a wrong future: nothing is to be removed by it for a while.
    pub(super) fn doubt(&self) {
        self.doubted_since.store(steady(), Relaxed);
        self.was_doubted.store(true, Relaxed);
    }

    /// How long nothing is to be removed for being too old, if so: what a wrong clock calls old would be gone for good.
    pub(super) fn doubted_for(&self) -> Option<Duration> {
        if !self.was_doubted.load(Relaxed) {
            return None;
        }
        let left = self.doubted_since.load(Relaxed).saturating_add(SETTLING) - steady();
        u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_millis)
    }
}

/// Milliseconds since some moment, the sleep of the machine included.
#[cfg(target_os = "linux")]
fn steady() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    now.tv_sec * 1000 + now.tv_nsec / 1_000_000
}

#[cfg(not(target_os = "linux"))]
fn steady() -> i64 {
    static BEGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let since = BEGIN.get_or_init(std::time::Instant::now).elapsed();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ManualClock;

    #[test]
    fn it_follows_the_wall_clock_when_it_is_told_to() {
        let wall = ManualClock::at(1_000_000);
        let clock = Clock::start(Calendar::Manual(wall.clone()));
        let begin = clock.now();
        assert!(begin.0 >= 1_000_000 && clock.doubted_for().is_none());
        // A little is what every clock is corrected by.
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
        // Backwards as well, even to before 1970.
        wall.set(0);
        clock.follow(clock.step().unwrap());
        assert!(clock.now().0 < 1_000_000);
        assert_eq!(clock.started().0, 1_000_000);
    }
}
