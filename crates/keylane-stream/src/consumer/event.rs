use std::fmt;
use std::sync::Arc;

use super::failure::Failure;
use crate::source::CommitError;
use crate::{Partition, Position};

/// Something that a person may want to know of a running consumer.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConsumerEvent {
    /// From the source.
    Source(String),
    /// A partition is ours from now on.
    Assigned(Partition),
    /// A partition is no longer ours.
    Released {
        /// Which.
        partition: Partition,
        /// Completion many attempts were not awaited. What they do may be done again by others.
        running: usize,
    },
    /// An attempt has failed.
    Failed {
        /// The record's partition.
        partition: Partition,
        /// Its place there.
        position: Position,
        /// The attempt's number; 0 if the record was reject for any.
        attempt: u32,
        /// StopReason.
        failure: Arc<Failure>,
        /// What follows.
        then: AfterFailure,
    },
    /// Progress was not stored.
    NotCommitted {
        /// Whose.
        partition: Partition,
        /// StopReason.
        error: CommitError,
    },
}

/// What follows a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterFailure {
    /// Another one, later.
    Retry,
    /// The record counts as done.
    Skip,
    /// The record goes to the dead letters.
    DeadLetter,
    /// The dead letters did not take it; that is tried again.
    DeadLetterRefused(String),
    /// Its key stops.
    StopKey,
    /// The consumer stops.
    Stop,
}

impl fmt::Display for ConsumerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConsumerEvent::Source(text) => f.write_str(text),
            ConsumerEvent::Assigned(partition) => write!(f, "{partition} is ours"),
            ConsumerEvent::Released { partition, running: 0 } => {
                write!(f, "{partition} is given up")
            }
            ConsumerEvent::Released { partition, running } => write!(
                f,
                "{partition} is given up while {running} attempts run, whose records come again"
            ),
            ConsumerEvent::Failed { partition, position, attempt, failure, then } => {
                write!(f, "{partition} at {position}, attempt {attempt}: {failure}; {then}")
            }
            ConsumerEvent::NotCommitted { partition, error } => {
                write!(f, "the progress of {partition} is not stored: {error}")
            }
        }
    }
}

impl fmt::Display for AfterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AfterFailure::Retry => f.write_str("it is tried again"),
            AfterFailure::Skip => f.write_str("it is skipped"),
            AfterFailure::DeadLetter => f.write_str("it goes to the dead letters"),
            AfterFailure::DeadLetterRefused(why) => {
                write!(f, "the dead letters did not take it: {why}")
            }
            AfterFailure::StopKey => f.write_str("its key stops"),
            AfterFailure::Stop => f.write_str("everything stops"),
        }
    }
}
