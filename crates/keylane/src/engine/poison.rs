//! Ends an engine in which a panic has left an inconsistent state: it is *poisoned*.
//!
//! A key's `Eq` and `Clone` run while a part of the engine is locked. Nearly everywhere that is
//! before a change, so a panic there costs one call or one task. Three parts look keys up again when
//! a task ends or enters, with a change half made: bounds per key, states of keys, and self-checks.
//! They could only do without if each task kept its place in them, which would make every entry of
//! an inbox larger. If a key panics there, or a worker unwinds outside of a body for another cause,
//! lanes are never released. Neither can be repaired, so the engine ends, and every caller gets an
//! error.
//!
//! # Protocol
//! 1. Notice. A call from outside runs the sections of these parts within
//!    [`intact`](Engine::intact), a worker its loop, and the timer its wake-ups, within
//!    `catch_unwind`. The locks are released by then: their guards are inside.
//! 2. Poison, once: set `poisoned`; then close the gate, which wakes submitters that wait for
//!    capacity and threads that drain; then stop as `Engine::stop` does.
//! 3. Discard: take everything that has not begun out of the shards, without a look at any key, and
//!    drop it when nothing is locked. Handles then return `Cancelled`. A task that a worker was
//!    moving when it unwound is dropped with the worker's stack, or, if the inbox watches it, taken
//!    from there.
//! 4. Running bodies continue to their end, and their handles return their outcome. A job is
//!    cancelled; it is over when its running subtasks are. A worker that dies while it serves a job
//!    reports a failure.
//!
//! # Why no caller hangs
//! Submitters and drains wait at the gate, which step 2 closes for good; `poisoned` is set before
//! that, so a drain that is woken sees it, and one that comes later checks first. A thread that
//! waits for a handle waits for a body that runs, or one that step 3 drops: an inbox is closed and
//! emptied in one section, so nothing comes in afterwards.

use super::*;
use crate::order::ClearedShard;
use crate::unwind::{call_catch_unwind, drop_catch_unwind};

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Returns whether the engine was poisoned and accepts nothing any more.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned.load(Ordering::Acquire)
    }

    /// Runs a part of a call from outside, in which keys are compared under locks beside changes. If
    /// it unwinds, the engine is poisoned. All locks must be taken inside.
    #[inline(always)]
    pub(crate) fn intact<R>(&self, part: impl FnOnce() -> R) -> R {
        let unwinds = PoisonOnDrop(self);
        let result = part();
        // The guard costs nothing where nothing unwinds.
        std::mem::forget(unwinds);
        result
    }

    /// Runs a part like [`intact`](Self::intact), but swallows the panic: for the drop of a turn,
    /// and for the timer.
    pub(crate) fn intact_quietly(&self, part: impl FnOnce()) {
        call_catch_unwind(|| self.intact(part));
    }

    /// Runs a part of the submission of an admitted task, in which keys are hashed, compared and
    /// cloned before anything is changed. If it unwinds, the task does not enter, and its permit is
    /// released. Its permits of bounded keys cannot be found without another comparison: then the
    /// engine is poisoned.
    #[inline(always)]
    pub(super) fn admitted<R>(&self, part: impl FnOnce() -> R) -> R {
        let leaves = LeaveOnDrop(self);
        let result = part();
        std::mem::forget(leaves);
        result
    }

    /// Returns the error kind of a refusal: `Poisoned` in place of `Closed` if the engine was
    /// poisoned.
    #[cold]
    pub(crate) fn refusal(&self, kind: SubmitErrorKind) -> SubmitErrorKind {
        match kind {
            SubmitErrorKind::Closed if self.is_poisoned() => SubmitErrorKind::Poisoned,
            other => other,
        }
    }

    /// Poisons the engine: steps 2 and 3. No lock may be held.
    #[cold]
    pub(crate) fn poison(&self) {
        if self.poisoned.swap(true, Ordering::AcqRel) {
            return;
        }
        TraceEvents::poisoned(&self.settings.thread_name);
        self.admission.abandon();
        call_catch_unwind(|| self.begin_stop());
        call_catch_unwind(|| self.end_delays(false).into_iter().for_each(drop_catch_unwind));
        for shard in &self.shards {
            let mut debris = ClearedShard::default();
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

/// Guard that poisons the engine when a part of a call unwinds.
struct PoisonOnDrop<'a, K: Key, X: Execute<K>, S: BuildHasher>(&'a Engine<K, X, S>);

impl<K: Key, X: Execute<K>, S: BuildHasher> Drop for PoisonOnDrop<'_, K, X, S> {
    fn drop(&mut self) {
        self.0.poison();
    }
}

/// Guard that releases the permits of a task that does not enter.
struct LeaveOnDrop<'a, K: Key, X: Execute<K>, S: BuildHasher>(&'a Engine<K, X, S>);

impl<K: Key, X: Execute<K>, S: BuildHasher> Drop for LeaveOnDrop<'_, K, X, S> {
    fn drop(&mut self) {
        match self.0.bounds.as_ref().is_some_and(|bounds| bounds.keys.is_some()) {
            true => self.0.poison(),
            false => self.0.admission.release(1),
        }
    }
}
