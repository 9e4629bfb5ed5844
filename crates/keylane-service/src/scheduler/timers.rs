//! Timers of retries, job starts and rate limits.

use std::collections::BTreeSet;

use keylane_allocate::TenantIndex;

/// Event of a timer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TimerEvent {
    /// Next attempt of a task.
    Attempt(u32),
    /// Start time of a scheduled job.
    Begin(u32),
    /// Next token of a kind.
    Token(u32),
    /// Next token of a tenant.
    TenantToken(TenantIndex),
}

/// Ordered set of timers: a cancelled timer is removed at once, in O(log n).
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: BTreeSet<(u64, TimerEvent)>,
}

impl Timers {
    pub(super) fn set(&mut self, at: u64, due: TimerEvent) {
        self.set.insert((at, due));
    }

    pub(super) fn call_off(&mut self, at: u64, due: TimerEvent) {
        self.set.remove(&(at, due));
    }

    /// Time of the first timer, in milliseconds.
    pub(super) fn first(&self) -> Option<u64> {
        self.set.first().map(|(at, _)| *at)
    }

    /// Removes the next due timer.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<(u64, TimerEvent)> {
        if self.first()? > now {
            return None;
        }
        self.set.pop_first()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.set.len()
    }
}
