//! Which worker is at home in which shard, where keys are to return to their worker.
//!
//! A shard has a *seat*, and so has a worker; who has the shard's seat is at home there. A worker serves the
//! shards of its own seat first, so a key, which stays in its shard, meets the same worker again. Any other
//! worker serves a shard as well, if nobody is lost by that:
//!
//! - it has nothing to do at home, and whoever is at home there is busy, or does not come although it could;
//! - or whoever is at home there has not chosen a shard for long, for it is with a task that takes long. Else
//!   workers with enough to do at home would leave what is offered there for ever.
//!
//! Nothing but the choice depends on it: what is offered is offered to all, and a worker falls asleep only when
//! nothing is. So the proof in `idle.rs` is not concerned.

use crossbeam_utils::CachePadded;

use crate::observe::Clock;
use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Which worker runs the tasks of a key: see [`Builder::placement`](crate::Builder::placement).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Placement {
    /// Whoever is free first.
    #[default]
    Any,
    /// The same one again, unless another would be idle.
    Sticky,
}

/// The most seats: one for each shard that there can be.
const MAX_SEATS: usize = u64::BITS as usize;

/// A worker that has not chosen for so many milliseconds is not waited for: the clock's tick is as long.
const LONG_AGO: u32 = 10;

#[derive(Debug)]
pub(crate) struct Affinity {
    /// How many seats there are: as many as workers. Written when that changes, read by workers when they choose.
    seats: AtomicUsize,
    /// The seats of workers that look for something or sleep, a bit each. Written by these, when they begin and
    /// when they have found something; read by the others.
    idle: CachePadded<AtomicU64>,
    /// When somebody at each seat has last chosen a shard, by the pool's clock. Written by these, read by the others.
    chosen: Box<[CachePadded<AtomicUsize>]>,
}

/// What a worker sees when it chooses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardChoice {
    /// The shards with something to offer, a bit each.
    pub(crate) offers: u64,
    /// It would fall asleep otherwise: it takes what there is.
    pub(crate) eager: bool,
    /// When it is, by the pool's clock.
    pub(crate) now: u32,
}

impl Affinity {
    pub(crate) fn new(workers: usize) -> Self {
        Affinity {
            seats: AtomicUsize::new(seats_for(workers)),
            idle: CachePadded::new(AtomicU64::new(0)),
            chosen: (0..MAX_SEATS).map(|_| CachePadded::new(AtomicUsize::new(0))).collect(),
        }
    }

    /// There are so many workers from now on.
    pub(crate) fn resize(&self, workers: usize) {
        self.seats.store(seats_for(workers), Ordering::Relaxed);
    }

    /// Whether a worker with this number is at home in a shard.
    pub(crate) fn is_home(&self, worker: usize, shard: usize) -> bool {
        let seats = self.seats.load(Ordering::Relaxed);
        worker % seats == shard % seats
    }

    /// A worker looks for something, or has found it.
    pub(crate) fn set_idle(&self, worker: usize, idle: bool) {
        let bit = 1 << (worker % self.seats.load(Ordering::Relaxed));
        match idle {
            true => self.idle.fetch_or(bit, Ordering::Relaxed),
            false => self.idle.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    /// The shards from which this worker is to choose now. None of them if it had better wait for a moment.
    pub(crate) fn choices(&self, worker: usize, choice: ShardChoice) -> u64 {
        let ShardChoice { offers, eager, now } = choice;
        let seats = self.seats.load(Ordering::Relaxed);
        let own = worker % seats;
        self.chosen[own].store(now as usize, Ordering::Relaxed);
        let of = |seats_of: &dyn Fn(usize) -> bool| {
            let shards = (0..MAX_SEATS).filter(|shard| offers & 1 << shard != 0);
            shards.filter(|shard| seats_of(shard % seats)).fold(0, |all, shard| all | 1 << shard)
        };
        let home = of(&|seat| seat == own);
        let idle = self.idle.load(Ordering::Relaxed);
        let is_away = |seat: usize| {
            let since = self.chosen[seat].load(Ordering::Relaxed) as u32;
            idle & 1 << seat == 0 && (LONG_AGO..Clock::MAX / 2).contains(&Clock::passed(since, now))
        };
        let left = of(&|seat| seat != own && is_away(seat));
        match home {
            _ if left != 0 => home | left,
            0 if eager => offers,
            0 => of(&|seat| idle & 1 << seat == 0),
            _ => home,
        }
    }
}

fn seats_for(workers: usize) -> usize {
    workers.clamp(1, MAX_SEATS)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn choice(offers: u64) -> ShardChoice {
        ShardChoice { offers, eager: false, now: 5 }
    }

    #[test]
    fn a_worker_is_at_home_first() {
        let affinity = Affinity::new(2);
        assert_eq!(affinity.choices(0, choice(0b1111)), 0b0101);
        assert_eq!(affinity.choices(1, choice(0b1111)), 0b1010);
        assert_eq!(affinity.choices(3, choice(0b1111)), 0b1010, "after a change of workers");
    }

    #[test]
    fn it_serves_those_who_are_busy_and_leaves_those_alone_who_are_about_to_come() {
        let affinity = Affinity::new(2);
        assert_eq!(affinity.choices(0, choice(0b1010)), 0b1010);
        affinity.set_idle(1, true);
        assert_eq!(affinity.choices(0, choice(0b1010)), 0);
        assert_eq!(affinity.choices(0, ShardChoice { eager: true, ..choice(0b1010) }), 0b1010);
        affinity.set_idle(1, false);
        assert_eq!(affinity.choices(0, choice(0b1010)), 0b1010);
    }

    #[test]
    fn it_takes_turns_with_what_somebody_has_left_for_long() {
        let affinity = Affinity::new(2);
        let at = |now| ShardChoice { now, ..choice(0b1111) };
        affinity.choices(1, at(100));
        assert_eq!(affinity.choices(0, at(109)), 0b0101);
        assert_eq!(affinity.choices(0, at(110)), 0b1111);
        affinity.choices(1, at(110));
        assert_eq!(affinity.choices(0, at(111)), 0b0101);
    }

    #[test]
    fn there_are_no_more_seats_than_shards() {
        let affinity = Affinity::new(1000);
        assert!(affinity.is_home(64, 0) && affinity.is_home(0, 0) && !affinity.is_home(1, 0));
        affinity.resize(1);
        assert!(affinity.is_home(7, 63));
    }
}
