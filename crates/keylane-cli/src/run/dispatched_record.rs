//! Record of a run on its way to a worker, with what its rules need.

use crate::key::RecordKey;
use crate::record_keys::RecordKeys;
use crate::record_output::{AttemptReport, RecordSink};
use crate::run_stats::RecordLocation;

use super::log::LoggedKeys;

/// Record that goes to a worker.
#[derive(Debug)]
pub(super) struct DispatchedRecord {
    pub(super) place: RecordLocation,
    /// Present if the run has rules beyond those for one key and one attempt.
    pub(super) details: Option<Box<RecordDetails>>,
    /// Time of the dispatch, if there is a log or output has times.
    pub(super) start_us: i64,
    pub(super) sink: RecordSink,
}

impl DispatchedRecord {
    /// Number of attempts that have begun.
    pub(super) fn attempts(&self) -> u32 {
        self.details.as_ref().map_or(1, |details| details.attempts)
    }

    /// Keys for the log: `key` is the only one of a record without details.
    pub(super) fn logged_keys<'r>(&'r self, key: &'r RecordKey) -> LoggedKeys<'r> {
        match &self.details {
            Some(details) => LoggedKeys::All(&details.keys),
            None => LoggedKeys::One(key),
        }
    }

    /// Report of the attempt that has ended.
    pub(super) fn report<'r>(&self, end_us: i64, error: Option<&'r str>) -> AttemptReport<'r> {
        let attempt = Some(self.attempts());
        let (start_us, end_us) = (Some(self.start_us), Some(end_us));
        AttemptReport { attempt, start_us, end_us, error, ..AttemptReport::default() }
    }
}

/// Parts of a record for rules beyond those for one key and one attempt.
#[derive(Debug)]
pub(crate) struct RecordDetails {
    pub(super) keys: RecordKeys,
    /// The record itself, if a dead letter would need it.
    pub(super) raw: Vec<u8>,
    /// The line again, if there can be a further attempt.
    pub(super) line: Vec<u8>,
    /// Number of attempts that have begun.
    pub(super) attempts: u32,
}
