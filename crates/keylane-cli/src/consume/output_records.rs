//! Results of records as output records.

use std::sync::Arc;

use keylane_stream::Record;
use keylane_stream::consumer::Attempt;

use super::keys::KeyExtractor;

/// Makes records of answers.
#[derive(Debug)]
pub(super) struct OutputRecordBuilder {
    keys: Arc<KeyExtractor>,
}

impl OutputRecordBuilder {
    pub(super) fn new(keys: Arc<KeyExtractor>) -> Self {
        OutputRecordBuilder { keys }
    }

    /// Output record of a response: it has the ordering key, and the name of its source record;
    /// none for an empty response. A final line end, which programs print, is removed.
    pub(super) fn of(&self, attempt: &Attempt, mut answer: Vec<u8>) -> Vec<Record> {
        if answer.last() == Some(&b'\n') {
            answer.pop();
        }
        if answer.is_empty() {
            return Vec::new();
        }
        let key = self.keys.key_of(attempt.record()).map(Into::into);
        vec![Record { key, payload: Some(answer.into()), headers: attempt.origin() }]
    }
}
