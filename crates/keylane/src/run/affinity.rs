//! Assigns shards to workers for [`Placement::Sticky`], so that the tasks of a key return to the
//! same worker.
//!
//! Shards and workers share a set of *slots*; a worker with the same slot as a shard is its home
//! worker. A worker serves its home shards first, so a key, which stays in its shard, meets the
//! same worker again. Another worker serves a shard too where that delays no task:
//!
//! - it has no task in its home shards, and the home worker of the shard is busy, or does not come
//!   although it is idle;
//! - or the home worker of the shard has not chosen a shard for long, because its current task
//!   takes long. Without this rule, workers with enough tasks at home would leave the tasks of that
//!   shard waiting forever.
//!
//! Only the choice of the shard depends on the affinity: every worker can take every task, and a
//! worker falls asleep only when no shard offers one. The proof in `idle.rs` is therefore
//! unaffected.

use crossbeam_utils::CachePadded;

use crate::observe::Clock;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Assignment of tasks to workers: see [`Builder::placement`](crate::Builder::placement).
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Placement {
    /// Any free worker.
    Any,
    /// The same worker for all tasks of a key, unless another would idle.
    Sticky,
}

/// Maximum number of slots: one for each possible shard.
const MAX_SLOTS: usize = u64::BITS as usize;

/// Time after which a busy home worker is not waited for, in milliseconds: one tick of the pool's
/// clock.
const BUSY_MILLIS: u32 = 10;

#[derive(Debug)]
pub(crate) struct WorkerAffinity {
    /// Number of slots, which is that of the workers. Written when that changes; read by workers
    /// when they choose.
    slots: AtomicUsize,
    /// Slots of workers that search or sleep, one bit each. Written by these workers when they
    /// begin to search and when they have found a task; read by the others.
    idle: CachePadded<AtomicU64>,
    /// Time of the last choice by a worker of each slot, in milliseconds of the pool's clock.
    /// Written by these workers; read by the others.
    chosen: Box<[CachePadded<AtomicUsize>]>,
}

/// Input of a worker's choice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardChoiceInput {
    /// Shards with a ready task, one bit each.
    pub(crate) offers: u64,
    /// Set if the worker would otherwise fall asleep: it takes any task.
    pub(crate) eager: bool,
    /// Current time, in milliseconds of the pool's clock.
    pub(crate) now: u32,
}

impl WorkerAffinity {
    pub(crate) fn new(workers: usize) -> Self {
        WorkerAffinity {
            slots: AtomicUsize::new(slots_for(workers)),
            idle: CachePadded::new(AtomicU64::new(0)),
            chosen: (0..MAX_SLOTS).map(|_| CachePadded::new(AtomicUsize::new(0))).collect(),
        }
    }

    /// Changes the number of workers.
    pub(crate) fn resize(&self, workers: usize) {
        self.slots.store(slots_for(workers), Ordering::Relaxed);
    }

    /// Returns whether the worker with this number is a home worker of a shard.
    pub(crate) fn is_home(&self, worker: usize, shard: usize) -> bool {
        let slots = self.slots.load(Ordering::Relaxed);
        worker % slots == shard % slots
    }

    /// Records that a worker searches, or has found a task.
    pub(crate) fn set_idle(&self, worker: usize, idle: bool) {
        let bit = 1 << (worker % self.slots.load(Ordering::Relaxed));
        match idle {
            true => self.idle.fetch_or(bit, Ordering::Relaxed),
            false => self.idle.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    /// Returns the shards from which a worker chooses now; none if it should wait for a moment.
    pub(crate) fn choices(&self, worker: usize, choice: ShardChoiceInput) -> u64 {
        let ShardChoiceInput { offers, eager, now } = choice;
        let slots = self.slots.load(Ordering::Relaxed);
        let own = worker % slots;
        self.chosen[own].store(now as usize, Ordering::Relaxed);
        let of = |matches: &dyn Fn(usize) -> bool| {
            let shards = (0..MAX_SLOTS).filter(|shard| offers & 1 << shard != 0);
            shards.filter(|shard| matches(shard % slots)).fold(0, |all, shard| all | 1 << shard)
        };
        let home = of(&|slot| slot == own);
        let idle = self.idle.load(Ordering::Relaxed);
        let is_away = |slot: usize| {
            let since = self.chosen[slot].load(Ordering::Relaxed) as u32;
            idle & 1 << slot == 0
                && (BUSY_MILLIS..Clock::MAX / 2).contains(&Clock::passed(since, now))
        };
        let left = of(&|slot| slot != own && is_away(slot));
        match home {
            _ if left != 0 => home | left,
            0 if eager => offers,
            0 => of(&|slot| idle & 1 << slot == 0),
            _ => home,
        }
    }
}

fn slots_for(workers: usize) -> usize {
    workers.clamp(1, MAX_SLOTS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn choice(offers: u64) -> ShardChoiceInput {
        ShardChoiceInput { offers, eager: false, now: 5 }
    }

    #[test]
    fn a_worker_prefers_its_home_shards() {
        let affinity = WorkerAffinity::new(2);
        assert_eq!(affinity.choices(0, choice(0b1111)), 0b0101);
        assert_eq!(affinity.choices(1, choice(0b1111)), 0b1010);
        assert_eq!(affinity.choices(3, choice(0b1111)), 0b1010, "numbers wrap around");
    }

    #[test]
    fn a_worker_helps_busy_home_workers_but_not_idle_ones() {
        let affinity = WorkerAffinity::new(2);
        assert_eq!(affinity.choices(0, choice(0b1010)), 0b1010);
        affinity.set_idle(1, true);
        assert_eq!(affinity.choices(0, choice(0b1010)), 0);
        assert_eq!(affinity.choices(0, ShardChoiceInput { eager: true, ..choice(0b1010) }), 0b1010);
        affinity.set_idle(1, false);
        assert_eq!(affinity.choices(0, choice(0b1010)), 0b1010);
    }

    #[test]
    fn a_worker_helps_shards_whose_home_worker_is_busy_for_long() {
        let affinity = WorkerAffinity::new(2);
        let at = |now| ShardChoiceInput { now, ..choice(0b1111) };
        affinity.choices(1, at(100));
        assert_eq!(affinity.choices(0, at(109)), 0b0101);
        assert_eq!(affinity.choices(0, at(110)), 0b1111);
        affinity.choices(1, at(110));
        assert_eq!(affinity.choices(0, at(111)), 0b0101);
    }

    #[test]
    fn there_are_at_most_as_many_slots_as_shards() {
        let affinity = WorkerAffinity::new(1000);
        assert!(affinity.is_home(64, 0) && affinity.is_home(0, 0) && !affinity.is_home(1, 0));
        affinity.resize(1);
        assert!(affinity.is_home(7, 63));
    }
}
