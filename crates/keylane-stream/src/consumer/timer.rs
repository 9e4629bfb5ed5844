//! The one thread on which records wait for their next attempt. They keep their turn meanwhile, and no
//! worker.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::attempt::Flight;

/// Flights, each until its time.
#[derive(Debug, Default)]
pub(super) struct Timer {
    waiting: Mutex<Waiting>,
    /// Notified when the first time has changed, or nothing is waited for any more.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    by_time: BinaryHeap<Reverse<Entry>>,
    /// How many there have been: of two with the same time the first is the first.
    count: u64,
    stopped: bool,
}

#[derive(Debug)]
struct Entry {
    at: Instant,
    number: u64,
    flight: Flight,
}

impl Timer {
    /// No section unwinds.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a flight until its time. One that comes after the stop is dropped, and so is one whose assignment is
    /// closed: that is asked under the lock, so that whatever is not dropped here is there for
    /// [`purge`](Self::purge), which comes after the closing.
    pub(super) fn schedule(&self, at: Instant, flight: Flight) {
        let mut waiting = self.waiting();
        if waiting.stopped || flight.cargo.assignment.is_closed() {
            drop(waiting);
            return drop(flight);
        }
        let first = waiting.by_time.peek().is_none_or(|Reverse(first)| at < first.at);
        waiting.count += 1;
        let number = waiting.count;
        waiting.by_time.push(Reverse(Entry { at, number, flight }));
        drop(waiting);
        if first {
            self.changed.notify_one();
        }
    }

    /// Lets go of the flights of an assignment that has been closed: they would not begin, but keep
    /// their keys until their time.
    pub(super) fn purge(&self, epoch: u64) {
        let mut waiting = self.waiting();
        let all = std::mem::take(&mut waiting.by_time).into_vec();
        let (gone, stay): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|Reverse(entry)| entry.flight.cargo.assignment.epoch == epoch);
        waiting.by_time = stay.into();
        drop(waiting);
        // Not under the lock, for their turns go with them.
        drop(gone);
    }

    /// Ends [`run`](Self::run), and lets go of all that waits.
    pub(super) fn stop(&self) {
        let mut waiting = self.waiting();
        waiting.stopped = true;
        let all = std::mem::take(&mut waiting.by_time);
        drop(waiting);
        self.changed.notify_one();
        drop(all);
    }

    /// Hands over what is due, until it is stopped.
    pub(super) fn run(&self, mut due: impl FnMut(Vec<Flight>)) {
        while let Some(flights) = self.next_due() {
            due(flights);
        }
    }

    /// Waits until some are due; none once it is stopped.
    fn next_due(&self) -> Option<Vec<Flight>> {
        let mut waiting = self.waiting();
        loop {
            if waiting.stopped {
                return None;
            }
            let now = Instant::now();
            let flights = waiting.take_due(now);
            if !flights.is_empty() {
                return Some(flights);
            }
            let first = waiting.by_time.peek().map(|Reverse(first)| first.at);
            waiting = match first {
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let waited = self.changed.wait_timeout(waiting, at.duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl Waiting {
    fn take_due(&mut self, now: Instant) -> Vec<Flight> {
        let mut due = Vec::new();
        while self.by_time.peek().is_some_and(|Reverse(first)| first.at <= now) {
            due.extend(self.by_time.pop().map(|Reverse(entry)| entry.flight));
        }
        due
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
