//! Records of one key, handled together: the threads that do so, and what follows when a batch fails.
//!
//! The pool hands over the records of each lane in their order, and each enters the [batcher](KeyBatcher), where the
//! order of its lane is kept from then on. A thread that takes a batch has the lane's [turn](BatchGuard). A
//! record that has failed takes this turn with it, to the timer, the dead letters or the owner, as a record
//! does with the pool's turn elsewhere; those behind it are back in their line before that, and go on when the
//! turn ends. A record that comes for its next attempt brings the turn, and stands in front again.
//!
//! What waits in a line has not started. If its partition is given up meanwhile, it is let go of.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use keylane::TurnKeeper;

use super::assignment::RunningAttempt;
use super::attempt::{Attempt, InFlight};
use super::batch::{BatchConfig, BatchFn, FailedAt, call, call_alone};
use super::failure::Failure;
use super::handler::RecordHandler;
use super::key_batcher::{BufferedRecord, KeyBatcher};
use super::key_guard::KeyGuard;
use super::ordering::LaneId;
use super::shared::{ConsumerShared, FailureDecision};
use super::worker_event::Completion;

/// The handler of a consumer with batches of a key: it only puts records into their batcher.
pub(super) struct KeyBatches {
    queue: Arc<KeyBatchQueue>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
#[derive(Debug)]
struct KeyBatchQueue {
    batch: BatchConfig,
    /// Changed by the threads, by whoever brings a record, and where a turn ends.
    state: Mutex<KeyBatchState>,
    /// Notified when there may be something for one more thread, or all is over.
    changed: Condvar,
}

#[derive(Debug)]
struct KeyBatchState {
    batcher: KeyBatcher<KeyBatchEntry>,
    /// Completion many threads wait.
    idle: usize,
    /// Until when one of them waits at the longest, so that not all are woken when a wait for company ends.
    watched: Option<Instant>,
    /// Nobody comes any more.
    closed: bool,
}

/// A record in its line. It has not started.
#[derive(Debug)]
struct KeyBatchEntry {
    shared: Arc<ConsumerShared>,
    in_flight: InFlight,
    /// What follows a failure that was already told; it is not handled before.
    decide: Option<FailureDecision>,
}

/// A record of a batch that has started.
type StartedRecord = (InFlight, RunningAttempt);

/// The turn of a lane in the batcher. Dropped, the lane goes on.
#[derive(Debug)]
pub(super) struct BatchGuard {
    queue: Arc<KeyBatchQueue>,
    lane: LaneId,
}

impl KeyBatches {
    /// Starts the threads that handle batches. They end when this is dropped, which waits for that.
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

impl RecordHandler for KeyBatches {
    fn handle_record(
        &self,
        shared: &Arc<ConsumerShared>,
        lane: &LaneId,
        mut in_flight: InFlight,
        _: TurnKeeper<'_>,
    ) {
        let turn = in_flight.turn.take();
        let entry = KeyBatchEntry { shared: shared.clone(), in_flight, decide: None };
        match turn {
            Some(KeyGuard::Batch(turn)) => turn.put_back([BufferedRecord::again(entry)]),
            // The next one of the lane comes only when this call's turn ends, and so stands behind.
            _ => self.queue.push(lane, entry),
        }
    }
}

impl Drop for KeyBatches {
    fn drop(&mut self) {
        self.queue.close();
        for thread in self.threads.drain(..) {
            // It stops panics of the handler; there are no others.
            let _ = thread.join();
        }
    }
}

impl BatchGuard {
    fn put_back(
        &self,
        entries: impl IntoIterator<Item = BufferedRecord<KeyBatchEntry>, IntoIter: DoubleEndedIterator>,
    ) {
        let mut state = self.queue.state();
        if state.closed {
            // All is over; what comes is dropped, but not under the lock.
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
    /// No section unwinds.
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

    /// Wakes a thread if there is something that nobody sees to.
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

    /// Waits for a batch; none once all is over.
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

    /// Waits until something changes; also for the end of a wait for company, if nobody else does.
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
        for KeyBatchEntry { shared: its, in_flight, decide } in entries {
            // Who cannot begin is somebody else's by now.
            let Some(running) = in_flight.begin() else { continue };
            let shared = shared.insert(its);
            if let Some(decide) = decide {
                // Such a record comes alone.
                let in_flight = InFlight { turn: Some(KeyGuard::Batch(turn)), ..in_flight };
                return shared.then(in_flight, running, decide);
            }
            started.push((in_flight, running));
        }
        if let Some(shared) = shared {
            self.handle_begun(&shared, turn, started, handler);
        }
    }

    fn handle_begun(
        &self,
        shared: &Arc<ConsumerShared>,
        turn: BatchGuard,
        mut started: Vec<StartedRecord>,
        handler: &BatchFn,
    ) {
        let attempts: Vec<_> = started.iter().map(|(in_flight, _)| in_flight.attempt()).collect();
        let outcome = self.call(&attempts, handler);
        drop(attempts);
        let failed = started.split_off(outcome.done);
        for (in_flight, running) in started {
            shared.ended(in_flight, running, Completion::Handled);
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
            Err(failure) => match FailedAt::in_batch(&failure, attempts.len()) {
                Some((done, failure)) => BatchResult { done, failed: Some((failure, false)) },
                None if self.batch.split && attempts.len() > 1 => one_by_one(handler, attempts),
                None => BatchResult { done: 0, failed: Some((failure, true)) },
            },
        }
    }
}

/// What came of a batch.
struct BatchResult {
    /// So many of the first are done.
    done: usize,
    /// The next one has failed, or, if that is true, all others have.
    failed: Option<(Failure, bool)>,
}

/// Handles each alone, up to the first that fails.
fn one_by_one(handler: &BatchFn, attempts: &[Attempt]) -> BatchResult {
    for (done, attempt) in attempts.iter().enumerate() {
        if let Err(failure) = call_alone(handler, attempt) {
            return BatchResult { done, failed: Some((failure, false)) };
        }
    }
    BatchResult { done: attempts.len(), failed: None }
}

/// The first one has failed; the others have not been tried.
fn fail_first(
    shared: &Arc<ConsumerShared>,
    turn: BatchGuard,
    mut batch: Vec<StartedRecord>,
    failure: Failure,
) {
    let others = batch.split_off(1);
    let Some((in_flight, running)) = batch.pop() else { return };
    let back: Vec<_> = others
        .into_iter()
        .map(|(in_flight, running)| {
            running.end(&shared.mailbox);
            BufferedRecord::again(KeyBatchEntry { shared: shared.clone(), in_flight, decide: None })
        })
        .collect();
    turn.put_back(back);
    let in_flight = InFlight { turn: Some(KeyGuard::Batch(turn)), ..in_flight };
    shared.answer(in_flight, running, Err(failure));
}

/// An attempt at each of them has failed. Each goes its way, one after another.
fn fail_all(
    shared: &Arc<ConsumerShared>,
    turn: BatchGuard,
    batch: Vec<StartedRecord>,
    failure: &Failure,
) {
    let mut started = batch.into_iter();
    let Some((mut in_flight, running)) = started.next() else { return };
    shared.times.add(running.time());
    let decide = shared.decide(&mut in_flight, failure);
    // Who is behind one that is tried again waits with it, and is tried with it.
    let mut waits_for = decide.retries_at();
    let back: Vec<_> = started
        .map(|(mut in_flight, running)| {
            let own = shared.decide(&mut in_flight, failure);
            let decide = match waits_for {
                Some(at) => {
                    shared.tell_retry(&in_flight, &own, at);
                    None
                }
                None => {
                    waits_for = own.retries_at();
                    Some(own)
                }
            };
            running.end(&shared.mailbox);
            let is_alone = decide.is_some();
            let entry = KeyBatchEntry { shared: shared.clone(), in_flight, decide };
            if is_alone { BufferedRecord::alone(entry) } else { BufferedRecord::again(entry) }
        })
        .collect();
    turn.put_back(back);
    let in_flight = InFlight { turn: Some(KeyGuard::Batch(turn)), ..in_flight };
    shared.then(in_flight, running, decide);
}

impl KeyBatchState {
    /// Whether there is something that no thread sees to yet.
    fn wants_one(&self) -> bool {
        self.batcher.has_ready()
            || self.batcher.next_due().is_some_and(|due| self.is_unwatched(due))
    }

    fn is_unwatched(&self, due: Instant) -> bool {
        self.watched.is_none_or(|watched| due < watched)
    }
}
