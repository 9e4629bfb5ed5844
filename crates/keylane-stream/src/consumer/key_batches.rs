//! Batches of one key: threads that handle them, and the handling of failures.
//!
//! The pool passes on the records of each lane in order, and each enters the [batcher](KeyBatcher),
//! which keeps their order from then on. The thread that takes a batch holds the lane's
//! [guard](BatchGuard). A failed record takes the guard with it, to the timer, the dead letters or
//! the coordinator, as a record of another consumer takes the pool's turn. The records behind it
//! are put back before that, and continue when the guard is dropped. A retried record brings the
//! guard back, and stands in front again.
//!
//! A record in the batcher has not started an attempt. If its partition is revoked, it is dropped
//! when its batch is taken. If the operator has paused it, it is parked with the guard when it is the
//! first of its batch, and put back with the records behind it if others are before it.

use std::any::Any;
use std::iter;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use super::assignment::RunningAttempt;
use super::attempt::Attempt;
use super::batch::{BatchConfig, BatchFailure, BatchFn, call, call_alone};
use super::failure::AttemptFailure;
use super::handler::HandlerAdapter;
use super::in_flight::InFlight;
use super::key_batcher::{BufferedRecord, KeyBatcher};
use super::key_guard::{KeyGuard, LaneGuard, LaneTurn};
use super::ordering::LaneId;
use super::shared::{ConsumerShared, FailureDecision};
use super::worker_event::CompletionKind;

/// Handler of a consumer with batches of one key: puts records into the batcher.
pub(super) struct KeyBatches {
    queue: Arc<KeyBatchQueue>,
    threads: Vec<JoinHandle<()>>,
}

/// State shared by the threads.
#[derive(Debug)]
struct KeyBatchQueue {
    batch: BatchConfig,
    /// Changed by the threads, by the pool's workers, and by guards that are dropped.
    state: Mutex<KeyBatchState>,
    /// Notified when there may be work for one more thread, or the queue is closed.
    changed: Condvar,
}

#[derive(Debug)]
struct KeyBatchState {
    batcher: KeyBatcher<KeyBatchEntry>,
    /// Number of waiting threads.
    idle: usize,
    /// Earliest deadline that a waiting thread watches. The other threads then wait without a
    /// timeout, so that a deadline wakes one thread and not all.
    watched: Option<Instant>,
    /// No record will be added.
    closed: bool,
}

/// A record in the batcher. No attempt has started.
#[derive(Debug)]
struct KeyBatchEntry {
    shared: Arc<ConsumerShared>,
    in_flight: InFlight,
    /// Decision about an earlier failure that was already reported. It is applied instead of an
    /// attempt.
    decision: Option<FailureDecision>,
}

/// A record of a batch whose attempt has started.
type StartedRecord = (InFlight, RunningAttempt);

/// Exclusive right to handle a lane. Dropping it lets the lane continue.
#[derive(Debug)]
struct BatchGuard {
    queue: Arc<KeyBatchQueue>,
    lane: LaneId,
}

impl KeyBatches {
    /// Starts the threads that handle batches. Dropping the handler ends and joins them.
    pub(super) fn start(
        batch: BatchConfig,
        threads: usize,
        handler: &Arc<BatchFn>,
    ) -> std::io::Result<Self> {
        let batcher = KeyBatcher::new(batch.max_records, batch.linger);
        let state = KeyBatchState { batcher, idle: 0, watched: None, closed: false };
        let queue =
            Arc::new(KeyBatchQueue { batch, state: Mutex::new(state), changed: Condvar::new() });
        let mut batches = KeyBatches { queue, threads: Vec::with_capacity(threads) };
        for number in 0..threads {
            let (queue, handler) = (batches.queue.clone(), handler.clone());
            let thread = thread::Builder::new()
                .name(format!("keylane-batch-{number}"))
                .spawn(move || queue.run(&*handler))?;
            batches.threads.push(thread);
        }
        Ok(batches)
    }
}

impl HandlerAdapter for KeyBatches {
    fn handle_record(
        &self,
        shared: &Arc<ConsumerShared>,
        lane: &LaneId,
        mut in_flight: InFlight,
        _: &mut dyn LaneTurn,
    ) {
        let turn = in_flight.turn.take();
        let entry = KeyBatchEntry { shared: shared.clone(), in_flight, decision: None };
        match turn {
            Some(KeyGuard::Batch(turn)) => {
                let turn: Box<dyn Any> = turn;
                let turn = turn.downcast::<BatchGuard>().expect("no other guard is made here");
                turn.put_back([BufferedRecord::again(entry)]);
            }
            // The pool sends the lane's next record only after this call, so it queues behind.
            _ => self.queue.push(lane, entry),
        }
    }
}

impl Drop for KeyBatches {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // The threads catch panics of the handler, and have no others.
            let _ = thread.join();
        }
    }
}

impl LaneGuard for BatchGuard {}

impl BatchGuard {
    fn put_back(
        &self,
        entries: impl IntoIterator<Item = BufferedRecord<KeyBatchEntry>, IntoIter: DoubleEndedIterator>,
    ) {
        let mut state = self.queue.state();
        if state.closed {
            // After closing, entries are dropped, but not under the lock: their guards take it.
            drop(state);
            return;
        }
        state.batcher.put_back(&self.lane, entries.into_iter());
    }
}

impl Drop for BatchGuard {
    fn drop(&mut self) {
        let mut state = self.queue.state();
        state.batcher.release(&self.lane, Instant::now());
        self.queue.wake(&state);
    }
}

impl KeyBatchQueue {
    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, KeyBatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, lane: &LaneId, entry: KeyBatchEntry) {
        let mut state = self.state();
        if state.closed {
            drop(state);
            return drop(entry);
        }
        state.batcher.push(lane.clone(), entry, Instant::now());
        self.wake(&state);
    }

    /// Wakes a thread if there is work that no thread attends to.
    fn wake(&self, state: &KeyBatchState) {
        if state.idle > 0 && state.wants_one() {
            self.changed.notify_one();
        }
    }

    fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let BatchConfig { max_records, linger, .. } = self.batch;
        let left = std::mem::replace(&mut state.batcher, KeyBatcher::new(max_records, linger));
        drop(state);
        self.changed.notify_all();
        drop(left);
    }

    fn run(self: &Arc<Self>, handler: &BatchFn) {
        while let Some((turn, entries)) = self.next() {
            self.handle(turn, entries, handler);
        }
    }

    /// Waits for a batch. Returns `None` once closed.
    fn next(self: &Arc<Self>) -> Option<(BatchGuard, Vec<KeyBatchEntry>)> {
        let mut state = self.state();
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            if let Some((lane, entries)) = state.batcher.take(now) {
                self.wake(&state);
                return Some((BatchGuard { queue: self.clone(), lane }, entries));
            }
            state = self.wait(state, now);
        }
    }

    /// Waits for a change, and for the next deadline if no other thread watches it.
    fn wait<'c>(
        &'c self,
        mut state: MutexGuard<'c, KeyBatchState>,
        now: Instant,
    ) -> MutexGuard<'c, KeyBatchState> {
        state.idle += 1;
        let due = state.batcher.next_due().filter(|due| state.is_unwatched(*due));
        state = match due {
            None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            Some(due) => {
                state.watched = Some(due);
                let waited = self.changed.wait_timeout(state, due - now);
                let mut state = waited.unwrap_or_else(PoisonError::into_inner).0;
                state.watched.take_if(|watched| *watched == due);
                state
            }
        };
        state.idle -= 1;
        state
    }

    fn handle(&self, turn: BatchGuard, entries: Vec<KeyBatchEntry>, handler: &BatchFn) {
        let mut shared = None;
        let mut started = Vec::with_capacity(entries.len());
        let mut entries = entries.into_iter();
        while let Some(KeyBatchEntry { shared: its, in_flight, decision }) = entries.next() {
            // The assignment is closed: the record belongs to another member.
            let Some(running) = in_flight.begin(its.outside.now()) else { continue };
            if let Some(decision) = decision {
                // A record with a decision is a batch of its own. Its attempt has been made.
                let in_flight =
                    InFlight { turn: Some(KeyGuard::Batch(Box::new(turn))), ..in_flight };
                return its.apply(in_flight, running, decision);
            }
            if in_flight.must_wait() {
                running.end(&its.mailbox);
                let first = KeyBatchEntry { shared: its, in_flight, decision: None };
                if started.is_empty() {
                    return park(turn, first, entries);
                }
                turn.put_back(iter::once(first).chain(entries).map(BufferedRecord::again));
                break;
            }
            shared = Some(its);
            started.push((in_flight, running));
        }
        if let Some(shared) = shared {
            self.handle_started(&shared, turn, started, handler);
        }
    }

    fn handle_started(
        &self,
        shared: &Arc<ConsumerShared>,
        turn: BatchGuard,
        mut started: Vec<StartedRecord>,
        handler: &BatchFn,
    ) {
        let attempts: Vec<_> =
            started.iter().map(|(in_flight, _)| Attempt::of(in_flight)).collect();
        let outcome = self.call(&attempts, handler);
        drop(attempts);
        let failed = started.split_off(outcome.done);
        for (in_flight, running) in started {
            shared.complete(in_flight, running, CompletionKind::Handled);
        }
        match outcome.failed {
            None => drop(turn),
            Some((failure, true)) => fail_all(shared, turn, failed, &failure),
            Some((failure, false)) => fail_first(shared, turn, failed, failure),
        }
    }

    fn call(&self, attempts: &[Attempt], handler: &BatchFn) -> BatchResult {
        match call(handler, attempts) {
            Ok(()) => BatchResult { done: attempts.len(), failed: None },
            Err(failure) => match BatchFailure::in_batch(&failure, attempts.len()) {
                Some((done, failure)) => BatchResult { done, failed: Some((failure, false)) },
                None if is_any_cancelled(attempts) => {
                    BatchResult { done: 0, failed: Some((failure, true)) }
                }
                None if self.batch.split && attempts.len() > 1 => one_by_one(handler, attempts),
                None => BatchResult { done: 0, failed: Some((failure, true)) },
            },
        }
    }
}

/// Parks a record that must wait, and puts the others of its batch back.
fn park(
    turn: BatchGuard,
    first: KeyBatchEntry,
    others: impl DoubleEndedIterator<Item = KeyBatchEntry>,
) {
    let KeyBatchEntry { shared, in_flight, .. } = first;
    turn.put_back(others.map(BufferedRecord::again));
    let in_flight = InFlight { turn: Some(KeyGuard::Batch(Box::new(turn))), ..in_flight };
    shared.timer.park(shared.outside.now(), in_flight);
}

/// Result of a batch.
struct BatchResult {
    /// Number of records at the front that are complete.
    done: usize,
    /// Failure of the next record, or, with `true`, of all remaining ones.
    failed: Option<(AttemptFailure, bool)>,
}

/// Returns whether a batch was cancelled. Then its records are not handled alone.
fn is_any_cancelled(attempts: &[Attempt]) -> bool {
    attempts.iter().any(Attempt::is_cancelled)
}

/// Handles each record alone, up to the first failure.
fn one_by_one(handler: &BatchFn, attempts: &[Attempt]) -> BatchResult {
    for (done, attempt) in attempts.iter().enumerate() {
        if let Err(failure) = call_alone(handler, attempt) {
            return BatchResult { done, failed: Some((failure, false)) };
        }
    }
    BatchResult { done: attempts.len(), failed: None }
}

/// Fails the first record and puts the others back untried.
fn fail_first(
    shared: &Arc<ConsumerShared>,
    turn: BatchGuard,
    mut batch: Vec<StartedRecord>,
    failure: AttemptFailure,
) {
    let others = batch.split_off(1);
    let Some((in_flight, running)) = batch.pop() else { return };
    let back: Vec<_> = others
        .into_iter()
        .map(|(in_flight, running)| {
            running.end(&shared.mailbox);
            BufferedRecord::again(KeyBatchEntry {
                shared: shared.clone(),
                in_flight,
                decision: None,
            })
        })
        .collect();
    turn.put_back(back);
    let in_flight = InFlight { turn: Some(KeyGuard::Batch(Box::new(turn))), ..in_flight };
    shared.answer(in_flight, running, Err(failure));
}

/// Fails an attempt at each record. Their decisions are applied one after another.
fn fail_all(
    shared: &Arc<ConsumerShared>,
    turn: BatchGuard,
    batch: Vec<StartedRecord>,
    failure: &AttemptFailure,
) {
    if batch.iter().any(|(in_flight, _)| in_flight.context.is_cancelled()) {
        batch.into_iter().for_each(|(in_flight, running)| shared.cancelled(in_flight, running));
        return drop(turn);
    }
    let mut started = batch.into_iter();
    let Some((mut in_flight, running)) = started.next() else { return };
    shared.times.add(running.time(shared.outside.now()));
    let decision = shared.decide(&mut in_flight, failure);
    // Records behind a retried one wait for it and are retried with it.
    let mut waits_for = decision.retries_at();
    let back: Vec<_> = started
        .map(|(mut in_flight, running)| {
            let own = shared.decide(&mut in_flight, failure);
            let decision = match waits_for {
                Some(at) => {
                    shared.report_retry(&in_flight, &own, at);
                    None
                }
                None => {
                    waits_for = own.retries_at();
                    Some(own)
                }
            };
            running.end(&shared.mailbox);
            let is_alone = decision.is_some();
            let entry = KeyBatchEntry { shared: shared.clone(), in_flight, decision };
            if is_alone { BufferedRecord::alone(entry) } else { BufferedRecord::again(entry) }
        })
        .collect();
    turn.put_back(back);
    let in_flight = InFlight { turn: Some(KeyGuard::Batch(Box::new(turn))), ..in_flight };
    shared.apply(in_flight, running, decision);
}

impl KeyBatchState {
    /// Returns whether there is work that no thread attends to.
    fn wants_one(&self) -> bool {
        self.batcher.has_ready()
            || self.batcher.next_due().is_some_and(|due| self.is_unwatched(due))
    }

    fn is_unwatched(&self, due: Instant) -> bool {
        self.watched.is_none_or(|watched| due < watched)
    }
}
