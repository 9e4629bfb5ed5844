//! Limits the number of tasks of a key that hold its lane at once.
//!
//! Unlike a shared lane, a limited lane is granted onward before its last holder leaves: each end
//! makes capacity for the first of the wait queue. A new task joins only if the wait queue is
//! empty, and goes to `ready` like one that is granted the lane, so workers get them in order of
//! submission.

use super::*;

impl LaneHolders {
    /// Returns the state with one holder in this mode.
    #[inline]
    pub(super) fn one(mode: ClaimMode) -> Self {
        match mode {
            ClaimMode::Exclusive => LaneHolders::Exclusive,
            ClaimMode::Shared => LaneHolders::Shared(1),
            ClaimMode::Limited(least) => LaneHolders::Limited { count: 1, least },
        }
    }

    /// Returns the state with one more holder, which was admitted.
    pub(super) fn and_one(self, mode: ClaimMode) -> Self {
        match (self, mode) {
            (LaneHolders::Shared(count), _) => LaneHolders::Shared(count + 1),
            (LaneHolders::Limited { count, least }, ClaimMode::Limited(max)) => {
                LaneHolders::Limited { count: count + 1, least: least.min(max) }
            }
            _ => unreachable!("it was admitted"),
        }
    }

    /// Returns whether a task may hold the lane beside these holders.
    #[inline]
    pub(super) fn admit(self, mode: ClaimMode) -> bool {
        match (self, mode) {
            (LaneHolders::Shared(_), ClaimMode::Shared) => true,
            (LaneHolders::Limited { count, least }, ClaimMode::Limited(max)) => {
                count < least.min(max)
            }
            _ => false,
        }
    }
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Admits a task beside the holders of a lane, if it would overtake no waiter.
    #[inline]
    pub(super) fn join(&mut self, slot: usize, mode: ClaimMode) -> bool {
        let lane = &self.lanes[slot];
        let joins = lane.holders.admit(mode) && lane.waiting.is_empty();
        if joins {
            self.add_holder(slot, mode);
        }
        joins
    }

    /// Adds an admitted task to the holders of a lane.
    pub(super) fn add_holder(&mut self, slot: usize, mode: ClaimMode) {
        let lane = &mut self.lanes[slot];
        lane.holders = lane.holders.and_one(mode);
        self.limits.note(slot, mode);
    }

    /// Removes a holder that limits its lane, and grants the freed capacity to the front of the
    /// wait queue: to more than one task, if the holder had the least limit.
    pub(super) fn leave_limited(&mut self, slot: usize, max: u16) -> Option<K> {
        if !self.drop_limited(slot, max) {
            return self.leave(slot);
        }
        self.admit_sharers(slot);
        None
    }

    /// Removes a holder that limits its lane, without granting the capacity. Returns whether a
    /// holder remains; if not, the lane looks as if the last were still there.
    pub(super) fn drop_limited(&mut self, slot: usize, max: u16) -> bool {
        let left = self.limits.forget(slot, max);
        if let LaneHolders::Limited { count, least } = &mut self.lanes[slot].holders
            && let Some(rest) = left
        {
            (*count, *least) = (*count - 1, rest);
        }
        left.is_some()
    }
}
