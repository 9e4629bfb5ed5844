//! Task that the reader submits to the pool for a record.

use crate::key::Key;
use crate::ledger::Place;

/// The pool of a run.
pub(crate) type Pool = keylane::HandlerPool<Key, Work>;

/// One record, ready to run.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) place: Place,
    /// The record's key, if the pool has all records under one key.
    pub(crate) own_key: Option<Key>,
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
