//! Steady time of the scheduler, and the caller's clock, which can be set.
//!
//! All internal times are steady: no event moves when the caller's clock is set. A time of the
//! caller is the steady time plus an offset, and every call converts its inputs and outputs. Start
//! times of scheduled jobs are times of the caller's clock, so they are kept unconverted in a
//! separate set of timers.

use super::state::Scheduler;

impl Scheduler {
    /// Advances to the caller's time and returns the steady time, which never goes back.
    pub(super) fn at(&mut self, now: u64) -> u64 {
        self.now = self.now.max(self.steady(now));
        self.now
    }

    /// Steady time for a time of the caller.
    pub(super) fn steady(&self, at: u64) -> u64 {
        at.saturating_add_signed(self.offset.saturating_neg())
    }

    /// Time of the caller for a steady time.
    pub(super) fn shown(&self, at: u64) -> u64 {
        at.saturating_add_signed(self.offset)
    }

    /// Follows a caller's clock that was set forward by `by` milliseconds. Delays keep their
    /// length; start times of scheduled jobs stay, because they are times of that clock. O(1).
    pub fn shift(&mut self, by: i64) {
        self.offset = self.offset.saturating_add(by);
    }
}
