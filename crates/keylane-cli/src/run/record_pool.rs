//! Pool of a run: tasks with any keys, or lines with one key each for workers.

use keylane::control::Inspector;
use keylane::{HandlerPool, Pool, WaitError};

use crate::key::RecordKey;

use super::record_task::LineTask;

/// The pool of a run.
#[derive(Debug)]
pub(crate) enum RecordPool {
    /// Tasks with any keys, each of which runs commands, or is given to a worker.
    Tasks(Pool<RecordKey>),
    /// Lines with one key each, for workers.
    Lines(HandlerPool<RecordKey, LineTask>),
}

impl RecordPool {
    /// Accepts no further record.
    pub(super) fn close(&self) {
        match self {
            Self::Tasks(pool) => pool.close(),
            Self::Lines(pool) => pool.close(),
        }
    }

    /// Closes the pool and waits until it is empty.
    pub(super) fn shutdown(&self) -> Result<(), WaitError> {
        match self {
            Self::Tasks(pool) => pool.shutdown(),
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
        }
    }

    pub(crate) fn inspect(&self) -> Inspector<'_, RecordKey> {
        match self {
            Self::Tasks(pool) => pool.inspect(),
            Self::Lines(pool) => pool.inspect(),
        }
    }
}
