//! Subtasks of a job that wait in the lanes, by index.
//!
//! The splitter adds each one, and the worker that reaches its entry takes it. Under one lock the two would meet at each
//! subtask, so there are several, and a run of consecutive subtasks has the same one.
//!
//! A job that is cancelled sets its flag before it calls [`drop_all`](BlockedSubtasks::drop_all), and
//! [`add`](BlockedSubtasks::add) reads the flag under the lock: a subtask is refused, or `drop_all` finds it.

use slab::Slab;

use super::source::NumberedSubtask;
use crate::run::Turn;
use crate::sync::{AtomicBool, Mutex, MutexGuard, Ordering};
use crate::unwind::drop_catch_unwind;

/// Number of locks.
const STRIPES: usize = 8;

/// Number of consecutive subtasks with the same lock: as many as a batch of the splitter has at most. All locks together
/// have twice as many as wait at most by default, so that the splitter and the workers are mostly at different ones.
const RUN: u64 = 64;

pub(super) struct BlockedSubtasks<F>([Stripe<F>; STRIPES]);

/// Subtasks with the same lock, on cache lines of their own.
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

    /// Returns the entries with the same lock, and the index among them.
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
        Ok(blocked.insert(BlockedSubtask::Waiting(subtask)) * STRIPES + stripe)
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
            let index = blocked.insert(BlockedSubtask::Dropping(Vec::new())) * STRIPES + stripe;
            return (index, Some(LateSubtask { index, subtask }));
        }
        (blocked.insert(BlockedSubtask::Waiting(subtask)) * STRIPES + stripe, None)
    }

    /// Takes the subtask at this index, unless the job was cancelled.
    pub(super) fn take(&self, index: usize) -> Option<NumberedSubtask<F>> {
        let (mut blocked, index) = self.lock_of(index);
        match blocked.get(index)? {
            BlockedSubtask::Dropping(_) => None,
            BlockedSubtask::Waiting(_) => match blocked.remove(index) {
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
            for (index, entry) in self.lock(stripe).iter_mut() {
                match std::mem::replace(entry, BlockedSubtask::Dropping(Vec::new())) {
                    BlockedSubtask::Waiting(subtask) => {
                        waiting.push(LateSubtask { index: index * STRIPES + stripe, subtask });
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
        let (mut blocked, index) = self.lock_of(index);
        let dropped = blocked.try_remove(index);
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

/// Returns the stripe of a subtask.
fn stripe_of<F>((number, _): &NumberedSubtask<F>) -> usize {
    (number / RUN) as usize % STRIPES
}
