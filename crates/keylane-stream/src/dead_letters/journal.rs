//! Dead letters in a journal.

use super::{DeadLetter, DeadLetterError, DeadLetters};
use crate::Record;
use crate::journal::Journal;

/// Dead letters as records of a journal, which can be consumed like any other.
///
/// Each keeps its key, payload and headers, followed by these headers, as text:
///
/// | header | content |
/// |---|---|
/// | `keylane-stream`, `keylane-partition`, `keylane-position` | origin of the record |
/// | `keylane-written`, `keylane-failed-at` | milliseconds since 1970 |
/// | `keylane-attempts`, `keylane-failure` | number of attempts, and cause of the last failure |
#[derive(Clone, Debug)]
pub struct JournalDeadLetters {
    journal: Journal,
}

impl JournalDeadLetters {
    /// Writes to this journal.
    #[must_use]
    pub fn new(journal: Journal) -> Self {
        JournalDeadLetters { journal }
    }
}

impl DeadLetters for JournalDeadLetters {
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError> {
        let records: Vec<_> = letters.iter().map(as_record).collect();
        self.journal.append_all(&records).map(drop).map_err(DeadLetterError::new)
    }
}

fn as_record(letter: &DeadLetter) -> Record {
    let mut record = letter.record.clone();
    let headers = letter.headers().map(|(name, value)| (name.to_owned(), Some(value.into_bytes())));
    record.headers.extend(headers);
    record
}
