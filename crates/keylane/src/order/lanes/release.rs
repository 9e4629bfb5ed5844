//! Ends tasks: continues with the next task of the lane, or grants the lane to its wait queue.

use super::*;
use crate::unwind::drop_catch_unwind;

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Takes the next task of a lane whose holder has just ended, without releasing the lane.
    #[inline]
    pub(crate) fn next_in_lane(
        &mut self,
        slot: usize,
        quantum_left: bool,
        task_slot: &mut TaskSlot<K, W>,
    ) -> bool {
        let lane = &mut self.lanes[slot];
        if lane.holders != LaneHolders::Exclusive {
            return false;
        }
        if lane.waiting.is_empty() {
            if quantum_left {
                return self.next_from_backlog(slot, task_slot);
            }
            self.queue_backlog_prefix(slot);
            return false;
        }
        let exclusive =
            matches!(&lane.waiting[0], LaneEntry::Task { mode: ClaimMode::Exclusive, .. });
        if !quantum_left || !exclusive {
            return false;
        }
        if let Some(LaneEntry::Task { meta, key, work, .. }) = lane.waiting.pop_front() {
            task_slot.put(work);
            task_slot.key = Some(key);
            task_slot.meta = meta;
            lane.since = meta.time;
        }
        true
    }

    /// Takes the lane's next task if it is the next backlog entry, so that it overtakes nothing.
    #[inline(always)]
    pub(super) fn next_from_backlog(
        &mut self,
        slot: usize,
        task_slot: &mut TaskSlot<K, W>,
    ) -> bool {
        if self.fence.is_some() || !self.is_next(slot) {
            return false;
        }
        let lane = &mut self.lanes[slot];
        match self.backlog.pop() {
            Some(InboxEntry::Single { meta, key, work, .. }) => {
                task_slot.put(work);
                task_slot.key = Some(key);
                task_slot.meta = meta;
                lane.since = meta.time;
            }
            other => {
                // Forgotten, not dropped: then nothing needs the entry as a whole, and the compiler
                // moves its parts one by one without storing them in between.
                std::mem::forget(other);
                unreachable!("the front was a task with this key")
            }
        }
        true
    }

    /// Moves the lane's tasks that are next in the backlog to its wait queue: its quantum is used
    /// up, and the tasks behind them must become visible.
    #[cold]
    pub(super) fn queue_backlog_prefix(&mut self, slot: usize) {
        while self.fence.is_none()
            && self.is_next(slot)
            && let Some(InboxEntry::Single { meta, mode, key, work }) = self.backlog.pop()
        {
            self.lanes[slot].waiting.push_back(LaneEntry::Task { meta, mode, key, work });
        }
    }

    /// Ends a task whose lane has an empty wait queue, and takes the next backlog task in the same
    /// slot: as the lane's next task, if the lane is pinned, or otherwise for a lane of its own. It
    /// has the effect of [`next_in_lane`](Self::next_in_lane), or of [`release`](Self::release) and
    /// [`next_fresh`](Self::next_fresh), in a fifth of the instructions, and covers nearly all tiny
    /// tasks. Changes nothing and returns `None` where more is to be done.
    #[inline(always)]
    pub(crate) fn replace(
        &mut self,
        slot: usize,
        keep_key: bool,
        task_slot: &mut TaskSlot<K, W>,
    ) -> Option<ReplaceResult<K>> {
        let next = self.backlog.peek()?;
        let InboxEntry::Single {
            meta: TaskMeta { hash, .. }, mode: ClaimMode::Exclusive, key, ..
        } = next.get()
        else {
            return None;
        };
        let (hash, lane) = (*hash, &mut self.lanes[slot]);
        if lane.holders != LaneHolders::Exclusive
            || !lane.waiting.is_empty()
            || !self.ready.is_empty()
            || self.fence.is_some()
        {
            return None;
        }
        if self.pinned == Some(slot) {
            if lane.hash != hash {
                return None;
            }
            match catch_key_panic(|| lane.key.as_ref() == Some(key)) {
                Ok(true) => {}
                Ok(false) => return None,
                Err(payload) => {
                    note(&self.key_panics, payload);
                    return None;
                }
            }
            let (meta, key) = InboxEntry::unpack_single(next.take(), task_slot);
            (task_slot.meta, task_slot.key) = (meta, Some(key));
            lane.since = meta.time;
            return Some(ReplaceResult { goes_on: true, left: None });
        }
        let place = self.index.place_for(slot, hash)?;
        if lane.waiting.capacity() > KEPT_CAPACITY {
            return None;
        }
        let own_key = match catch_key_panic(|| keep_key.then(|| key.clone())) {
            Ok(own_key) => own_key,
            // The slow path tries again, and the task fails if that panics too.
            Err(payload) => {
                note(&self.key_panics, payload);
                return None;
            }
        };
        if !self.hot_keys.counts(hash) {
            drop_catch_unwind(own_key);
            return None;
        }
        let (meta, key) = InboxEntry::unpack_single(next.take(), task_slot);
        (task_slot.meta, task_slot.key) = (meta, own_key);
        self.index.rename(place, hash);
        lane.hash = hash;
        lane.since = meta.time;
        self.backlog_turns = self.backlog_turns.saturating_sub(1);
        Some(ReplaceResult { goes_on: false, left: lane.key.replace(key) })
    }

    /// Releases the lane that a task held in this shard. Returns the key of a lane that ended, for
    /// the caller to drop outside of the lock.
    #[inline]
    pub(crate) fn release(&mut self, held: &HeldLanes<K, W>) -> Option<K> {
        let left = match held {
            HeldLanes::Free => {
                self.free_running -= 1;
                None
            }
            HeldLanes::Lane(slot) => self.leave(*slot),
            HeldLanes::Rollup(_) => unreachable!("a rollup gives back each part by its key"),
        };
        self.grant_fence();
        left
    }

    /// Releases one part of a rollup. A part of a failed one may hold no lane: then the tasks that
    /// wait behind it may pass.
    pub(crate) fn release_part(&mut self, part: &RollupPart<K>) -> Option<K> {
        let slot = match part.place() {
            PartPlace::Holds(slot) => slot,
            PartPlace::Waits(_) | PartPlace::Outside => {
                self.pass_tombstone(part);
                return None;
            }
        };
        part.set_place(PartPlace::Outside);
        self.parts -= 1;
        let left = match part.claim.mode {
            ClaimMode::Limited(max) => self.leave_limited(slot, max),
            ClaimMode::Exclusive | ClaimMode::Shared => self.leave(slot),
        };
        self.grant_fence();
        left
    }

    /// Lowers a barrier's fence in this shard.
    pub(crate) fn lower_fence(&mut self) {
        self.fence = None;
    }

    #[inline]
    pub(super) fn leave(&mut self, slot: usize) -> Option<K> {
        let lane = &mut self.lanes[slot];
        if let LaneHolders::Shared(count) = &mut lane.holders
            && *count > 1
        {
            *count -= 1;
            return None;
        }
        if lane.waiting.is_empty() {
            return self.remove_lane(slot);
        }
        self.grant_next(slot)
    }

    #[inline]
    pub(super) fn remove_lane(&mut self, slot: usize) -> Option<K> {
        let hash = self.lanes[slot].hash;
        self.index.remove(hash, slot);
        let lane = &mut self.lanes[slot];
        if lane.waiting.capacity() > KEPT_CAPACITY {
            lane.waiting = VecDeque::new();
        }
        let key = lane.key.take();
        self.free.push(slot);
        if self.index.is_empty() && self.lanes.len() > KEPT_SLOTS {
            self.free_slots();
        }
        key
    }

    /// Frees the slots. No lane is open.
    #[cold]
    pub(super) fn free_slots(&mut self) {
        self.lanes = Vec::new();
        self.free = Vec::new();
    }

    /// Grants a lane to the first entry of its wait queue, and to all that may hold it beside that
    /// one. If only tombstones wait, the lane ends, and its key is returned.
    pub(super) fn grant_next(&mut self, slot: usize) -> Option<K> {
        self.grant_next_of(slot, usize::MAX)
    }

    /// Grants a lane to at most `max` tasks, and to at least one.
    pub(super) fn grant_next_of(&mut self, slot: usize, max: usize) -> Option<K> {
        let mut holders: Option<LaneHolders> = None;
        while let Some(first) = self.lanes[slot].waiting.front() {
            // Behind a task that has just been granted the key, the marker stays as the first of
            // the queue.
            if holders.is_none()
                && let LaneEntry::PauseMarker = first
            {
                let lane = &mut self.lanes[slot];
                lane.waiting.pop_front();
                lane.holders = LaneHolders::PauseMarker;
                return None;
            }
            let next = first.mode();
            if holders.is_some_and(|holders| !holders.admit(next) || holders.count() >= max) {
                break;
            }
            if self.grant_first(slot) {
                let one = LaneHolders::one(next);
                holders = Some(holders.map_or(one, |holders| holders.and_one(next)));
                self.limits.note(slot, next);
            }
            self.drop_tombstones(slot);
        }
        let Some(holders) = holders else { return self.remove_lane(slot) };
        self.lanes[slot].holders = holders;
        None
    }

    /// Grants the lane to the first entry of its wait queue. A tombstone is dropped instead, and
    /// false returned.
    pub(super) fn grant_first(&mut self, slot: usize) -> bool {
        let lane = &mut self.lanes[slot];
        match lane.waiting.pop_front().expect("the caller has looked") {
            LaneEntry::Task { meta, key, work, .. } => {
                lane.since = meta.time;
                let held = HeldLanes::Lane(slot);
                self.push_ready(ReadyTask { work, key: Some(key), meta, held });
            }
            LaneEntry::Part { rollup, claim } => {
                let granted = match rollup.has_failed() {
                    true => GrantResult::Tombstone,
                    false => GrantResult::part_of(&rollup),
                };
                if granted.is_tombstone() {
                    rollup.part(claim).set_place(PartPlace::Outside);
                    self.parts -= 1;
                    drop_catch_unwind(rollup);
                    return false;
                }
                rollup.part(claim).set_place(PartPlace::Holds(slot));
                lane.since = rollup.meta.time;
                self.put_granted(&rollup, granted);
            }
            LaneEntry::PauseMarker => unreachable!("a pause marker is granted nothing"),
        }
        true
    }

    /// Grants a barrier its part once every earlier task has ended.
    #[inline]
    pub(super) fn grant_fence(&mut self) {
        if let Some(EntryFence::Barrier { granted: false, .. }) = self.fence {
            self.grant_reached_fence();
        }
    }

    #[cold]
    fn grant_reached_fence(&mut self) {
        if self.free_running == 0
            && self.all_idle()
            && let Some(EntryFence::Barrier { rollup, granted }) = &mut self.fence
        {
            *granted = true;
            if let Some(ready) = GrantResult::part_of(rollup).ready() {
                self.push_ready(ready);
            }
        }
    }

    /// Lets backlog tasks go first after a lane has used its quantum of `tasks`: its share among
    /// `workers`.
    pub(crate) fn quantum_expired(&mut self, tasks: usize, workers: usize) {
        self.backlog_turns = self.backlog_turns.max(tasks.div_ceil(workers.max(1)));
    }
}
