//! Destinations of records whose last attempt has failed, and a [source](DeadLetterSource) that handles
//! them again.
//!
//! A record is complete when its dead letter is acknowledged. A refused write is retried, and the
//! record's key waits. A process that dies in between writes the letter twice.

mod file;
mod journal;
mod letter_line;
mod letter_source;
mod redriven;
mod torn_lines;

use std::error::Error;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

pub use self::file::FileDeadLetters;
pub use self::journal::JournalDeadLetters;
pub use self::letter_source::DeadLetterSource;
pub use self::torn_lines::RemovedLine;
use crate::{Partition, Position, Record};

/// Destination of dead letters. Used by one thread.
pub trait DeadLetters: Send {
    /// Writes dead letters. On success all of them are durable, as far as the destination is.
    ///
    /// # Errors
    /// If some were not written, or perhaps not. All of them are written again: first one by one,
    /// then after a wait.
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError>;
}

impl<D: DeadLetters + ?Sized> DeadLetters for Box<D> {
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError> {
        (**self).write(letters)
    }
}

/// A record whose last attempt has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Partition of the record.
    pub partition: Partition,
    /// Position of the record.
    pub position: Position,
    /// Time at which the record was written.
    pub written: SystemTime,
    /// The record.
    pub record: Record,
    /// Cause of the last failure.
    pub failure: String,
    /// Number of attempts; 0 if the record was rejected without one.
    pub attempts: u32,
    /// Time of the last failure.
    pub failed_at: SystemTime,
}

/// Error of writing dead letters.
#[derive(Debug)]
pub struct DeadLetterError(Box<dyn Error + Send + Sync>);

impl DeadLetter {
    /// Returns the origin and the failure as header names and values, as [`JournalDeadLetters`]
    /// adds them.
    pub fn headers(&self) -> impl Iterator<Item = (&'static str, String)> {
        [
            ("keylane-stream", self.partition.stream().to_owned()),
            ("keylane-partition", self.partition.number().to_string()),
            ("keylane-position", self.position.to_string()),
            ("keylane-written", millis(self.written).to_string()),
            ("keylane-failed-at", millis(self.failed_at).to_string()),
            ("keylane-attempts", self.attempts.to_string()),
            ("keylane-failure", self.failure.clone()),
        ]
        .into_iter()
    }
}

/// Converts a time to milliseconds since 1970; earlier times to 0.
fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl DeadLetterError {
    /// Creates an error with this cause.
    pub fn new(why: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        DeadLetterError(why.into())
    }
}

impl fmt::Display for DeadLetterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for DeadLetterError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
