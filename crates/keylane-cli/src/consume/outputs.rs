//! What comes of a record, as a record for the output.

use std::sync::Arc;

use keylane_stream::Record;
use keylane_stream::consumer::Attempt;

use super::keys::Keys;

/// Makes records of answers.
#[derive(Debug)]
pub(super) struct Outputs {
    keys: Arc<Keys>,
}

impl Outputs {
    pub(super) fn new(keys: Arc<Keys>) -> Self {
        Outputs { keys }
    }

    /// The answer with the key that order is kept for, and the name of what it was made of; none of an
    /// empty one. The line end that programs print at the end is not a part of it.
    pub(super) fn of(&self, attempt: &Attempt, mut answer: Vec<u8>) -> Vec<Record> {
        if answer.last() == Some(&b'\n') {
            answer.pop();
        }
        if answer.is_empty() {
            return Vec::new();
        }
        let key = self.keys.key_of(attempt.record());
        vec![Record { key, payload: Some(answer), headers: attempt.origin() }]
    }
}
