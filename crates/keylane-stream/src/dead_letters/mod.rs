//! Where records go whose last attempt has failed.
//!
//! A record is done when its letter is acknowledged, and not before: while nobody takes the letter, it is
//! tried again, and the record's key waits. A process that dies in between writes the letter twice.

mod file;
mod journal;

use std::error::Error;
use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

pub use self::file::FileDeadLetters;
pub use self::journal::JournalDeadLetters;
use crate::{Partition, Position, Record};

/// A place for dead letters. It belongs to one thread.
pub trait DeadLetters: Send {
    /// Writes letters. When it returns well, all of them are safe, as safe as that place is.
    ///
    /// # Errors
    /// If some were not written, or perhaps not. They come again: first one by one, then after a wait.
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError>;
}

impl<D: DeadLetters + ?Sized> DeadLetters for Box<D> {
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError> {
        (**self).write(letters)
    }
}

/// A record whose last attempt has failed, and how that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Where it comes from.
    pub partition: Partition,
    /// Its place there.
    pub position: Position,
    /// When it was written there.
    pub written: SystemTime,
    /// What it was.
    pub record: Record,
    /// What the last attempt failed of.
    pub failure: String,
    /// How many attempts there were. None if it was unfit for any.
    pub attempts: u32,
    /// When the last one failed.
    pub failed_at: SystemTime,
}

/// Why letters were not written.
#[derive(Debug)]
pub struct DeadLetterError(Box<dyn Error + Send + Sync>);

impl DeadLetter {
    /// How it died, as names and values for the headers of a record: what
    /// [`JournalDeadLetters`] adds.
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

/// Since 1970; what is before counts as that.
fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl DeadLetterError {
    /// For this reason.
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
