//! Records that wait for their batch to start, shared by the reader, the thread that watches the
//! linger times, and the tasks of the pool.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::record_keys::RecordKeys;
use crate::record_output::RecordSink;
use crate::run_stats::RecordLocation;

use super::record_bound::RecordPermit;
use super::waiting_batches::{BatchNumber, ReadyBatch, WaitingBatches};

/// Records in batches that have not started.
#[derive(Debug)]
pub(crate) struct BatchQueue {
    state: Mutex<QueueState>,
    /// Notifies the thread that watches the linger times: there is one, or the queue is closed.
    changed: Condvar,
}

#[derive(Debug)]
struct QueueState {
    batches: WaitingBatches<BatchRecord>,
    /// Takes no further record.
    is_closed: bool,
}

/// A record that waits in a batch.
#[derive(Debug)]
pub(super) struct BatchRecord {
    pub(super) place: RecordLocation,
    pub(super) keys: RecordKeys,
    /// The record, with a line end.
    pub(super) line: Vec<u8>,
    pub(super) sink: RecordSink,
    pub(super) permit: RecordPermit,
}

/// The queue takes no further record.
#[derive(Debug)]
pub(super) struct QueueClosed;

impl BatchQueue {
    pub(super) fn new(batches: WaitingBatches<BatchRecord>) -> Self {
        let state = QueueState { batches, is_closed: false };
        BatchQueue { state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Adds a record. Returns its batch if that is ready now, and was not before.
    pub(super) fn add(&self, record: BatchRecord) -> Result<Option<ReadyBatch>, QueueClosed> {
        let mut state = self.lock();
        if state.is_closed {
            // The record is dropped without the lock.
            drop(state);
            return Err(QueueClosed);
        }
        let watched = state.batches.next_due();
        let key = record.keys.first.clone();
        let ready = state.batches.add(&key, record, Instant::now());
        // Later linger times end later, so that the first one alone is watched.
        if watched.is_none() && state.batches.next_due().is_some() {
            self.changed.notify_one();
        }
        Ok(ready)
    }

    /// Waits until the linger time of a batch has passed. Returns false once the queue is closed.
    pub(super) fn wait_until_due(&self) -> bool {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return false;
            }
            let left = state.batches.next_due();
            let left = left.map(|due| due.saturating_duration_since(Instant::now()));
            state = match left {
                Some(left) if left.is_zero() => return true,
                Some(left) => {
                    let waited = self.changed.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// Returns the batches whose linger time has passed. They are ready.
    pub(super) fn due(&self) -> Vec<ReadyBatch> {
        self.lock().batches.due(Instant::now())
    }

    /// Returns all batches that linger. They are ready.
    pub(super) fn all_lingering(&self) -> Vec<ReadyBatch> {
        self.lock().batches.all_lingering()
    }

    /// Takes the records of a batch, which starts.
    pub(super) fn take(&self, number: BatchNumber) -> Vec<BatchRecord> {
        self.lock().batches.take(number)
    }

    /// Takes no further record.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_all();
    }

    /// Takes no further record, and drops all. Returns their number.
    pub(super) fn abandon(&self) -> u64 {
        self.close();
        let abandoned = self.lock().batches.take_all();
        abandoned.len() as u64
    }

    fn lock(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
