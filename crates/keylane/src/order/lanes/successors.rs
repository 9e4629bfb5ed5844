//! Lists the tasks that wait behind another one, for the detection of waits that can never end.

use super::*;

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Returns the barrier that has been reached, waiting or running.
    pub(crate) fn fence(&self) -> Option<&Rollup<K, W>> {
        match &self.fence {
            Some(EntryFence::Barrier { rollup, .. }) => Some(rollup),
            Some(EntryFence::FailedTask) | None => None,
        }
    }

    pub(crate) fn any_in_backlog(&self, is_target: impl Fn(&W) -> bool) -> bool {
        self.backlog.iter().any(|entry| entry.is_for(&is_target))
    }

    /// Returns half of the hash and the key of a held lane.
    pub(crate) fn key_in(&self, slot: usize) -> (u32, &K) {
        let lane = &self.lanes[slot];
        (lane.hash, lane.key.as_ref().expect("a held lane has a key"))
    }

    /// Returns the rollups that wait behind the holders of a lane, or `None` if a target does. The
    /// slot may be free by now.
    pub(crate) fn behind_slot(
        &self,
        slot: usize,
        is_target: impl Fn(&W) -> bool,
    ) -> Option<Vec<Arc<Rollup<K, W>>>> {
        self.behind(self.lanes.get(slot).into_iter().flat_map(|lane| &lane.waiting), is_target)
    }

    /// Returns the rollups that wait behind a rollup in the lane of one of its claims, or `None` if
    /// a target does.
    pub(crate) fn behind_rollup(
        &self,
        rollup: &Arc<Rollup<K, W>>,
        claim: usize,
        is_target: impl Fn(&W) -> bool,
    ) -> Option<Vec<Arc<Rollup<K, W>>>> {
        let (_, _, mode) = rollup.claim(claim);
        // The lane is gone if the rollup has ended meanwhile.
        let (PartPlace::Waits(slot) | PartPlace::Holds(slot)) = rollup.part(claim).place() else {
            return Some(Vec::new());
        };
        let queue = &self.lanes[slot].waiting;
        let place = queue.iter().position(|waiting| waiting.is_part_of(rollup));
        let behind = queue.iter().skip(place.map_or(0, |place| place + 1));
        let beside = |waiting: &&LaneEntry<K, W>| match (mode, waiting.mode()) {
            // Sharing tasks run beside a waiting rollup that shares the lane.
            (ClaimMode::Shared, ClaimMode::Shared) => place.is_some(),
            // With capacity for two they need not wait for this one.
            (ClaimMode::Limited(one), ClaimMode::Limited(two)) => one.min(two) > 1,
            _ => false,
        };
        let behind = behind.skip_while(beside);
        self.behind(behind, is_target)
    }

    pub(super) fn behind<'a>(
        &self,
        mut waiting: impl Iterator<Item = &'a LaneEntry<K, W>>,
        is_target: impl Fn(&W) -> bool,
    ) -> Option<Vec<Arc<Rollup<K, W>>>>
    where
        K: 'a,
        W: 'a,
    {
        waiting.try_fold(Vec::new(), |mut rollups, waiting| match waiting {
            LaneEntry::PauseMarker => Some(rollups),
            LaneEntry::Task { work, .. } => (!is_target(work)).then_some(rollups),
            LaneEntry::Part { rollup, .. } => {
                rollups.push(rollup.clone());
                let found = rollup.with_work(|work| work.is_some_and(&is_target));
                (!found).then_some(rollups)
            }
        })
    }
}
