//! Removes the tasks of a shard that will not run: all of them when the pool is stopped or
//! poisoned.

use super::*;
use crate::unwind::drop_catch_unwind;

/// Remains of a cleared shard, to be discarded while nothing is locked.
#[derive(Debug)]
pub(crate) struct ClearedShard<K, W> {
    ready: VecDeque<ReadyTask<K, W>>,
    waiting: Vec<VecDeque<LaneEntry<K, W>>>,
    rollups: Vec<Arc<Rollup<K, W>>>,
    entries: Vec<InboxEntry<K, W>>,
    keys: Vec<K>,
}

impl<K, W> Default for ClearedShard<K, W> {
    fn default() -> Self {
        ClearedShard {
            ready: VecDeque::new(),
            waiting: Vec::new(),
            rollups: Vec::new(),
            entries: Vec::new(),
            keys: Vec::new(),
        }
    }
}

impl<K: Eq, W> ClearedShard<K, W> {
    /// Drops the remains piece by piece, since any drop may panic.
    pub(crate) fn discard(self) {
        for ReadyTask { work, key, held, .. } in self.ready {
            drop_catch_unwind(work);
            drop_catch_unwind(key);
            drop_catch_unwind(held);
        }
        for waiting in self.waiting.into_iter().flatten() {
            match waiting {
                LaneEntry::Task { key, work, .. } => {
                    drop_catch_unwind(work);
                    drop_catch_unwind(key);
                }
                LaneEntry::Part { rollup, .. } => discard_rollup(rollup),
                LaneEntry::PauseMarker => {}
            }
        }
        self.rollups.into_iter().for_each(discard_rollup);
        self.keys.into_iter().for_each(drop_catch_unwind);
        for entry in self.entries {
            match entry {
                InboxEntry::Single { key, work, .. } => {
                    drop_catch_unwind(work);
                    drop_catch_unwind(key);
                }
                InboxEntry::Free { work, .. } => drop_catch_unwind(work),
                InboxEntry::Part { rollup, .. }
                | InboxEntry::Unkeyed { rollup }
                | InboxEntry::Fence { rollup } => discard_rollup(rollup),
            }
        }
    }
}

fn discard_rollup<K: Eq, W>(rollup: Arc<Rollup<K, W>>) {
    drop_catch_unwind(rollup.take_work());
    drop_catch_unwind(rollup);
}

impl<K, W> Lanes<K, W> {
    /// Removes everything that no worker has taken, here and in the inbox, without looking at any
    /// key, since the state may be half changed. Lanes that tasks hold stay as they are.
    pub(crate) fn clear(&mut self, inbox: &mut Inbox<K, W>, debris: &mut ClearedShard<K, W>) {
        debris.ready = self.ready.take_all();
        debris.rollups = std::mem::take(&mut self.replacing);
        if let Some(EntryFence::Barrier { rollup, .. }) = self.fence.take() {
            debris.rollups.push(rollup);
        }
        // A task that a worker was just moving into its lane is referenced by its marker alone.
        inbox.take_watched(&mut debris.keys, &mut debris.rollups);
        let queues = self.lanes.iter_mut().map(|lane| std::mem::take(&mut lane.waiting));
        debris.waiting = queues.collect();
        for waiting in debris.waiting.iter().flatten() {
            if let LaneEntry::Part { rollup, claim } = waiting {
                rollup.part(*claim).set_place(PartPlace::Outside);
            }
        }
        self.paused.clear();
        #[cfg(debug_assertions)]
        {
            self.is_emptied = true;
        }
        while let Some(entry) = self.backlog.pop() {
            debris.entries.push(entry);
        }
        self.backlog.take_from(&mut inbox.queue);
        while let Some(entry) = self.backlog.pop() {
            debris.entries.push(entry);
        }
    }
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Removes every task that no worker has taken, here and in the inbox.
    ///
    /// Lanes that tasks hold stay as they are, since those tasks still release them. So do the
    /// lanes of a rollup that never ran: the pool is stopped, and nothing will use them again.
    pub(crate) fn take_unrun(&mut self, inbox: &mut Inbox<K, W>, unrun: &mut UnrunTasks<K, W>) {
        let entered = self.take_backlog(inbox, unrun);
        // For each lane, the number of its oldest task so far.
        let mut oldest = vec![entered; self.lanes.len()];
        for (lane, before) in self.lanes.iter_mut().zip(&mut oldest) {
            for waiting in lane.waiting.drain(..).rev() {
                match waiting {
                    LaneEntry::Task { meta, mode, key, work } => {
                        *before = number_before(*before, meta.seq);
                        let claim = KeyClaim { key, mode };
                        unrun.tasks.push(UnrunTask::single(*before, claim, work));
                    }
                    LaneEntry::Part { rollup, claim } => {
                        *before = rollup.number;
                        rollup.part(claim).set_place(PartPlace::Outside);
                        take_rollup(&rollup, unrun);
                    }
                    LaneEntry::PauseMarker => {}
                }
            }
        }
        // No wait queue has a pause marker any more.
        self.paused.clear();
        #[cfg(debug_assertions)]
        {
            self.is_emptied = true;
        }
        for ReadyTask { work, key, meta, held } in self.ready.take_all().into_iter().rev() {
            let (number, claims) = match held {
                HeldLanes::Free => (number_before(entered, meta.seq), Claims::none()),
                HeldLanes::Rollup(rollup) => {
                    unrun.push_rollup(&rollup, work);
                    continue;
                }
                HeldLanes::Lane(slot) => {
                    oldest[slot] = number_before(oldest[slot], meta.seq);
                    let key = key.expect("a task that holds a lane has a key");
                    let mode = self.lanes[slot].holders.mode();
                    (oldest[slot], Claims(ClaimsRepr::One(KeyClaim { key, mode })))
                }
            };
            unrun.tasks.push(UnrunTask { claims, work, number });
        }
        for rollup in self.replacing.drain(..) {
            take_rollup(&rollup, unrun);
        }
    }

    /// Removes the tasks that are in no lane yet. Returns a number above those of all that are.
    fn take_backlog(&mut self, inbox: &mut Inbox<K, W>, unrun: &mut UnrunTasks<K, W>) -> u64 {
        inbox.forget_watched();
        self.backlog.take_from(&mut inbox.queue);
        let mut entries: Vec<_> = std::iter::from_fn(|| self.backlog.pop()).collect();
        let mut before = inbox.clock + 1;
        while let Some(entry) = entries.pop() {
            match entry {
                InboxEntry::Single { meta, mode, key, work } => {
                    before = number_before(before, meta.seq);
                    unrun.tasks.push(UnrunTask::single(before, KeyClaim { key, mode }, work));
                }
                InboxEntry::Free { meta, work } => {
                    before = number_before(before, meta.seq);
                    unrun.tasks.push(UnrunTask { claims: Claims::none(), work, number: before });
                }
                InboxEntry::Part { rollup, .. }
                | InboxEntry::Unkeyed { rollup }
                | InboxEntry::Fence { rollup } => {
                    before = rollup.number;
                    take_rollup(&rollup, unrun);
                }
            }
        }
        if let Some(EntryFence::Barrier { rollup, .. }) = self.fence.take() {
            before = before.min(rollup.number);
            take_rollup(&rollup, unrun);
        }
        before
    }
}

/// Returns the largest number below `before` that has this lower half.
///
/// A task with one key keeps only the lower half of its sequence number. From the newest task of an
/// inbox or a lane to the oldest, this returns the number itself, or a larger one that is still below
/// the number of the next newer task. Rollups, which alone are in several lanes, have their whole
/// number. So the numbers have the order of each inbox and each lane, however many submissions lie
/// between two tasks.
fn number_before(before: u64, seq: u32) -> u64 {
    let distance = (before as u32).wrapping_sub(seq);
    let distance = if distance == 0 { 1 << 32 } else { u64::from(distance) };
    before.saturating_sub(distance)
}

/// Takes the work of a rollup, unless another of its parts was found first.
pub(crate) fn take_rollup<K: Eq + Clone, W>(rollup: &Rollup<K, W>, unrun: &mut UnrunTasks<K, W>) {
    if let Some(work) = rollup.take_work() {
        unrun.push_rollup(rollup, work);
    }
}

/// Tasks that no worker has taken, of a pool that is stopped.
#[derive(Debug)]
pub(crate) struct UnrunTasks<K, W> {
    pub(crate) tasks: Vec<UnrunTask<K, W>>,
    /// Tasks that cannot be returned, because the `Clone` of a key has panicked.
    pub(crate) failed: Vec<(W, KeyPanic)>,
}

impl<K, W> Default for UnrunTasks<K, W> {
    fn default() -> Self {
        UnrunTasks { tasks: Vec::new(), failed: Vec::new() }
    }
}

impl<K: Eq + Clone, W> UnrunTasks<K, W> {
    fn push_rollup(&mut self, rollup: &Rollup<K, W>, work: W) {
        match catch_key_panic(|| rollup.claims()) {
            Ok(claims) => self.tasks.push(UnrunTask { claims, work, number: rollup.number }),
            Err(payload) => self.failed.push((work, payload)),
        }
    }
}
