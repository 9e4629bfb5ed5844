//! Events that workers and handles send to the coordinator.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::failure::AttemptFailure;
use super::in_flight::{InFlight, RecordContext};
use super::status::ConsumerStatus;
use super::target::{ControlError, Target};
use crate::Position;

/// An event for the coordinator.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// A record is complete; its entry is at `index`.
    Ended { slot: usize, epoch: u64, position: Position, index: usize, completion: CompletionKind },
    /// An attempt has failed, and the record is not complete.
    Failed(Box<FailedAttempt>),
    /// A cancelled attempt has ended without success, and its record is not complete.
    Cancelled,
    /// Stop the consumer, with this time for running attempts.
    Stop { within: Duration, cancellation: StopCancellation },
    /// Report the status.
    Status(mpsc::Sender<ConsumerStatus>),
    /// Carry out a command of the operator.
    Operate(Box<OperatorCommand>),
}

/// A command of the operator, with the receiver of its result.
#[derive(Debug)]
pub(super) enum OperatorCommand {
    /// Pause a target. The result is whether it was not paused before.
    Pause(Target, mpsc::Sender<Result<bool, ControlError>>),
    /// Resume a target. The result is whether it was paused.
    Resume(Target, mpsc::Sender<bool>),
    /// Try the records of a target again that wait for that. The result is their number.
    Retry(Target, mpsc::Sender<usize>),
}

/// Time at which a stop cancels the running attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StopCancellation {
    /// Shortly before the time for them is over.
    BeforeDeadline,
    /// At once.
    Now,
}

/// How a record was completed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CompletionKind {
    Handled,
    /// Handled, and its output is written or in the open transaction.
    Produced,
    Skipped,
    DeadLettered,
    /// A later record of its key has replaced it before it began.
    Replaced,
}

/// A failed attempt.
#[derive(Debug)]
pub(super) struct FailedAttempt {
    pub(super) context: Arc<RecordContext>,
    /// Number of the attempt; 0 if the record was rejected without one.
    pub(super) attempt: u32,
    pub(super) failure: Arc<AttemptFailure>,
    pub(super) then: FailureAction,
}

/// Action after a failed attempt.
#[derive(Debug)]
pub(super) enum FailureAction {
    /// Retry at this time.
    Retry(Instant),
    /// Skip the record; its completion follows as an event.
    Skip,
    /// Write a dead letter.
    DeadLetter,
    /// The dead letter was refused, for this reason; the write is retried.
    DeadLetterRefused(String),
    /// Stop the key. The coordinator keeps the record with its guard.
    StopKey(Option<Box<InFlight>>),
    /// Stop the consumer. The coordinator keeps the record with its guard until no attempt can start.
    StopAll(Option<Box<InFlight>>),
}
