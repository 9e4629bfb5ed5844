//! Tasks that the reader submits to the pool.

use crate::key::RecordKey;
use crate::record_output::RecordSink;
use crate::run_stats::RecordLocation;

use super::dispatched_record::RecordDetails;

/// A record for a worker.
#[derive(Debug)]
pub(crate) struct LineTask {
    pub(super) place: RecordLocation,
    /// The record's first key, if the pool has it under others.
    pub(super) own_key: Option<RecordKey>,
    /// The line, with its line end.
    pub(super) line: Vec<u8>,
    pub(super) sink: RecordSink,
    /// Present if the run has rules beyond those for one key and one attempt.
    pub(super) details: Option<Box<RecordDetails>>,
}

/// Content of the task.
#[derive(Debug)]
pub(crate) enum RecordBody {
    /// Arguments of a command.
    Argv(Vec<Vec<u8>>),
    /// A line for a worker, with its line end.
    Line(Vec<u8>),
    /// A line of a batch, with its line end.
    BatchLine(Vec<u8>),
}
