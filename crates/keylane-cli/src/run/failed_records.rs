//! Records whose last attempt has failed: one, or those of a batch.

use crate::record_keys::RecordKeys;
use crate::run_stats::{RecordGroup, RecordLocation};

/// Records that have failed together.
pub(super) struct FailedRecords<'r> {
    /// At least one.
    pub(super) records: &'r [FailedRecord<'r>],
    pub(super) keys: &'r RecordKeys,
    pub(super) attempts: u32,
}

/// A record that has failed.
#[derive(Debug)]
pub(super) struct FailedRecord<'r> {
    pub(super) place: &'r RecordLocation,
    /// The record itself, for a dead letter.
    pub(super) raw: &'r [u8],
}

impl FailedRecords<'_> {
    /// Returns the records for counts and messages.
    pub(super) fn group(&self) -> RecordGroup<'_> {
        let [first, others @ ..] = self.records else { unreachable!("a record has failed") };
        let batch = others.last().map(|last| (last.place, self.records.len() as u64));
        RecordGroup { first: first.place, batch, key: &self.keys.first }
    }
}
