//! Taking a task: into the lanes, and into a worker's hand.
//!
//! Each of these puts a task into the hand and returns what it holds, or does neither.

use super::*;

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Takes a task that holds its lanes already, unless it is the turn of one from the backlog:
    /// the two kinds take turns, so that neither waits for ever.
    #[inline(always)]
    pub(crate) fn next_in_turn(&mut self, task_slot: &mut TaskSlot<K, W>) -> Option<Held<K, W>> {
        if self.ready.is_empty() || self.owed_to_fresh != 0 {
            return None;
        }
        self.owed_to_fresh = 1;
        self.next_ready(task_slot)
    }

    /// Takes the next task of the backlog that may run. `keep_key` asks for the key beside the work.
    #[inline(always)]
    pub(crate) fn next_fresh(
        &mut self,
        keep_key: bool,
        task_slot: &mut TaskSlot<K, W>,
    ) -> Option<Held<K, W>> {
        self.backlog_is_pinned = false;
        while self.fence.is_none()
            && let Some(entry) = self.backlog.pop()
        {
            if let Some(held) = self.try_start(entry, keep_key, task_slot) {
                self.owed_to_fresh = self.owed_to_fresh.saturating_sub(1);
                return Some(held);
            }
            self.passed |= self.parts != 0;
        }
        None
    }

    /// Takes a task that holds its lanes already.
    #[inline]
    pub(crate) fn next_ready(&mut self, task_slot: &mut TaskSlot<K, W>) -> Option<Held<K, W>> {
        let ReadyTask { work, key, meta, held } = self.ready.pop_front()?;
        task_slot.put(work);
        task_slot.key = key;
        task_slot.meta = meta;
        Some(held)
    }

    /// Moves every task of the backlog to where it waits or is ready, up to a barrier.
    pub(crate) fn enter_all(&mut self, keep_key: bool) {
        self.backlog_is_pinned = false;
        let mut task_slot = TaskSlot::default();
        while self.fence.is_none()
            && let Some(entry) = self.backlog.pop()
        {
            if let Some(held) = self.try_start(entry, keep_key, &mut task_slot) {
                let (work, key, meta) = (task_slot.take(), task_slot.key.take(), task_slot.meta);
                self.ready.push_back(ReadyTask { work, key, meta, held });
            }
        }
    }

    /// A task without keys runs that is in no inbox. Released as any other.
    pub(crate) fn start_unkeyed(&mut self) {
        self.free_running += 1;
    }

    /// Puts a task into its lanes, and into the hand if it may run at once.
    #[inline(always)]
    pub(super) fn try_start(
        &mut self,
        entry: InboxEntry<K, W>,
        keep_key: bool,
        task_slot: &mut TaskSlot<K, W>,
    ) -> Option<Held<K, W>> {
        match entry {
            InboxEntry::Single { meta, mode, key, work } => {
                // The work goes to the hand before anything else is done, so that it is not kept
                // anywhere in between.
                task_slot.put(work);
                task_slot.meta = meta;
                if let Some(slot) = self.find(meta.hash, &key) {
                    return self.enter_busy(slot, meta, mode, key, task_slot);
                }
                task_slot.key = if keep_key { Some(key.clone()) } else { None };
                let slot = self.open_lane(meta.hash, key, mode, meta.time);
                if self.hot_keys.exceeds(meta.hash) && self.has_fresh() {
                    self.requeue(slot, task_slot);
                    return None;
                }
                Some(Held::Lane(slot))
            }
            InboxEntry::Free { meta, work } => {
                self.free_running += 1;
                task_slot.put(work);
                task_slot.meta = meta;
                Some(Held::Free)
            }
            InboxEntry::Part { rollup, claim } => {
                self.enter_part(rollup, claim);
                None
            }
            InboxEntry::Unkeyed { rollup } => {
                self.free_running += 1;
                self.ready.extend(Granted::part_of(&rollup).ready());
                None
            }
            InboxEntry::Fence { rollup } => {
                self.fence = Some(Fence { rollup, granted: false });
                self.grant_fence();
                None
            }
        }
        // A rollup that has just become ready is next in `ready`.
    }

    /// The task in the hand may run, but its key has run more than its quantum while others wait: it
    /// holds its lane and queues behind them, and what follows it waits in its line.
    #[cold]
    pub(super) fn requeue(&mut self, slot: usize, task_slot: &mut TaskSlot<K, W>) {
        let (work, key, meta) = (task_slot.take(), task_slot.key.take(), task_slot.meta);
        self.ready.push_back(ReadyTask { work, key, meta, held: Held::Lane(slot) });
    }

    /// The task in the hand has a key whose lane is open: it joins the holders, or waits.
    pub(super) fn enter_busy(
        &mut self,
        slot: usize,
        meta: TaskMeta,
        mode: Mode,
        key: K,
        task_slot: &mut TaskSlot<K, W>,
    ) -> Option<Held<K, W>> {
        let joins = self.join(slot, mode);
        let lane = &mut self.lanes[slot];
        if joins {
            lane.since = meta.time;
            task_slot.key = Some(key);
            return Some(Held::Lane(slot));
        }
        lane.waiting.push_back(LaneEntry::Task { meta, mode, key, work: task_slot.take() });
        None
    }

    /// A rollup whose last grant came from elsewhere is to be run.
    pub(crate) fn make_ready(&mut self, rollup: &Arc<Rollup<K, W>>) {
        self.ready.extend(Granted::all_of(rollup));
    }

    #[cold]
    pub(super) fn enter_part(&mut self, rollup: Arc<Rollup<K, W>>, claim: usize) {
        let (hash, key, mode) = rollup.claim(claim);
        let slot = self.find(hash, key);
        if let Some(slot) = slot
            && !self.join(slot, mode)
        {
            if !rollup.is_tombstone() {
                self.parts += 1;
                self.lanes[slot].waiting.push_back(LaneEntry::Part { rollup, claim });
            }
            return;
        }
        let granted = Granted::part_of(&rollup);
        if granted.is_tombstone() {
            return;
        }
        self.parts += 1;
        if slot.is_none() {
            let slot = self.open_lane(hash, key.clone(), mode, rollup.meta.time);
            self.limits.note(slot, mode);
        }
        self.put_granted(&rollup, granted);
    }

    /// Puts a task whose part was granted where it waits next.
    pub(super) fn put_granted(&mut self, rollup: &Arc<Rollup<K, W>>, granted: Granted<K, W>) {
        if let Granted::Replacing = granted {
            self.replacing.push(rollup.clone());
        }
        self.ready.extend(granted.ready());
    }

    /// The captures of what a latest task has replaced are gone. If it had its key before they were it
    /// is ready now; or, if the key was held meanwhile, it goes back to the front of its line. Returns
    /// when the timer has to look at the key, if that has changed.
    pub(crate) fn end_replacing(&mut self, rollup: &Arc<Rollup<K, W>>) -> Option<RateDeadline> {
        let work = rollup.end_replacing()?;
        self.replacing.retain(|it| !Arc::ptr_eq(it, rollup));
        let (hash, key, _) = rollup.claim(0);
        let slot = self.find(hash, key).expect("the task has its lane");
        self.ready.push_back(ReadyTask::all_of(rollup, work));
        self.call_back_if_held(slot)
    }

    #[inline]
    pub(super) fn open_lane(&mut self, hash: u32, key: K, mode: Mode, since: u32) -> usize {
        let holders = Holders::one(mode);
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
