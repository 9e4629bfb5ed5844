//! Checks the invariants of the lanes between two sections of their lock, in builds with debug
//! assertions.
//!
//! Every rule here is one that another file relies on without a test.

use super::*;
#[cfg(debug_assertions)]
use crate::unwind::drop_catch_unwind;

/// Largest number of lanes and ready tasks for which a shard is checked, and of entries checked in
/// each wait queue: the check takes time in proportion.
#[cfg(debug_assertions)]
const MAX_CHECKED: usize = 128;

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Does nothing in a release build.
    #[cfg(not(debug_assertions))]
    #[inline(always)]
    pub(crate) fn check(&self) {}

    /// Panics if an invariant of the lanes does not hold.
    #[cfg(debug_assertions)]
    pub(crate) fn check(&self) {
        if self.lanes.len() + self.ready.len() > MAX_CHECKED {
            return;
        }
        let open = || self.lanes.iter().enumerate().filter(|(_, lane)| lane.key.is_some());
        assert_eq!(open().count(), self.index.len(), "lanes with a key, and lanes in the index");
        assert_eq!(open().count() + self.free.len(), self.lanes.len(), "open and free slots");
        open().for_each(|(slot, lane)| self.check_lane(slot, lane));
        for (slot, reasons) in &self.paused {
            let is_open = self.lanes.get(*slot).is_some_and(|lane| lane.key.is_some());
            assert!(is_open, "slot {slot} is held and has no lane");
            assert!(!reasons.is_empty(), "slot {slot} is held for no reason");
        }
        // A stopped pool does not count what it gives up.
        let may_have_parts = open().count() > 0 || self.is_emptied;
        assert!(may_have_parts || self.parts == 0, "{} parts are in no lane", self.parts);
        let parts = open().flat_map(|(_, lane)| lane.waiting.iter().take(MAX_CHECKED));
        let parts = parts.filter(|waiting| matches!(waiting, LaneEntry::Part { .. })).count();
        assert!(parts <= self.parts, "{parts} parts wait, and {} are counted", self.parts);
        let held: usize = open().map(|(_, lane)| lane.holders.count()).sum();
        let is_whole = open().all(|(_, lane)| lane.waiting.len() <= MAX_CHECKED);
        assert!(
            self.is_emptied || !is_whole || self.parts <= parts + held,
            "{parts} parts wait, {held} tasks hold lanes, and {} parts are counted",
            self.parts
        );
    }

    #[cfg(debug_assertions)]
    fn check_lane(&self, slot: usize, lane: &Lane<K, W>) {
        let key = lane.key.as_ref().expect("the lane is open");
        match catch_key_panic(|| self.find(lane.hash, key)) {
            Ok(found) => assert_eq!(found, Some(slot), "the index has another lane for its key"),
            // No panic of the pool's own work.
            Err(payload) => drop_catch_unwind(payload),
        }
        let is_marker = |waiting: &LaneEntry<K, W>| matches!(waiting, LaneEntry::PauseMarker);
        let behind = lane.waiting.iter().take(MAX_CHECKED).skip(1).any(is_marker);
        assert!(!behind, "slot {slot}: a pause marker is behind a task");
        let holds = lane.holders == LaneHolders::PauseMarker;
        assert!(
            !(holds && lane.waiting.front().is_some_and(is_marker)),
            "slot {slot}: two pause markers"
        );
        assert!(
            self.is_emptied || lane.is_paused() == self.paused.contains_key(&slot),
            "slot {slot}: it has a pause marker if and only if it is held"
        );
        let granted = self.ready.iter().filter(|ready| self.is_in(slot, ready)).count();
        assert!(
            granted <= lane.holders.count(),
            "slot {slot}: {granted} wait for a worker, and {:?} hold the lane",
            lane.holders
        );
        assert!(lane.holders.count() != 0 || holds, "slot {slot}: a lane without holders");
        if let Some(first) = lane.waiting.front()
            && !matches!(first, LaneEntry::Part { rollup, .. } if rollup.is_tombstone())
        {
            assert!(!lane.holders.admit(first.mode()), "slot {slot}: the first could begin");
        }
        if let LaneHolders::Limited { count, least } = lane.holders {
            let counted = self.limits.counted(slot);
            assert_eq!(counted, (count, least), "slot {slot}: how its holders limit it");
        }
    }

    /// Returns whether a ready task with one key holds this lane.
    #[cfg(debug_assertions)]
    fn is_in(&self, slot: usize, ready: &ReadyTask<K, W>) -> bool {
        match &ready.held {
            HeldLanes::Free => false,
            HeldLanes::Lane(at) => *at == slot,
            HeldLanes::Rollup(rollup) => self.is_alone_in(slot, rollup),
        }
    }
}
