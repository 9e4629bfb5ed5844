//! Task that the reader submits to the pool for a record.

use crate::key::RecordKey;
use crate::run_stats::RecordLocation;

/// The pool of a run.
pub(crate) type RecordPool = keylane::HandlerPool<RecordKey, RecordTask>;

/// One record, ready to run.
#[derive(Debug)]
pub(crate) struct RecordTask {
    pub(crate) place: RecordLocation,
    /// The record's key, if the pool has all records under one key.
    pub(crate) own_key: Option<RecordKey>,
    pub(crate) body: RecordBody,
}

/// Content of the task.
#[derive(Debug)]
pub(crate) enum RecordBody {
    /// Arguments of a command.
    Argv(Vec<Vec<u8>>),
    /// A line for a worker, with its line end.
    Line(Vec<u8>),
}
