//! Timer thread for retries, and the records that wait for the operator. A waiting record keeps its
//! key, but no worker.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::in_flight::{InFlight, RecordContext};
use super::outside::Outside;

/// Records that wait for their next attempt: until a time, or until the operator resumes them.
#[derive(Debug, Default)]
pub(super) struct RetryTimer {
    state: Mutex<RetryTimerState>,
    /// Notified when the earliest time has changed, or the timer is stopped.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct RetryTimerState {
    by_time: BinaryHeap<Reverse<TimerEntry>>,
    /// Number of entries so far; breaks ties in order of arrival.
    count: u64,
    /// Records that have their turns and must wait, for the operator or an earlier record.
    parked: Vec<InFlight>,
    /// Time of the last [`hurry`](RetryTimer::hurry).
    hurried_at: Option<Instant>,
    stopped: bool,
}

#[derive(Debug)]
struct TimerEntry {
    at: Instant,
    number: u64,
    in_flight: InFlight,
}

impl RetryTimer {
    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, RetryTimerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Schedules a retry. After [`stop`](Self::stop), or if its assignment is closed, the record is
    /// dropped. The check is under the lock, so that a record that is not dropped here is found by
    /// [`purge`](Self::purge), which comes after the closing.
    pub(super) fn schedule(&self, at: Instant, in_flight: InFlight) {
        let mut state = self.state();
        if state.stopped || in_flight.context.assignment.is_closed() {
            drop(state);
            return drop(in_flight);
        }
        let is_first = state.add(at, in_flight);
        drop(state);
        if is_first {
            self.changed.notify_one();
        }
    }

    /// Keeps a record that [must wait](InFlight::must_wait) until [`unpark`](Self::unpark). If that has
    /// ended meanwhile, the record is scheduled at once: the flags are read under the lock, and `unpark`
    /// comes after they have changed.
    pub(super) fn park(&self, now: Instant, in_flight: InFlight) {
        let mut state = self.state();
        if state.stopped || in_flight.context.assignment.is_closed() {
            drop(state);
            return drop(in_flight);
        }
        if in_flight.must_wait() {
            in_flight.context.set_parked(true);
            return state.parked.push(in_flight);
        }
        state.add(now, in_flight);
        drop(state);
        self.changed.notify_one();
    }

    /// Schedules the parked records that need not wait any more.
    pub(super) fn unpark(&self, now: Instant) {
        let mut state = self.state();
        let parked = std::mem::take(&mut state.parked);
        for in_flight in parked {
            if in_flight.must_wait() {
                state.parked.push(in_flight);
            } else {
                in_flight.context.set_parked(false);
                state.add(now, in_flight);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Schedules the next attempts at these records at once. Each has the number of its failed attempts,
    /// by which a record knows it that is on its way here after the report of its failure.
    pub(super) fn hurry(&self, records: &[(Arc<RecordContext>, u32)], now: Instant) {
        let mut state = self.state();
        state.hurried_at = Some(now);
        records.iter().for_each(|(context, failed)| context.hurry(*failed));
        let wanted: HashSet<_> = records.iter().map(|(context, _)| Arc::as_ptr(context)).collect();
        let mut entries = std::mem::take(&mut state.by_time).into_vec();
        for Reverse(entry) in &mut entries {
            if wanted.contains(&Arc::as_ptr(&entry.in_flight.context)) {
                entry.at = entry.at.min(now);
            }
        }
        state.by_time = entries.into();
        drop(state);
        self.changed.notify_one();
    }

    /// Drops the records of a closed assignment. They could not start, but would hold their keys
    /// until their time.
    pub(super) fn purge(&self, epoch: u64) {
        let mut state = self.state();
        let all = std::mem::take(&mut state.by_time).into_vec();
        let (gone, stay): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|Reverse(entry)| entry.in_flight.context.assignment.epoch == epoch);
        state.by_time = stay.into();
        let parked = std::mem::take(&mut state.parked);
        let (parked, stay): (Vec<_>, Vec<_>) =
            parked.into_iter().partition(|in_flight| in_flight.context.assignment.epoch == epoch);
        state.parked = stay;
        drop(state);
        // Not under the lock: dropping a record drops the guard of its key.
        drop((gone, parked));
    }

    /// Ends [`run`](Self::run) and drops all records.
    pub(super) fn stop(&self) {
        let mut state = self.state();
        state.stopped = true;
        let all = (std::mem::take(&mut state.by_time), std::mem::take(&mut state.parked));
        drop(state);
        self.changed.notify_one();
        drop(all);
    }

    /// Passes on the records that are due, until the timer is stopped.
    pub(super) fn run(&self, outside: &Outside, mut due: impl FnMut(Vec<InFlight>)) {
        while let Some(in_flight) = self.next_due(outside) {
            due(in_flight);
        }
    }

    /// Takes the records that are due.
    #[cfg(test)]
    pub(super) fn take_due(&self, now: Instant) -> Vec<InFlight> {
        self.state().take_due(now)
    }

    /// Returns the time of the next record.
    #[cfg(test)]
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.state().by_time.peek().map(|Reverse(first)| first.at)
    }

    /// Waits until records are due. Returns `None` once stopped.
    fn next_due(&self, outside: &Outside) -> Option<Vec<InFlight>> {
        let mut state = self.state();
        loop {
            if state.stopped {
                return None;
            }
            let now = outside.now();
            let in_flight = state.take_due(now);
            if !in_flight.is_empty() {
                return Some(in_flight);
            }
            let first = state.by_time.peek().map(|Reverse(first)| first.at);
            state = match first {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let waited = self.changed.wait_timeout(state, at.duration_since(now));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }
}

impl RetryTimerState {
    /// Adds a record, and returns whether it is the next one.
    fn add(&mut self, at: Instant, in_flight: InFlight) -> bool {
        let at = match self.hurried_at {
            Some(hurried_at) if in_flight.is_hurried() => at.min(hurried_at),
            _ => at,
        };
        let is_first = self.by_time.peek().is_none_or(|Reverse(first)| at < first.at);
        self.count += 1;
        let number = self.count;
        self.by_time.push(Reverse(TimerEntry { at, number, in_flight }));
        is_first
    }

    fn take_due(&mut self, now: Instant) -> Vec<InFlight> {
        let mut due = Vec::new();
        while self.by_time.peek().is_some_and(|Reverse(first)| first.at <= now) {
            due.extend(self.by_time.pop().map(|Reverse(entry)| entry.in_flight));
        }
        due
    }
}

impl PartialEq for TimerEntry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}

impl Eq for TimerEntry {}

impl PartialOrd for TimerEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for TimerEntry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}
