//! Pool of a run: tasks with any keys, lines with one key each for workers, or batches.

use std::sync::Arc;

use keylane::control::Inspector;
use keylane::{HandlerPool, Pool, WaitError};

use crate::key::RecordKey;

use super::batch_queue::BatchQueue;
use super::record_bound::RecordBound;
use super::record_task::LineTask;

/// More lanes than a pool can have. The pool doubles it.
const ALL_LANES: usize = usize::MAX / 2;

/// The pool of a run.
#[derive(Debug)]
pub(crate) enum RecordPool {
    /// Tasks with any keys, each of which runs commands, or is given to a worker.
    Tasks(Pool<RecordKey>),
    /// Lines with one key each, for workers.
    Lines(HandlerPool<RecordKey, LineTask>),
    /// Tasks with one key each, each of which runs a command for a batch.
    Batches {
        pool: Pool<RecordKey>,
        /// Records of batches that have not started.
        queue: Arc<BatchQueue>,
        bound: Arc<RecordBound>,
    },
}

impl RecordPool {
    /// Accepts no further record.
    pub(super) fn close(&self) {
        match self {
            Self::Tasks(pool) | Self::Batches { pool, .. } => pool.close(),
            Self::Lines(pool) => pool.close(),
        }
    }

    /// Closes the pool and waits until it is empty.
    pub(super) fn shutdown(&self) -> Result<(), WaitError> {
        match self {
            Self::Tasks(pool) | Self::Batches { pool, .. } => pool.shutdown(),
            Self::Lines(pool) => pool.shutdown(),
        }
    }

    /// Gives up the records that have not begun. Returns the number of those that are not counted
    /// yet: dropped tasks count themselves.
    pub(super) fn abandon(&self) -> u64 {
        match self {
            Self::Tasks(pool) => {
                drop(pool.shutdown_now());
                0
            }
            Self::Lines(pool) => pool.shutdown_now().len() as u64,
            Self::Batches { pool, queue, .. } => {
                drop(pool.shutdown_now());
                queue.abandon()
            }
        }
    }

    pub(crate) fn inspect(&self) -> Inspector<'_, RecordKey> {
        match self {
            Self::Tasks(pool) | Self::Batches { pool, .. } => pool.inspect(),
            Self::Lines(pool) => pool.inspect(),
        }
    }

    /// Returns the keys with unfinished records and the numbers of these, the highest first.
    pub(crate) fn open_keys(&self) -> Vec<(RecordKey, usize)> {
        if let Self::Batches { bound, .. } = self {
            return bound.keys();
        }
        // All lanes, because of each all but the first record wait for their key.
        let lanes = self.inspect().snapshot(ALL_LANES).hottest;
        lanes.into_iter().map(|lane| (lane.key, lane.len)).collect()
    }
}
