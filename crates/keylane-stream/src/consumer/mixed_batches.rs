//! Batches of records with different keys: a queue, and the threads that handle its batches. A
//! record holds its turn while it waits, so a batch has at most one record of each key.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Instant;

use super::attempt::{Ack, Attempt};
use super::batch::{BatchConfig, BatchFailure, BatchFn, call, call_alone};
use super::failure::AttemptFailure;
use super::handler::HandlerAdapter;
use super::in_flight::InFlight;
use super::key_guard::LaneTurn;
use super::ordering::LaneId;
use super::shared::ConsumerShared;

/// Handler of a consumer with mixed batches: puts records into the queue.
pub(super) struct MixedBatches(Arc<BatchQueue>);

/// Records with turns, first come, first served.
struct BatchQueue {
    batch: BatchConfig,
    state: Mutex<BatchQueueState>,
    /// Notified when the queue gets its first record, has a whole batch, or is closed.
    changed: Condvar,
}

#[derive(Default)]
struct BatchQueueState {
    queue: VecDeque<QueuedRecord>,
    /// No record will be added.
    closed: bool,
}

struct QueuedRecord {
    attempt: Attempt,
    ack: Ack,
    /// Latest time to handle the record. `None` if the linger time exceeds the clock's range.
    due: Option<Instant>,
}

impl QueuedRecord {
    /// Ends the attempt with its batch, which was cancelled. Records of other partitions get another
    /// attempt.
    fn cancelled(self, failure: &AttemptFailure) {
        if self.attempt.is_cancelled() {
            self.ack.failed(failure.clone());
        } else {
            self.ack.restart();
        }
    }
}

impl MixedBatches {
    /// Starts the threads that handle batches. They end when the handler is dropped and the queue
    /// is empty.
    pub(super) fn start(
        batch: BatchConfig,
        threads: usize,
        handler: &Arc<BatchFn>,
    ) -> std::io::Result<Self> {
        let batch = BatchConfig { max_records: batch.max_records.max(1), ..batch };
        let queue = BatchQueue { batch, state: Mutex::default(), changed: Condvar::new() };
        let batches = MixedBatches(Arc::new(queue));
        for number in 0..threads {
            let (queue, handler) = (batches.0.clone(), handler.clone());
            thread::Builder::new()
                .name(format!("keylane-batch-{number}"))
                .spawn(move || queue.run(&*handler))?;
        }
        Ok(batches)
    }
}

impl HandlerAdapter for MixedBatches {
    fn handle_record(
        &self,
        shared: &Arc<ConsumerShared>,
        _: &LaneId,
        in_flight: InFlight,
        turn: &mut dyn LaneTurn,
    ) {
        let Some((mut in_flight, running)) = shared.begin(in_flight, turn) else { return };
        in_flight.keep(turn);
        let attempt = Attempt::of(&in_flight);
        let ack = Ack::new(shared.clone(), in_flight, running);
        let due = Instant::now().checked_add(self.0.batch.linger);
        self.0.push(QueuedRecord { attempt, ack, due });
    }
}

impl Drop for MixedBatches {
    fn drop(&mut self) {
        self.0.state().closed = true;
        self.0.changed.notify_all();
    }
}

impl BatchQueue {
    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, BatchQueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, entry: QueuedRecord) {
        let mut state = self.state();
        state.queue.push_back(entry);
        let count = state.queue.len();
        drop(state);
        if count == 1 || count >= self.batch.max_records {
            self.changed.notify_one();
        }
    }

    fn run(&self, handler: &BatchFn) {
        while let Some(entries) = self.next() {
            self.handle(entries, handler);
        }
    }

    /// Waits for a batch. Returns `None` once the queue is closed and empty.
    fn next(&self) -> Option<Vec<QueuedRecord>> {
        let mut state = self.state();
        loop {
            let due = state.queue.front().and_then(|first| first.due);
            let now = Instant::now();
            let is_due = due.is_some_and(|at| at <= now);
            if is_due || state.queue.len() >= self.batch.max_records || state.closed {
                break;
            }
            state = match due {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let waited = self.changed.wait_timeout(state, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        let count = state.queue.len().min(self.batch.max_records);
        let batch: Vec<_> = state.queue.drain(..count).collect();
        let is_left = !state.queue.is_empty();
        drop(state);
        if is_left {
            // Other threads may be waiting without a timeout for the record that is first now.
            self.changed.notify_one();
        }
        (!batch.is_empty()).then_some(batch)
    }

    fn handle(&self, mut entries: Vec<QueuedRecord>, handler: &BatchFn) {
        let attempts: Vec<_> = entries.iter().map(|entry| entry.attempt.clone()).collect();
        let result = call(handler, &attempts);
        drop(attempts);
        match result {
            Err(failure) if BatchFailure::in_batch(&failure, entries.len()).is_some() => {
                self.failed_at(entries, &failure);
            }
            Err(failure) if entries.iter().any(|entry| entry.attempt.is_cancelled()) => {
                entries.into_iter().for_each(|entry| entry.cancelled(&failure));
            }
            Err(_) if self.batch.split && entries.len() > 1 => {
                for QueuedRecord { attempt, ack, .. } in entries {
                    ack.answer(call_alone(handler, &attempt));
                }
            }
            result => entries.drain(..).for_each(|entry| entry.ack.answer(result.clone())),
        }
    }

    /// Completes the records before the failed one, and puts the records behind it in front of the
    /// queue.
    fn failed_at(&self, mut done: Vec<QueuedRecord>, failure: &AttemptFailure) {
        let Some((index, why)) = BatchFailure::in_batch(failure, done.len()) else { return };
        let mut failed = done.split_off(index);
        let others = failed.split_off(1);
        done.into_iter().for_each(|entry| entry.ack.done());
        let now = Instant::now();
        let mut state = self.state();
        let others = others.into_iter().rev();
        // They have waited for a batch already.
        others.for_each(|other| state.queue.push_front(QueuedRecord { due: Some(now), ..other }));
        drop(state);
        failed.into_iter().for_each(|entry| entry.ack.failed(why.clone()));
    }
}
