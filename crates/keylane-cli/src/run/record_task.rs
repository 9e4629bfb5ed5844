//! Tasks that the reader submits to the pool.

use crate::key::RecordKey;
use crate::record_output::RecordSink;
use crate::run_stats::RecordLocation;

/// A record for a worker.
#[derive(Debug)]
pub(crate) struct LineTask {
    pub(crate) place: RecordLocation,
    /// The record's key, if the pool has all records under one key.
    pub(crate) own_key: Option<RecordKey>,
    /// The line, with its line end.
    pub(crate) line: Vec<u8>,
    pub(crate) sink: RecordSink,
}

/// Content of the task.
#[derive(Debug)]
pub(crate) enum RecordBody {
    /// Arguments of a command.
    Argv(Vec<Vec<u8>>),
    /// A line for a worker, with its line end.
    Line(Vec<u8>),
}
