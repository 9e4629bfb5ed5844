//! Workers elsewhere: who waits for work, and who has a lease.
//!
//! A kind for them runs as many subtasks at a time as there are leases and open asks, so that the scheduler
//! names one exactly when somebody is there to take it. It is handed over in the same critical section,
//! so no ask can time out in between.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::wire::Timestamp;

/// A lease that somebody has.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// Who, if they have said.
    pub(super) worker: Option<String>,
    /// How long it lasts from a heartbeat on.
    pub(super) lasts: Duration,
    /// When it ends, unless there is one.
    pub(super) expires: Timestamp,
}

/// Those who wait for work, the first first.
#[derive(Debug, Default)]
pub(super) struct Claimers {
    waiting: Vec<Claimer>,
    next: u64,
    /// How many leases there are of each kind.
    held: HashMap<u32, u32>,
}

#[derive(Debug)]
struct Claimer {
    number: u64,
    kinds: Vec<u32>,
    /// How many it still takes.
    room: u32,
    worker: Option<String>,
    given: Arc<Given>,
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
        let claimer = Claimer { number: self.next, kinds, room, worker, given: Arc::clone(&given) };
        self.waiting.push(claimer);
        (self.next, given)
    }

    /// Somebody asks no more.
    pub(super) fn leave(&mut self, number: u64) {
        self.waiting.retain(|claimer| claimer.number != number);
    }

    /// How many of the kind may run: leases, and asks for it.
    pub(super) fn wanted(&self, kind: u32) -> u32 {
        let asked = self.waiting.iter().filter(|claimer| claimer.kinds.contains(&kind));
        let asked = asked.map(|claimer| claimer.room).fold(0, u32::saturating_add);
        asked.saturating_add(self.held.get(&kind).copied().unwrap_or(0))
    }

    /// Gives a run to the first who wants the kind, and says what they are called and which kinds' bounds that
    /// changes. None if nobody does.
    pub(super) fn give(&mut self, kind: u32, fence: u64) -> Option<(Option<String>, Vec<u32>)> {
        let at = self.waiting.iter().position(|claimer| claimer.kinds.contains(&kind))?;
        let claimer = &mut self.waiting[at];
        claimer.given.fences.lock().unwrap_or_else(PoisonError::into_inner).push(fence);
        claimer.given.told.notify_one();
        claimer.room -= 1;
        let (worker, kinds) = (claimer.worker.clone(), claimer.kinds.clone());
        if claimer.room == 0 {
            self.waiting.remove(at);
        }
        *self.held.entry(kind).or_default() += 1;
        Some((worker, kinds))
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
        assert_eq!(claimers.give(2, 70), Some((Some("a".into()), vec![1, 2])));
        assert_eq!((claimers.wanted(1), claimers.wanted(2)), (1, 3));
        assert_eq!(given.take(), [70]);
        claimers.leave(first);
        assert_eq!((claimers.wanted(1), claimers.wanted(2)), (0, 2));
        assert_eq!(claimers.give(1, 71), None);
        assert!(claimers.give(2, 72).is_some());
        claimers.ended(2);
        claimers.ended(2);
        assert_eq!(claimers.wanted(2), 0);
    }
}
