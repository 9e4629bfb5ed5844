//! Ending a task: on with its lane, or the lane to whoever waits for it.

use super::*;

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Takes the next task of a lane whose holder has just ended, without giving the lane back.
    #[inline]
    pub(crate) fn next_in_lane(
        &mut self,
        slot: usize,
        quantum_left: bool,
        task_slot: &mut TaskSlot<K, W>,
    ) -> bool {
        let lane = &mut self.lanes[slot];
        if lane.holders != Holders::Exclusive {
            return false;
        }
        if lane.waiting.is_empty() {
            if quantum_left {
                return self.next_from_backlog(slot, task_slot);
            }
            self.line_up(slot);
            return false;
        }
        let exclusive = matches!(&lane.waiting[0], LaneEntry::Task { mode: Mode::Exclusive, .. });
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

    /// The same, where the lane's next task is the next of the backlog: nothing is overtaken.
    #[inline(always)]
    pub(super) fn next_from_backlog(
        &mut self,
        slot: usize,
        task_slot: &mut TaskSlot<K, W>,
    ) -> bool {
        let lane = &mut self.lanes[slot];
        if self.fence.is_some() || !self.backlog.front().is_some_and(|next| lane.is_of(next)) {
            return false;
        }
        match self.backlog.pop() {
            Some(InboxEntry::Single { meta, key, work, .. }) => {
                task_slot.put(work);
                task_slot.key = Some(key);
                task_slot.meta = meta;
                lane.since = meta.time;
            }
            other => {
                // Forgotten, not dropped: nothing then needs the entry as a whole, and its parts
                // are moved one by one without being stored in between.
                std::mem::forget(other);
                unreachable!("the front was a task with this key")
            }
        }
        true
    }

    /// Moves the lane's tasks that are next in the backlog to its line, for those behind them to be
    /// seen: its quantum is used up.
    #[cold]
    pub(super) fn line_up(&mut self, slot: usize) {
        let lane = &mut self.lanes[slot];
        while self.fence.is_none()
            && self.backlog.front().is_some_and(|next| lane.is_of(next))
            && let Some(InboxEntry::Single { meta, mode, key, work }) = self.backlog.pop()
        {
            lane.waiting.push_back(LaneEntry::Task { meta, mode, key, work });
        }
    }

    /// Ends a task whose lane nobody waits for, and takes the next of the backlog in the same slot: as
    /// the lane's next, if it is that and the worker is bound to go on with it, or for a lane of its
    /// own. It is what [`next_in_lane`](Self::next_in_lane), or [`release`](Self::release) and
    /// [`next_fresh`](Self::next_fresh), would do, in a fifth of the instructions, and nearly all that
    /// is ever done with tiny tasks. Nothing is done if there is more to it.
    #[inline(always)]
    pub(crate) fn replace(
        &mut self,
        slot: usize,
        keep_key: bool,
        task_slot: &mut TaskSlot<K, W>,
    ) -> Option<Replaced<K>> {
        let next = self.backlog.peek()?;
        let InboxEntry::Single { meta: TaskMeta { hash, .. }, mode: Mode::Exclusive, key, .. } =
            next.get()
        else {
            return None;
        };
        let (hash, lane) = (*hash, &mut self.lanes[slot]);
        if lane.holders != Holders::Exclusive
            || !lane.waiting.is_empty()
            || !self.ready.is_empty()
            || self.fence.is_some()
        {
            return None;
        }
        if self.pinned == Some(slot) {
            if lane.hash != hash || lane.key.as_ref() != Some(key) {
                return None;
            }
            let (meta, key) = InboxEntry::unpack_single(next.take(), task_slot);
            (task_slot.meta, task_slot.key) = (meta, Some(key));
            lane.since = meta.time;
            return Some(Replaced { goes_on: true, left: None });
        }
        let place = self.index.place_for(slot, hash)?;
        if lane.waiting.capacity() > KEPT_CAPACITY || !self.hot_keys.counts(hash) {
            return None;
        }
        let (meta, key) = InboxEntry::unpack_single(next.take(), task_slot);
        (task_slot.meta, task_slot.key) = (meta, if keep_key { Some(key.clone()) } else { None });
        self.index.rename(place, hash);
        lane.hash = hash;
        lane.since = meta.time;
        self.owed_to_fresh = self.owed_to_fresh.saturating_sub(1);
        Some(Replaced { goes_on: false, left: lane.key.replace(key) })
    }

    /// Gives back what a task held in this shard. Returns what is left of a lane that ended, for
    /// the caller to drop outside the lock.
    #[inline]
    pub(crate) fn release(&mut self, held: &Held<K, W>) -> Option<K> {
        let left = match held {
            Held::Free => {
                self.free_running -= 1;
                None
            }
            Held::Lane(slot) => self.leave(*slot),
            Held::Rollup(_) => unreachable!("a rollup gives back each part by its key"),
        };
        self.grant_fence();
        left
    }

    /// Gives back one part of a rollup.
    pub(crate) fn release_part(&mut self, hash: u32, key: &K, mode: Mode) -> Option<K> {
        let slot = self.find(hash, key).expect("a granted part's lane lives until it is released");
        self.parts -= 1;
        let left = match mode {
            Mode::Limited(most) => self.leave_limited(slot, most),
            Mode::Exclusive | Mode::Shared => self.leave(slot),
        };
        self.grant_fence();
        left
    }

    /// Ends a barrier's hold on this shard.
    pub(crate) fn lower_fence(&mut self) {
        self.fence = None;
    }

    #[inline]
    pub(super) fn leave(&mut self, slot: usize) -> Option<K> {
        let lane = &mut self.lanes[slot];
        if let Holders::Shared(count) = &mut lane.holders
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
            self.forget_slots();
        }
        key
    }

    /// Gives the memory of many free slots back. No lane is open.
    #[cold]
    pub(super) fn forget_slots(&mut self) {
        self.lanes = Vec::new();
        self.free = Vec::new();
    }

    /// Gives a lane to who waits first, and to all who can have it beside them. Only tombstones may wait; then
    /// it returns what is left of the lane.
    pub(super) fn grant_next(&mut self, slot: usize) -> Option<K> {
        self.grant_next_of(slot, usize::MAX)
    }

    /// The same, but to no more than so many, at least one.
    pub(super) fn grant_next_of(&mut self, slot: usize, most: usize) -> Option<K> {
        let mut holders: Option<Holders> = None;
        while let Some(first) = self.lanes[slot].waiting.front() {
            // Behind a task that has just been granted the key it stays, as the first of the line.
            if holders.is_none()
                && let LaneEntry::PauseMarker = first
            {
                let lane = &mut self.lanes[slot];
                lane.waiting.pop_front();
                lane.holders = Holders::PauseMarker;
                return None;
            }
            let next = first.mode();
            if holders.is_some_and(|holders| !holders.admit(next) || holders.count() >= most) {
                break;
            }
            if self.grant_first(slot) {
                let one = Holders::one(next);
                holders = Some(holders.map_or(one, |holders| holders.and_one(next)));
                self.limits.note(slot, next);
            }
            self.drop_tombstones(slot);
        }
        let Some(holders) = holders else { return self.remove_lane(slot) };
        self.lanes[slot].holders = holders;
        None
    }

    /// Takes the first of a line as one who has the key from now on; or drops it, if it is a tombstone, and
    /// returns false.
    pub(super) fn grant_first(&mut self, slot: usize) -> bool {
        let lane = &mut self.lanes[slot];
        match lane.waiting.pop_front().expect("the caller has looked") {
            LaneEntry::Task { meta, key, work, .. } => {
                lane.since = meta.time;
                let held = Held::Lane(slot);
                self.ready.push_back(ReadyTask { work, key: Some(key), meta, held });
            }
            LaneEntry::Part { rollup, .. } => {
                let granted = Granted::part_of(&rollup);
                if granted.is_tombstone() {
                    self.parts -= 1;
                    return false;
                }
                lane.since = rollup.meta.time;
                self.put_granted(&rollup, granted);
            }
            LaneEntry::PauseMarker => unreachable!("a pause marker is granted nothing"),
        }
        true
    }

    /// Grants a barrier its part once all before it has ended.
    #[inline]
    pub(super) fn grant_fence(&mut self) {
        if self.fence.as_ref().is_some_and(|fence| !fence.granted) {
            self.grant_reached_fence();
        }
    }

    #[cold]
    fn grant_reached_fence(&mut self) {
        if self.free_running == 0
            && self.all_at_rest()
            && let Some(fence) = &mut self.fence
        {
            fence.granted = true;
            self.ready.extend(Granted::part_of(&fence.rollup).ready());
        }
    }

    /// A lane has used its quantum of `tasks`: so many fresh tasks go first, of `workers` that
    /// share the work.
    pub(crate) fn quantum_expired(&mut self, tasks: usize, workers: usize) {
        self.owed_to_fresh = self.owed_to_fresh.max(tasks.div_ceil(workers.max(1)));
    }
}
