//! Takes tasks: enters them into their lanes, and moves one that may run into a worker's slot.
//!
//! Each function either fills `task_slot` and returns the lanes that the task holds, or does
//! neither.

use super::*;
use crate::unwind::drop_catch_unwind;

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Takes a ready task, unless the backlog is next: the two take turns, so that neither starves.
    #[inline(always)]
    pub(crate) fn next_in_turn(
        &mut self,
        task_slot: &mut TaskSlot<K, W>,
    ) -> Option<HeldLanes<K, W>> {
        // In the order of submission, the ready tasks come before the backlog.
        if self.ready.is_empty() || self.backlog_turns != 0 && !self.is_in_order() {
            return None;
        }
        self.backlog_turns = 1;
        self.next_ready(task_slot)
    }

    /// Takes the next task of the backlog that may run. With `keep_key` the slot also gets a copy
    /// of the key.
    #[inline(always)]
    pub(crate) fn next_fresh(
        &mut self,
        keep_key: bool,
        task_slot: &mut TaskSlot<K, W>,
    ) -> Option<HeldLanes<K, W>> {
        self.backlog_is_pinned = false;
        while self.fence.is_none()
            && let Some(entry) = self.backlog.pop()
        {
            if let Some(held) = self.try_start(entry, keep_key, task_slot) {
                self.backlog_turns = self.backlog_turns.saturating_sub(1);
                return Some(held);
            }
            self.entered_blocked |= self.parts != 0;
            // A rollup that has just become ready is before the rest of the backlog.
            if self.is_in_order() && !self.ready.is_empty() {
                return self.next_ready(task_slot);
            }
        }
        None
    }

    /// Takes the next ready task.
    #[inline]
    pub(crate) fn next_ready(&mut self, task_slot: &mut TaskSlot<K, W>) -> Option<HeldLanes<K, W>> {
        let ReadyTask { work, key, meta, held } = self.ready.pop()?;
        task_slot.put(work);
        task_slot.key = key;
        task_slot.meta = meta;
        Some(held)
    }

    /// Enters every task of the backlog, up to a barrier, into a wait queue or the ready queue.
    pub(crate) fn enter_all(&mut self) {
        self.backlog_is_pinned = false;
        let mut task_slot = TaskSlot::default();
        while self.fence.is_none()
            && let Some(entry) = self.backlog.pop()
        {
            // A task in the ready queue has its key.
            if let Some(held) = self.try_start(entry, true, &mut task_slot) {
                let (work, key, meta) = (task_slot.take(), task_slot.key.take(), task_slot.meta);
                self.push_ready(ReadyTask { work, key, meta, held });
            }
        }
    }

    /// Counts a running task without keys that is in no inbox. Released like any other.
    pub(crate) fn start_unkeyed(&mut self) {
        self.free_running += 1;
    }

    /// Enters a task into its lanes, and moves it into `task_slot` if it may run at once.
    #[inline(always)]
    pub(super) fn try_start(
        &mut self,
        entry: InboxEntry<K, W>,
        keep_key: bool,
        task_slot: &mut TaskSlot<K, W>,
    ) -> Option<HeldLanes<K, W>> {
        match entry {
            InboxEntry::Single { meta, mode, key, work } => {
                // The work moves to its slot first, so that it is stored nowhere in between.
                task_slot.put(work);
                task_slot.meta = meta;
                match catch_key_panic(|| self.find(meta.hash, &key)) {
                    Ok(None) => {}
                    Ok(Some(slot)) => return self.enter_busy(slot, meta, mode, key, task_slot),
                    Err(payload) => return self.fail_single(meta, key, task_slot, payload),
                }
                let requeues = self.hot_keys.exceeds(meta.hash) && self.has_fresh();
                if keep_key || requeues {
                    match catch_key_panic(|| key.clone()) {
                        Ok(own) => task_slot.key = Some(own),
                        Err(payload) => return self.fail_single(meta, key, task_slot, payload),
                    }
                } else {
                    task_slot.key = None;
                }
                let slot = self.open_lane(meta.hash, key, mode, meta.time);
                if requeues {
                    self.requeue(slot, task_slot);
                    return None;
                }
                Some(HeldLanes::Lane(slot))
            }
            InboxEntry::Free { meta, work } => {
                self.free_running += 1;
                task_slot.put(work);
                task_slot.meta = meta;
                Some(HeldLanes::Free)
            }
            InboxEntry::Part { rollup, claim } => {
                self.enter_part(rollup, claim);
                None
            }
            InboxEntry::Unkeyed { rollup } => {
                self.free_running += 1;
                if let Some(ready) = GrantResult::part_of(&rollup).ready() {
                    self.push_ready(ready);
                }
                None
            }
            InboxEntry::Fence { rollup } => {
                self.fence = Some(EntryFence::Barrier { rollup, granted: false });
                self.grant_fence();
                None
            }
        }
        // A rollup that has just become ready is taken from `ready` next.
    }

    /// Moves the task in `task_slot` to the end of the ready queue: it may run, but its key has run
    /// more than its quantum while others wait. It holds its lane, and the key's next tasks wait
    /// behind it.
    #[cold]
    pub(super) fn requeue(&mut self, slot: usize, task_slot: &mut TaskSlot<K, W>) {
        let (work, key, meta) = (task_slot.take(), task_slot.key.take(), task_slot.meta);
        self.push_ready(ReadyTask { work, key, meta, held: HeldLanes::Lane(slot) });
    }

    /// Adds a task to the ready queue.
    #[inline]
    pub(super) fn push_ready(&mut self, task: ReadyTask<K, W>) {
        self.ready.push(task.meta.seq, task);
    }

    /// Enters a task whose key has an open lane: it joins the holders, or waits.
    pub(super) fn enter_busy(
        &mut self,
        slot: usize,
        meta: TaskMeta,
        mode: ClaimMode,
        key: K,
        task_slot: &mut TaskSlot<K, W>,
    ) -> Option<HeldLanes<K, W>> {
        let joins = self.join(slot, mode);
        let lane = &mut self.lanes[slot];
        if joins {
            lane.since = meta.time;
            task_slot.key = Some(key);
            return Some(HeldLanes::Lane(slot));
        }
        lane.waiting.push_back(LaneEntry::Task { meta, mode, key, work: task_slot.take() });
        None
    }

    /// Makes a rollup ready whose last grant came from outside of this shard.
    pub(crate) fn make_ready(&mut self, rollup: &Arc<Rollup<K, W>>) {
        if let Some(ready) = GrantResult::all_of(rollup) {
            self.push_ready(ready);
        }
    }

    #[cold]
    pub(super) fn enter_part(&mut self, rollup: Arc<Rollup<K, W>>, claim: usize) {
        if rollup.is_tombstone() {
            return drop_catch_unwind(rollup);
        }
        let (hash, key, mode) = rollup.claim(claim);
        let looked_up = catch_key_panic(|| match self.find(hash, key) {
            Some(slot) => (Some(slot), None),
            None => (None, Some(key.clone())),
        });
        let (slot, own_key) = match looked_up {
            Ok(found) => found,
            Err(payload) => return self.fail_rollup(&rollup, payload),
        };
        if let Some(slot) = slot
            && !self.join(slot, mode)
        {
            self.parts += 1;
            rollup.part(claim).set_place(PartPlace::Waits(slot));
            self.lanes[slot].waiting.push_back(LaneEntry::Part { rollup, claim });
            return;
        }
        // A rollup that fails from here on is granted its part: its end releases it.
        let granted = GrantResult::part_of(&rollup);
        if granted.is_tombstone() {
            // The copy of the key is dropped under the lock, and its drop may panic.
            drop_catch_unwind(own_key);
            return;
        }
        self.parts += 1;
        let slot = match (slot, own_key) {
            (Some(slot), _) => slot,
            (None, own_key) => {
                let own_key = own_key.expect("it was cloned where there is no lane");
                let slot = self.open_lane(hash, own_key, mode, rollup.meta.time);
                self.limits.note(slot, mode);
                slot
            }
        };
        rollup.part(claim).set_place(PartPlace::Holds(slot));
        self.put_granted(&rollup, granted);
    }

    /// Moves a task whose part was granted to the queue where it waits next.
    pub(super) fn put_granted(&mut self, rollup: &Arc<Rollup<K, W>>, granted: GrantResult<K, W>) {
        if let GrantResult::Replacing = granted {
            self.replacing.push(rollup.clone());
        }
        if let Some(ready) = granted.ready() {
            self.push_ready(ready);
        }
    }

    /// Ends the replacement of a latest task: the captures of the replaced work are dropped. If the
    /// task already holds its key it becomes ready now; or, if the key was paused meanwhile, it
    /// returns to the front of its wait queue. What remains of a replaced task lets the tasks behind
    /// it pass. Returns the changed deadline of the key, if any, and the key of a lane that ended.
    pub(crate) fn end_replacing(
        &mut self,
        rollup: &Arc<Rollup<K, W>>,
    ) -> (Option<RateDeadline>, Option<K>) {
        let work = match rollup.end_replacing() {
            ReplacingEnd::Waits => return (None, None),
            ReplacingEnd::Ready(work) => Some(work),
            ReplacingEnd::Tombstone { granted: true } => None,
            ReplacingEnd::Tombstone { granted: false } => {
                self.pass_tombstone(rollup.part(0));
                return (None, None);
            }
        };
        self.replacing.retain(|it| !Arc::ptr_eq(it, rollup));
        let Some(work) = work else { return (None, self.release_part(rollup.part(0))) };
        let slot = rollup.held_slot();
        self.push_ready(ReadyTask::all_of(rollup, work));
        (self.recall_if_paused(slot), None)
    }

    #[inline]
    pub(super) fn open_lane(&mut self, hash: u32, key: K, mode: ClaimMode, since: u32) -> usize {
        let holders = LaneHolders::one(mode);
        let slot = match self.free.pop() {
            Some(slot) => {
                let lane = &mut self.lanes[slot];
                lane.hash = hash;
                lane.key = Some(key);
                lane.holders = holders;
                lane.since = since;
                slot
            }
            None => {
                let waiting = VecDeque::new();
                self.lanes.push(Lane { hash, key: Some(key), holders, waiting, since });
                self.lanes.len() - 1
            }
        };
        self.index.insert(hash, slot);
        slot
    }

    #[inline]
    pub(super) fn find(&self, hash: u32, key: &K) -> Option<usize> {
        self.index.find(hash, |slot| self.lanes[slot].key.as_ref() == Some(key))
    }
}
