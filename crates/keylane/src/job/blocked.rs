//! Subtasks of a job that wait in the lanes, by index.
//!
//! The splitter adds each one, and the worker that reaches its entry takes it. One lock for all would be contended at each
//! subtask, so they lie in stripes with a lock each, and a run of consecutive subtasks in the same stripe.
//!
//! A job that is cancelled sets its flag before it calls [`drop_all`](BlockedSubtasks::drop_all), and
//! [`add`](BlockedSubtasks::add) reads the flag under the lock: a subtask is refused, or `drop_all` finds it.

use slab::Slab;

use super::source::NumberedSubtask;
use crate::run::Turn;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use crate::unwind::drop_catch_unwind;

/// Number of stripes, each with a lock.
const STRIPES: usize = 8;

/// Number of consecutive subtasks in the same stripe: the largest batch of the splitter. One round of all stripes is twice
/// as long as the default maximum of waiting subtasks, so the splitter and the workers are mostly at different stripes.
const RUN: u64 = 64;

pub(super) struct BlockedSubtasks<F>([Stripe<F>; STRIPES]);

/// Subtasks with the same lock. Aligned to a cache line, so that two locks never share one.
#[repr(align(64))]
struct Stripe<F>(Mutex<Slab<BlockedSubtask<F>>>);

/// Subtask that waits in the lanes.
enum BlockedSubtask<F> {
    /// Waiting. Exits: removed, when its keys are granted; `Dropping`, when the job is cancelled.
    Waiting(NumberedSubtask<F>),
    /// The thread that has cancelled the job drops the captures, then removes this entry and ends
    /// its turns: that of the entry, if a worker has reached it meanwhile; and that of an earlier
    /// entry with the same index, if it was reached late.
    Dropping(Vec<Turn>),
}

/// Subtask of a cancelled job, whose captures its owner drops.
pub(super) struct LateSubtask<F> {
    index: usize,
    subtask: NumberedSubtask<F>,
}

impl<F> BlockedSubtasks<F> {
    pub(super) fn new() -> Self {
        BlockedSubtasks(std::array::from_fn(|_| Stripe(Mutex::new(Slab::new()))))
    }

    fn lock(&self, stripe: usize) -> MutexGuard<'_, Slab<BlockedSubtask<F>>> {
        self.0[stripe].0.lock_politely()
    }

    /// Returns the entries of the stripe of this index, and the entry's place among them.
    fn lock_of(&self, index: usize) -> (MutexGuard<'_, Slab<BlockedSubtask<F>>>, usize) {
        (self.lock(index % STRIPES), index / STRIPES)
    }

    pub(super) fn len(&self) -> usize {
        (0..STRIPES).map(|stripe| self.lock(stripe).len()).sum()
    }

    /// Adds a subtask, and returns its index; or the subtask if the job was cancelled.
    pub(super) fn add(
        &self,
        subtask: NumberedSubtask<F>,
        cancelled: &AtomicBool,
    ) -> Result<usize, NumberedSubtask<F>> {
        let stripe = stripe_of(&subtask);
        let mut blocked = self.lock(stripe);
        if cancelled.load(Ordering::Acquire) {
            return Err(subtask);
        }
        Ok(index_of(stripe, blocked.insert(BlockedSubtask::Waiting(subtask))))
    }

    /// Adds a subtask, and returns its index. If the job was cancelled, it is returned too, for
    /// [`drop_late`](Self::drop_late).
    pub(super) fn add_again(
        &self,
        subtask: NumberedSubtask<F>,
        cancelled: &AtomicBool,
    ) -> (usize, Option<LateSubtask<F>>) {
        let stripe = stripe_of(&subtask);
        let mut blocked = self.lock(stripe);
        if cancelled.load(Ordering::Acquire) {
            let index = index_of(stripe, blocked.insert(BlockedSubtask::Dropping(Vec::new())));
            return (index, Some(LateSubtask { index, subtask }));
        }
        (index_of(stripe, blocked.insert(BlockedSubtask::Waiting(subtask))), None)
    }

    /// Takes the subtask at this index, unless the job was cancelled.
    pub(super) fn take(&self, index: usize) -> Option<NumberedSubtask<F>> {
        let (mut blocked, place) = self.lock_of(index);
        match blocked.get(place)? {
            BlockedSubtask::Dropping(_) => None,
            BlockedSubtask::Waiting(_) => match blocked.remove(place) {
                BlockedSubtask::Waiting(subtask) => Some(subtask),
                BlockedSubtask::Dropping(_) => unreachable!("the entry was checked above"),
            },
        }
    }

    /// Drops the subtasks of a cancelled job. The turn of each ends after its captures are dropped,
    /// whether a worker has reached it by then or not.
    pub(super) fn drop_all(&self) {
        let mut waiting = Vec::new();
        for stripe in 0..STRIPES {
            for (place, entry) in self.lock(stripe).iter_mut() {
                match std::mem::replace(entry, BlockedSubtask::Dropping(Vec::new())) {
                    BlockedSubtask::Waiting(subtask) => {
                        waiting.push(LateSubtask { index: index_of(stripe, place), subtask });
                    }
                    // Another thread drops this one.
                    dropping => *entry = dropping,
                }
            }
        }
        waiting.into_iter().for_each(|late| self.drop_late(late));
        for stripe in 0..STRIPES {
            let mut blocked = self.lock(stripe);
            if blocked.is_empty() {
                // Frees the memory too.
                *blocked = Slab::new();
            }
        }
    }

    /// Drops a subtask of a cancelled job, then ends the turn of its entry.
    pub(super) fn drop_late(&self, LateSubtask { index, subtask }: LateSubtask<F>) {
        drop_catch_unwind(subtask);
        let (mut blocked, place) = self.lock_of(index);
        let dropped = blocked.try_remove(place);
        drop(blocked);
        // Dropped after the lock is released, because the end of a turn takes other locks.
        drop(dropped);
    }

    /// Ends the turn of an entry whose subtask was cancelled, when the captures are dropped.
    pub(super) fn end_when_dropped(&self, index: usize, turn: impl FnOnce() -> Turn) {
        let (blocked, place) = self.lock_of(index);
        let is_there = blocked.contains(place);
        drop(blocked);
        if !is_there {
            return;
        }
        // Created before the lock is taken, because this takes another lock.
        let turn = turn();
        let (mut blocked, place) = self.lock_of(index);
        match blocked.get_mut(place) {
            Some(BlockedSubtask::Dropping(turns)) => turns.push(turn),
            _ => {
                drop(blocked);
                drop(turn);
            }
        }
    }
}

/// Returns the index of an entry, from its stripe and its place there.
fn index_of(stripe: usize, place: usize) -> usize {
    place * STRIPES + stripe
}

/// Returns the stripe of a subtask.
fn stripe_of<F>((number, _): &NumberedSubtask<F>) -> usize {
    (number / RUN) as usize % STRIPES
}
