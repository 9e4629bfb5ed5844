//! Events of a consumer for its operator, and their texts.

use std::fmt;
use std::sync::Arc;

use super::failure::AttemptFailure;
use super::target::Target;
use crate::source::CommitError;
use crate::{Partition, Position};

/// An event of a running consumer that an operator may want to see.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ConsumerEvent {
    /// Notice from the source.
    Source(String),
    /// A partition was assigned to this consumer.
    Assigned(Partition),
    /// A partition was released.
    Released {
        /// The partition.
        partition: Partition,
        /// Number of attempts still running. Their records may be handled again by another member.
        running: usize,
    },
    /// Running attempts of a partition are being cancelled, because their time is nearly over or
    /// other members have the partition.
    Cancelled {
        /// The partition.
        partition: Partition,
        /// Number of cancelled attempts.
        attempts: usize,
    },
    /// An attempt has failed.
    Failed {
        /// Partition of the record.
        partition: Partition,
        /// Position of the record.
        position: Position,
        /// Number of the attempt; 0 if the record was rejected without an attempt.
        attempt: u32,
        /// Cause.
        failure: Arc<AttemptFailure>,
        /// Action that follows.
        then: AfterFailure,
    },
    /// A commit has failed.
    NotCommitted {
        /// Partition whose progress was not committed.
        partition: Partition,
        /// Cause.
        error: CommitError,
    },
    /// The operator has paused a target: no attempt at its records starts.
    Paused(Target),
    /// The operator has resumed a target.
    Resumed(Target),
    /// Records of a target are tried again on demand of the operator.
    Retried {
        /// The target.
        target: Target,
        /// Number of records that waited for their next attempt or had stopped their keys.
        records: usize,
    },
    /// All other records are complete, and no further one will come. The consumer does not end
    /// before the records of paused targets are complete.
    WaitsForResume,
}

/// Action after a failed attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterFailure {
    /// Another attempt, later.
    Retry,
    /// The record is skipped and counts as complete.
    Skip,
    /// The record goes to the dead letters.
    DeadLetter,
    /// The dead letter was refused, for this reason; the write is retried.
    DeadLetterRefused(String),
    /// The record's key stops.
    StopKey,
    /// The consumer stops.
    Stop,
}

impl fmt::Display for ConsumerEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConsumerEvent::Source(text) => f.write_str(text),
            ConsumerEvent::Assigned(partition) => write!(f, "{partition} assigned"),
            ConsumerEvent::Released { partition, running: 0 } => {
                write!(f, "{partition} released")
            }
            ConsumerEvent::Released { partition, running } => write!(
                f,
                "{partition} released while {running} attempts are running; their records \
                 are handled again"
            ),
            ConsumerEvent::Cancelled { partition, attempts } => write!(
                f,
                "{attempts} running attempts of {partition} are being ended; their records are \
                 handled again"
            ),
            ConsumerEvent::Failed { partition, position, attempt, failure, then } => {
                write!(f, "{partition} at {position}, attempt {attempt}: {failure}; {then}")
            }
            ConsumerEvent::NotCommitted { partition, error } => {
                write!(f, "the progress of {partition} was not committed: {error}")
            }
            ConsumerEvent::Paused(target) => {
                write!(f, "{target} is paused: none of its records starts before it is resumed")
            }
            ConsumerEvent::Resumed(target) => write!(f, "{target} is resumed"),
            ConsumerEvent::Retried { target, records } => {
                write!(f, "{target}: {records} records are tried again at once")
            }
            ConsumerEvent::WaitsForResume => f.write_str(
                "all other records are processed, and the consumer does not end before the paused \
                 ones are; resume them, or stop the consumer",
            ),
        }
    }
}

impl fmt::Display for AfterFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AfterFailure::Retry => f.write_str("retrying"),
            AfterFailure::Skip => f.write_str("skipped"),
            AfterFailure::DeadLetter => f.write_str("sent to dead letters"),
            AfterFailure::DeadLetterRefused(why) => {
                write!(f, "dead letter refused: {why}; retrying")
            }
            AfterFailure::StopKey => f.write_str("its key is stopped"),
            AfterFailure::Stop => f.write_str("the consumer stops"),
        }
    }
}
