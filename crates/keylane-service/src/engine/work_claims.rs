//! Remote workers: open claims for work, and granted leases.
//!
//! A kind for remote workers may run as many subtasks as there are leases and open claims, so the
//! scheduler starts a subtask exactly when a claim can take it.
//!
//! # A lease is granted in two steps
//!
//! 1. In the critical section in which the scheduler starts the subtask, the lease is *promised* to
//!    the first matching claim, whose remaining capacity decreases by one. The start mark of the
//!    attempt, which names the lease, is written after the end of the subtask's predecessor,
//!    because that end entered an earlier place in the batches.
//! 2. When the mark is on the disk, the lease is *handed* to the claim, and its time begins. So a
//!    crash never undoes the end of a predecessor of a leased subtask, and a restart knows every
//!    lease that a worker can have.
//!
//! A claim that ends in between, or before its client has the answer, gives up its leases: they are
//! withdrawn, and their attempts do not count, because no worker has seen them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use super::clock::millis;
use crate::wire::Timestamp;

/// Lease of a running attempt.
#[derive(Clone, Debug)]
pub(super) struct LeaseState {
    /// Number of the worker.
    pub(super) worker: u64,
    /// Duration of the lease after a heartbeat.
    pub(super) lasts: Duration,
    /// Time of expiry without a further heartbeat. Never, while the lease is only promised.
    pub(super) expires: Timestamp,
    /// Time at which the lease ends regardless of heartbeats.
    pub(super) deadline: Timestamp,
    /// Number of the claim that the lease is promised to, until it is handed over.
    pub(super) promised_to: Option<u64>,
}

impl LeaseState {
    /// Returns the time at which the lease ends without a further heartbeat.
    pub(super) fn ends(&self) -> Timestamp {
        self.expires.min(self.deadline)
    }

    /// Renews the lease as a heartbeat at `now` does.
    pub(super) fn renew(&mut self, now: Timestamp) {
        self.expires = Timestamp(now.0.saturating_add(millis(self.lasts)));
    }
}

/// Open claims for work. An operation costs O(log n) in the number of claims, for each kind that
/// the claim names.
#[derive(Debug, Default)]
pub(super) struct WorkClaims {
    /// Claims by number, the oldest first.
    waiting: BTreeMap<u64, ClaimState>,
    /// Claims with remaining capacity, by kind.
    open: HashMap<u32, KindClaims>,
    next: u64,
    /// Number of leases by kind.
    held: HashMap<u32, u32>,
}

/// Claims with remaining capacity for one kind.
#[derive(Debug, Default)]
struct KindClaims {
    asks: BTreeSet<u64>,
    /// Sum of their remaining capacity.
    room: u64,
}

#[derive(Debug)]
struct ClaimState {
    /// Accepted kinds, without duplicates.
    kinds: Vec<u32>,
    /// Number of leases that the claim still accepts.
    room: u32,
    /// Number of leases promised and not handed over.
    promised: u32,
    /// Number of the worker.
    worker: u64,
    given: Arc<GrantQueue>,
}

/// Promise of a lease: the claim, the number of its worker, and the kinds whose remaining capacity
/// decreased.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LeasePromise {
    pub(super) to: u64,
    pub(super) worker: u64,
    pub(super) kinds: Vec<u32>,
}

/// Leases handed to a claim and not fetched yet.
#[derive(Debug, Default)]
pub(super) struct GrantQueue {
    fences: Mutex<Vec<u64>>,
    pub(super) arrived: Notify,
}

impl GrantQueue {
    pub(super) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.fences.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl WorkClaims {
    /// Opens a claim for at most `room` leases. Returns its number and the place where its leases
    /// arrive.
    pub(super) fn ask(
        &mut self,
        kinds: Vec<u32>,
        room: u32,
        worker: u64,
    ) -> (u64, Arc<GrantQueue>) {
        self.next += 1;
        let given = Arc::new(GrantQueue::default());
        let number = self.next;
        let claimer = ClaimState { kinds, room: 0, promised: 0, worker, given: Arc::clone(&given) };
        self.waiting.insert(number, claimer);
        self.set_room(number, room);
        (number, given)
    }

    /// Removes a claim.
    pub(super) fn leave(&mut self, number: u64) {
        self.set_room(number, 0);
        self.waiting.remove(&number);
    }

    /// Sets the remaining capacity of a claim.
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

    /// Returns the number of subtasks of the kind that may run: leases and claimed capacity.
    pub(super) fn wanted(&self, kind: u32) -> u32 {
        let asked = self.open.get(&kind).map_or(0, |open| open.room);
        let asked = u32::try_from(asked).unwrap_or(u32::MAX);
        asked.saturating_add(self.held.get(&kind).copied().unwrap_or(0))
    }

    /// Promises a subtask of the kind to the first claim with capacity. `None` if there is none.
    pub(super) fn promise(&mut self, kind: u32) -> Option<LeasePromise> {
        let number = *self.open.get(&kind)?.asks.first()?;
        let claimer = self.waiting.get_mut(&number)?;
        claimer.promised += 1;
        let room = claimer.room - 1;
        *self.held.entry(kind).or_default() += 1;
        let (worker, kinds) = (claimer.worker, claimer.kinds.clone());
        self.set_room(number, room);
        Some(LeasePromise { to: number, worker, kinds })
    }

    /// Hands over a promised lease. Returns false if the claim has ended.
    pub(super) fn hand(&mut self, to: u64, fence: u64) -> bool {
        let Some(claimer) = self.waiting.get_mut(&to) else { return false };
        claimer.promised -= 1;
        claimer.given.fences.lock().unwrap_or_else(PoisonError::into_inner).push(fence);
        claimer.given.arrived.notify_one();
        true
    }

    /// Withdraws a promise whose attempt ended before it was handed over.
    pub(super) fn break_promise(&mut self, to: u64) {
        if let Some(claimer) = self.waiting.get_mut(&to) {
            claimer.promised -= 1;
            // This may have been the last promise that the claim waits for.
            claimer.given.arrived.notify_one();
        }
    }

    /// Stops promising leases to this claim. Returns true if a promise is not handed over yet.
    pub(super) fn close(&mut self, number: u64) -> bool {
        self.set_room(number, 0);
        self.waiting.get(&number).is_some_and(|claimer| claimer.promised > 0)
    }

    /// Counts a lease of the kind that was kept over a restart.
    pub(super) fn restore(&mut self, kind: u32) {
        *self.held.entry(kind).or_default() += 1;
    }

    /// Removes an ended lease of the kind from the count.
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
        let mut claimers = WorkClaims::default();
        let (first, given) = claimers.ask(vec![1, 2], 2, 7);
        claimers.ask(vec![2], 1, 8);
        assert_eq!((claimers.wanted(1), claimers.wanted(2), claimers.wanted(3)), (2, 3, 0));
        let promise = LeasePromise { to: first, worker: 7, kinds: vec![1, 2] };
        assert_eq!(claimers.promise(2), Some(promise));
        assert_eq!((claimers.wanted(1), claimers.wanted(2)), (1, 3));
        // The lease arrives when it is handed over, not before.
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
        let mut claimers = WorkClaims::default();
        let kinds = [vec![1], vec![1, 2], vec![2], vec![1, 2]];
        let asks: Vec<u64> = kinds.map(|kinds| claimers.ask(kinds, 2, 7).0).into();
        let mut promise = |kind| claimers.promise(kind).map(|promise| promise.to);
        let of_two = [2, 2, 2].map(&mut promise);
        assert_eq!(of_two, [Some(asks[1]), Some(asks[1]), Some(asks[2])]);
        // The second claim has no capacity left for either kind.
        let of_one = [1, 1, 1, 1, 1].map(&mut promise);
        assert_eq!(of_one, [Some(asks[0]), Some(asks[0]), Some(asks[3]), Some(asks[3]), None]);
        assert_eq!((claimers.wanted(1), claimers.wanted(2)), (4, 4));
    }
}
