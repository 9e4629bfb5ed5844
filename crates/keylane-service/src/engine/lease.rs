//! Workers elsewhere: who waits for work, and who has a lease.
//!
//! A kind for them runs as many subtasks at a time as there are leases and open asks, so that the scheduler
//! names one exactly when an ask is there to take it.
//!
//! # A lease is granted in two steps
//!
//! 1. In the critical section in which the scheduler starts the subtask it is *promised* to the first ask, which has room
//!    for one less from then on. The mark of the attempt, which names the lease, goes to the disk behind the end of
//!    whatever stood before the subtask, for that was put into the batch before.
//! 2. When the mark is on the disk the lease is *handed* to the ask, and its time begins. So a crash never takes back the
//!    end of a predecessor of what a worker has, and a restart knows of every lease that a worker can have.
//!
//! An ask that is over in between, or before its client has the answer, leaves its leases: they are withdrawn, and their
//! attempts do not count, because no worker has seen them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::dispatch::millis;
use crate::wire::Timestamp;

/// A lease that somebody has.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Who, if they have said.
    pub(super) worker: Option<String>,
    /// How long it lasts from a heartbeat on.
    pub(super) lasts: Duration,
    /// When it ends, unless there is one. Never, as long as it is promised.
    pub(super) expires: Timestamp,
    /// When it ends whatever its worker says.
    pub(super) deadline: Timestamp,
    /// Number of the ask that it is promised to, until it is handed over.
    pub(super) promised_to: Option<u64>,
}

impl Held {
    /// When it ends if nothing is said.
    pub(super) fn ends(&self) -> Timestamp {
        self.expires.min(self.deadline)
    }

    /// It lasts as long as from a heartbeat now.
    pub(super) fn renew(&mut self, now: Timestamp) {
        self.expires = Timestamp(now.0.saturating_add(millis(self.lasts)));
    }
}

/// Open asks for work. An operation costs O(log n) of the asks for each kind that the ask names.
#[derive(Debug, Default)]
pub(super) struct Claimers {
    /// By number, the oldest first.
    waiting: BTreeMap<u64, Claimer>,
    /// Asks with room, of each kind that an ask with room names.
    open: HashMap<u32, Open>,
    next: u64,
    /// How many leases there are of each kind.
    held: HashMap<u32, u32>,
}

/// Asks with room for subtasks of one kind.
#[derive(Debug, Default)]
struct Open {
    asks: BTreeSet<u64>,
    /// Their room together.
    room: u64,
}

#[derive(Debug)]
struct Claimer {
    /// Without duplicates.
    kinds: Vec<u32>,
    /// How many it still takes.
    room: u32,
    /// How many were promised to it and not handed over.
    promised: u32,
    worker: Option<String>,
    given: Arc<Given>,
}

/// To which ask a run was promised, what its worker is called, and for which kinds it has less room now.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Promise {
    pub(super) to: u64,
    pub(super) worker: Option<String>,
    pub(super) kinds: Vec<u32>,
}

/// What a claimer was given, until it looks.
#[derive(Debug, Default)]
pub(super) struct Given {
    fences: Mutex<Vec<u64>>,
    pub(super) told: Notify,
}

impl Given {
    pub(super) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.fences.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Claimers {
    /// Somebody asks for up to so many. Returns what names the ask, and where it finds what it gets.
    pub(super) fn ask(
        &mut self,
        kinds: Vec<u32>,
        room: u32,
        worker: Option<String>,
    ) -> (u64, Arc<Given>) {
        self.next += 1;
        let given = Arc::new(Given::default());
        let number = self.next;
        let claimer = Claimer { kinds, room: 0, promised: 0, worker, given: Arc::clone(&given) };
        self.waiting.insert(number, claimer);
        self.set_room(number, room);
        (number, given)
    }

    /// Somebody asks no more.
    pub(super) fn leave(&mut self, number: u64) {
        self.set_room(number, 0);
        self.waiting.remove(&number);
    }

    /// An ask takes this many from now on.
    fn set_room(&mut self, number: u64, room: u32) {
        let Some(claimer) = self.waiting.get_mut(&number) else { return };
        let before = std::mem::replace(&mut claimer.room, room);
        for kind in &claimer.kinds {
            let open = self.open.entry(*kind).or_default();
            open.room = open.room - u64::from(before) + u64::from(room);
            match room {
                0 => open.asks.remove(&number),
                _ => open.asks.insert(number),
            };
            if open.asks.is_empty() {
                self.open.remove(kind);
            }
        }
    }

    /// How many of the kind may run: leases, and asks for it.
    pub(super) fn wanted(&self, kind: u32) -> u32 {
        let asked = self.open.get(&kind).map_or(0, |open| open.room);
        let asked = u32::try_from(asked).unwrap_or(u32::MAX);
        asked.saturating_add(self.held.get(&kind).copied().unwrap_or(0))
    }

    /// Promises a run of the kind to the first ask that has room for one. None if there is none.
    pub(super) fn promise(&mut self, kind: u32) -> Option<Promise> {
        let number = *self.open.get(&kind)?.asks.first()?;
        let claimer = self.waiting.get_mut(&number)?;
        claimer.promised += 1;
        let room = claimer.room - 1;
        *self.held.entry(kind).or_default() += 1;
        let (worker, kinds) = (claimer.worker.clone(), claimer.kinds.clone());
        self.set_room(number, room);
        Some(Promise { to: number, worker, kinds })
    }

    /// Hands over a run that was promised. False if the ask is over.
    pub(super) fn hand(&mut self, to: u64, fence: u64) -> bool {
        let Some(claimer) = self.waiting.get_mut(&to) else { return false };
        claimer.promised -= 1;
        claimer.given.fences.lock().unwrap_or_else(PoisonError::into_inner).push(fence);
        claimer.given.told.notify_one();
        true
    }

    /// A run that was promised has ended before it was handed over.
    pub(super) fn break_promise(&mut self, to: u64) {
        if let Some(claimer) = self.waiting.get_mut(&to) {
            claimer.promised -= 1;
            // It may have been all that it waits for.
            claimer.given.told.notify_one();
        }
    }

    /// Takes no more for this ask. Whether something is promised to it that was not handed over.
    pub(super) fn close(&mut self, number: u64) -> bool {
        self.set_room(number, 0);
        self.waiting.get(&number).is_some_and(|claimer| claimer.promised > 0)
    }

    /// A worker has a lease of the kind since before a restart.
    pub(super) fn restore(&mut self, kind: u32) {
        *self.held.entry(kind).or_default() += 1;
    }

    /// A lease of the kind has ended.
    pub(super) fn ended(&mut self, kind: u32) {
        if let Some(held) = self.held.get_mut(&kind) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&kind);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_may_run_as_much_as_was_asked_for_and_is_leased() {
        let mut claimers = Claimers::default();
        let (first, given) = claimers.ask(vec![1, 2], 2, Some("a".into()));
        claimers.ask(vec![2], 1, None);
        assert_eq!((claimers.wanted(1), claimers.wanted(2), claimers.wanted(3)), (2, 3, 0));
        let promise = Promise { to: first, worker: Some("a".into()), kinds: vec![1, 2] };
        assert_eq!(claimers.promise(2), Some(promise));
        assert_eq!((claimers.wanted(1), claimers.wanted(2)), (1, 3));
        // It is there when it is handed over, and not before.
        assert_eq!(given.take(), [0; 0]);
        assert!(claimers.close(first));
        assert_eq!((claimers.wanted(1), claimers.wanted(2)), (0, 2));
        assert!(claimers.hand(first, 70));
        assert!(!claimers.close(first));
        assert_eq!(given.take(), [70]);
        claimers.leave(first);
        assert!(!claimers.hand(first, 71));
        assert_eq!((claimers.wanted(1), claimers.wanted(2)), (0, 2));
        assert_eq!(claimers.promise(1), None);
        assert!(claimers.promise(2).is_some());
        claimers.ended(2);
        claimers.ended(2);
        assert_eq!(claimers.wanted(2), 0);
        assert!(claimers.open.is_empty());
    }

    #[test]
    fn the_oldest_ask_with_room_for_the_kind_is_first() {
        let mut claimers = Claimers::default();
        let kinds = [vec![1], vec![1, 2], vec![2], vec![1, 2]];
        let asks: Vec<u64> = kinds.map(|kinds| claimers.ask(kinds, 2, None).0).into();
        let mut promise = |kind| claimers.promise(kind).map(|promise| promise.to);
        let of_two = [2, 2, 2].map(&mut promise);
        assert_eq!(of_two, [Some(asks[1]), Some(asks[1]), Some(asks[2])]);
        // The second one has no room left for either kind.
        let of_one = [1, 1, 1, 1, 1].map(&mut promise);
        assert_eq!(of_one, [Some(asks[0]), Some(asks[0]), Some(asks[3]), Some(asks[3]), None]);
        assert_eq!((claimers.wanted(1), claimers.wanted(2)), (4, 4));
    }
}
