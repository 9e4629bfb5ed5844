//! The caller's clock, which may be set, and the steady time inside.
//!
//! All times inside are steady: nothing moves when the caller's clock is set. A time of the caller is the steady time plus
//! an offset, and each call translates what comes in and what goes out. The times at which jobs are scheduled to begin are
//! times of the caller's clock, so they are kept as they come, in a set of timers of their own.

use super::scheduler::Scheduler;

impl Scheduler {
    /// Takes the caller's time as the present, and returns the steady time. Time passes; it never goes back.
    pub(super) fn at(&mut self, now: u64) -> u64 {
        self.now = self.now.max(self.steady(now));
        self.now
    }

    /// The steady time at which the caller's clock shows this.
    pub(super) fn steady(&self, at: u64) -> u64 {
        at.saturating_add_signed(self.offset.saturating_neg())
    }

    /// What the caller's clock shows at this steady time.
    pub(super) fn shown(&self, at: u64) -> u64 {
        at.saturating_add_signed(self.offset)
    }

    /// The caller's clock was set forward by `by` milliseconds. What was to happen in a minute still does. The times at
    /// which jobs are scheduled to begin stay, for they are times of that clock. O(1).
    pub fn shift(&mut self, by: i64) {
        self.offset = self.offset.saturating_add(by);
    }
}
