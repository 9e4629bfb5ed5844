//! Journals as sinks.

use super::{Sink, SinkError};
use crate::Record;
use crate::journal::Journal;

/// A sink that appends to a journal. Records of one call are stored together or not at all.
#[derive(Clone, Debug)]
pub struct JournalSink {
    journal: Journal,
}

impl JournalSink {
    /// Writes to this journal.
    #[must_use]
    pub fn new(journal: Journal) -> Self {
        JournalSink { journal }
    }
}

impl Sink for JournalSink {
    fn put(&mut self, records: &[Record]) -> Result<(), SinkError> {
        self.journal.append_all(records).map(drop).map_err(SinkError::new)
    }
}
