//! The end of an engine in which a panic has left something half done: it is *poisoned*.
//!
//! A key's `Eq`, `Clone` and drop run while a part of the engine is locked. One that panics there may
//! leave that part half changed, and a worker that unwinds outside of a body has a task's lanes that are
//! never given back. Neither can be repaired, so the engine ends, and every caller learns it.
//!
//! # Protocol
//! 1. Notice. A call from outside runs its sections within [`intact`](Engine::intact), a worker its loop,
//!    and the timer its alarms, within `catch_unwind`. The locks are released by then: their guards are
//!    inside.
//! 2. Poison, once: raise `poisoned`; then close the gate, which wakes submitters that wait for room
//!    and threads that drain; then stop as `Engine::stop` does.
//! 3. Discard: take everything that has not begun out of the shards, without a look at any key, and drop
//!    it when nothing is locked. Handles then learn `Cancelled`.
//! 4. Bodies that run go on to their end, and their handles learn their outcome. A job is cancelled; it
//!    is over when its running subtasks are. A worker that dies in a sitting says that it has failed.
//!
//! # Why no caller hangs
//! Submitters and drainers wait at the gate, which step 2 closes for good; `poisoned` is raised before
//! that, so a drainer that is woken sees it, and one that comes later looks first. A thread that waits for a
//! handle waits for a body that runs, or one that step 3 drops: an inbox is closed and emptied in one
//! section, so nothing comes in afterwards.

use super::*;
use crate::order::Debris;
use crate::unwind::{call_catch_unwind, drop_catch_unwind};

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Whether the engine was poisoned: it takes nothing any more.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Runs a part of a call that comes from outside, in which keys are compared and cloned under
    /// locks. If it unwinds the engine is poisoned. All locks must be taken inside.
    #[inline(always)]
    pub(crate) fn intact<R>(&self, part: impl FnOnce() -> R) -> R {
        let unwinds = PoisonOnDrop(self);
        let result = part();
        // Costs nothing where nothing unwinds.
        std::mem::forget(unwinds);
        result
    }

    /// The same where no caller is to learn of the panic: in the drop of a turn, and in the timer.
    pub(crate) fn intact_quietly(&self, part: impl FnOnce()) {
        call_catch_unwind(|| self.intact(part));
    }

    /// The hash of the key of a task that has been admitted. If it panics the task does not enter, and
    /// gives its slot back.
    #[inline(always)]
    pub(super) fn hash_admitted<R>(&self, hash: impl FnOnce(&S) -> R) -> R {
        let leaves = ReleaseOnDrop(&self.admission);
        let result = hash(&self.hasher);
        std::mem::forget(leaves);
        result
    }

    /// What a refusal is called.
    #[cold]
    pub(crate) fn refusal(&self, kind: SubmitErrorKind) -> SubmitErrorKind {
        match kind {
            SubmitErrorKind::Closed if self.is_poisoned() => SubmitErrorKind::Poisoned,
            other => other,
        }
    }

    /// Steps 2 and 3. Nothing may be locked.
    #[cold]
    pub(crate) fn poison(&self) {
        if self.poisoned.swap(true, Ordering::AcqRel) {
            return;
        }
        TraceEvents::poisoned(&self.settings.thread_name);
        self.admission.abandon();
        call_catch_unwind(|| self.begin_stop());
        for shard in &self.shards {
            let mut debris = Debris::default();
            let mut lanes = shard.lanes.lock();
            let mut inbox = shard.inbox.lock();
            inbox.close();
            lanes.clear(&mut inbox, &mut debris);
            drop((lanes, inbox));
            debris.discard();
        }
        let described = self.registry.lock().clear();
        described.iter().for_each(|rollup| drop_catch_unwind(rollup.take_work()));
        described.into_iter().for_each(drop_catch_unwind);
    }
}

/// Poisons the engine when it is dropped: a part of a call unwinds.
struct PoisonOnDrop<'a, K: Key, X: Execute<K>, S: BuildHasher>(&'a Engine<K, X, S>);

impl<K: Key, X: Execute<K>, S: BuildHasher> Drop for PoisonOnDrop<'_, K, X, S> {
    fn drop(&mut self) {
        self.0.poison();
    }
}

/// Gives a slot back when it is dropped.
struct ReleaseOnDrop<'a>(&'a Admission);

impl Drop for ReleaseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.release(1);
    }
}
