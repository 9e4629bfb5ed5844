//! Tasks that fail before they begin, because a key panics when they are entered.
//!
//! A task is looked up in the lanes before anything is changed. If the key's `Eq` or `Clone` panics,
//! the order of the task is unknown, so it must not run: it fails.
//!
//! # Protocol
//! 1. Under the lock of the lanes: the task enters no lane, and moves to `failed`. The fence is
//!    raised, so no entry behind the task is entered.
//! 2. Without the lock, the thread that holds the lanes drops the captures, and reports the payload.
//! 3. A rollup is marked as failed, and then releases its parts, one shard after the other.
//! 4. The fence is lowered.
//!
//! # Why this keeps the order
//! - No later task of the same key overtakes the drop of the captures: in the shard of the panic it
//!   waits behind the fence. In the shards of the other keys the rollup holds its lanes, or waits in
//!   them, until step 3.
//! - A part of the rollup that is granted during step 2 holds its lane. Step 3 locks the lanes of
//!   each part after the mark is set: a part is granted before, and is released there, or finds the
//!   mark afterwards, and is a tombstone.
//! - The fence of a barrier and this one exclude each other: nothing is entered while one is up.

use super::*;

/// Task that has failed because a key panicked when it was entered.
#[derive(Debug)]
pub(crate) struct FailedTask<K, W> {
    pub(crate) payload: KeyPanic,
    pub(crate) work: W,
    pub(crate) owner: FailedOwner<K, W>,
}

/// Rest of a failed task.
#[derive(Debug)]
pub(crate) enum FailedOwner<K, W> {
    /// Half of the hash, and the key, of a task with one key, which holds no lane.
    Single(u32, K),
    Rollup(Arc<Rollup<K, W>>),
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Fails the task with one key whose work is in `task_slot`.
    #[cold]
    pub(super) fn fail_single(
        &mut self,
        meta: TaskMeta,
        key: K,
        task_slot: &mut TaskSlot<K, W>,
        payload: KeyPanic,
    ) -> Option<HeldLanes<K, W>> {
        let owner = FailedOwner::Single(meta.hash, key);
        self.fail(FailedTask { payload, work: task_slot.take(), owner });
        None
    }

    /// Fails a rollup, unless it has failed for another of its keys, or was taken.
    #[cold]
    pub(super) fn fail_rollup(&mut self, rollup: &Arc<Rollup<K, W>>, payload: KeyPanic) {
        match rollup.take_work() {
            Some(work) => {
                let owner = FailedOwner::Rollup(rollup.clone());
                self.fail(FailedTask { payload, work, owner });
            }
            None => self.note_key_panic(payload),
        }
    }

    fn fail(&mut self, task: FailedTask<K, W>) {
        self.failed = Some(task);
        self.fence = Some(EntryFence::FailedTask);
    }

    /// Notes a panic of a key that costs no task.
    #[cold]
    pub(super) fn note_key_panic(&self, payload: KeyPanic) {
        note(&self.key_panics, payload);
    }

    /// Returns whether a task has failed that the caller must end.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.is_some()
    }

    /// Returns whether a thread ends a failed task: nothing is entered meanwhile.
    pub(crate) fn is_failing(&self) -> bool {
        matches!(self.fence, Some(EntryFence::FailedTask))
    }

    /// Takes the failed task. The caller ends it, and then calls
    /// [`end_failing`](Self::end_failing).
    pub(crate) fn take_failed(&mut self) -> Option<FailedTask<K, W>> {
        self.failed.take()
    }

    /// Lowers the fence that a failed task has raised.
    pub(crate) fn end_failing(&mut self) {
        if self.is_failing() {
            self.fence = None;
        }
    }

    /// Takes the payloads of panics that have cost no task.
    #[inline]
    pub(crate) fn take_key_panics(&mut self) -> Vec<KeyPanic> {
        std::mem::take(self.key_panics.get_mut())
    }

    /// Returns whether an entry is a task that uses the key of this lane exclusively. A panic counts
    /// as no: the entry is then looked up again when it is entered.
    #[inline]
    pub(super) fn is_of(&self, slot: usize, entry: &InboxEntry<K, W>) -> bool {
        let lane = &self.lanes[slot];
        catch_key_panic(|| lane.is_of(entry)).unwrap_or_else(|payload| {
            self.note_key_panic(payload);
            false
        })
    }
}
