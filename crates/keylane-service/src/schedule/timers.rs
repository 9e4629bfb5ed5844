//! What is to happen when.

use std::collections::BTreeSet;

/// What happens then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Due {
    /// A task's next attempt.
    Attempt(u32),
    /// The time of a scheduled job.
    Begin(u32),
    /// A kind has a token again.
    Token(u32),
}

/// An ordered set, so that a timer that is called off is gone at once, in O(log n), however many there are.
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: BTreeSet<(u64, Due)>,
}

impl Timers {
    pub(super) fn set(&mut self, at: u64, due: Due) {
        self.set.insert((at, due));
    }

    pub(super) fn call_off(&mut self, at: u64, due: Due) {
        self.set.remove(&(at, due));
    }

    /// When the first is due.
    pub(super) fn first(&self) -> Option<u64> {
        self.set.first().map(|(at, _)| *at)
    }

    /// The next that is due.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<(u64, Due)> {
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
