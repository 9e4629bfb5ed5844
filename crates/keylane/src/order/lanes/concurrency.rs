//! Keys whose tasks may run beside each other, but only so many.
//!
//! Unlike a lane that is shared, one that is limited is handed on before its last holder leaves: each end
//! makes room for the first of the line. Who comes joins only if nobody waits, and goes to `ready` like who
//! is handed the lane, so they are given to workers in the order in which they came.

use super::*;

/// How many of the holders of a lane want no more than so many beside each other: by the lane's slot and
/// that number. Holders seldom differ in it, so a lane has one entry.
#[derive(Debug, Default)]
pub(super) struct ConcurrencyLimits(BTreeMap<(usize, u16), u16>);

impl ConcurrencyLimits {
    /// A task comes to hold a lane. Nothing is noted of one that does not limit it.
    pub(super) fn note(&mut self, slot: usize, mode: Mode) {
        if let Mode::Limited(most) = mode {
            *self.0.entry((slot, most)).or_default() += 1;
        }
    }

    /// How many holders of a lane are noted, and the least that any of them wants.
    #[cfg(debug_assertions)]
    pub(super) fn noted(&self, slot: usize) -> (u16, u16) {
        let of_lane = self.0.range((slot, 0)..=(slot, u16::MAX));
        of_lane.fold((0, u16::MAX), |(count, least), ((_, most), holders)| {
            (count + holders, least.min(*most))
        })
    }

    /// A task that was noted holds the lane no longer. Returns the least that those want who are left.
    fn forget(&mut self, slot: usize, most: u16) -> Option<u16> {
        let holders = self.0.get_mut(&(slot, most)).expect("it was noted");
        *holders -= 1;
        if *holders == 0 {
            self.0.remove(&(slot, most));
        }
        self.0.range((slot, 0)..=(slot, u16::MAX)).next().map(|((_, least), _)| *least)
    }
}

impl Holders {
    /// One task holds the lane, in this way.
    #[inline]
    pub(super) fn one(mode: Mode) -> Self {
        match mode {
            Mode::Exclusive => Holders::Exclusive,
            Mode::Shared => Holders::Shared(1),
            Mode::Limited(least) => Holders::Limited { count: 1, least },
        }
    }

    /// The same and one more that was admitted.
    pub(super) fn and_one(self, mode: Mode) -> Self {
        match (self, mode) {
            (Holders::Shared(count), _) => Holders::Shared(count + 1),
            (Holders::Limited { count, least }, Mode::Limited(most)) => {
                Holders::Limited { count: count + 1, least: least.min(most) }
            }
            _ => unreachable!("it was admitted"),
        }
    }

    /// Whether a task may hold the lane beside these.
    #[inline]
    pub(super) fn admit(self, mode: Mode) -> bool {
        match (self, mode) {
            (Holders::Shared(_), Mode::Shared) => true,
            (Holders::Limited { count, least }, Mode::Limited(most)) => count < least.min(most),
            _ => false,
        }
    }
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Lets a task in beside the holders of a lane, if nobody waits that it would overtake.
    #[inline]
    pub(super) fn join(&mut self, slot: usize, mode: Mode) -> bool {
        let lane = &self.lanes[slot];
        let joins = lane.holders.admit(mode) && lane.waiting.is_empty();
        if joins {
            self.add_holder(slot, mode);
        }
        joins
    }

    /// A task that is admitted holds the lane beside its holders.
    pub(super) fn add_holder(&mut self, slot: usize, mode: Mode) {
        let lane = &mut self.lanes[slot];
        lane.holders = lane.holders.and_one(mode);
        self.limits.note(slot, mode);
    }

    /// A holder that limits its lane leaves it, and those in front of the line get what room there is: more
    /// than one of them, if it was the one that wanted the least.
    pub(super) fn leave_limited(&mut self, slot: usize, most: u16) -> Option<K> {
        if !self.drop_limited(slot, most) {
            return self.leave(slot);
        }
        self.admit_sharers(slot);
        None
    }

    /// The same without giving the room to anybody. Whether a holder is left; if not, the lane looks as if
    /// the last were still there.
    pub(super) fn drop_limited(&mut self, slot: usize, most: u16) -> bool {
        let left = self.limits.forget(slot, most);
        if let Holders::Limited { count, least } = &mut self.lanes[slot].holders
            && let Some(rest) = left
        {
            (*count, *least) = (*count - 1, rest);
        }
        left.is_some()
    }
}
