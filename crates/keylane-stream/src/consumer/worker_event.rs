use std::sync::Arc;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use super::attempt::RecordContext;
use super::failure::Failure;
use super::key_guard::KeyGuard;
use super::status::ConsumerStatus;
use crate::Position;

/// What the owner is told.
#[derive(Debug)]
pub(super) enum WorkerEvent {
    /// A record is done with, whose entry is at this index.
    Ended { slot: usize, epoch: u64, position: Position, index: usize, completion: Completion },
    /// An attempt has failed, and the record is not done with.
    Failed(Box<FailedAttempt>),
    /// The consumer is to end, and what runs has so long for it.
    Stop(Duration),
    /// Somebody wants to know completion things stand.
    Status(mpsc::Sender<ConsumerStatus>),
}

/// Completion a record was done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Completion {
    Handled,
    /// The same, and what was made of it is where it belongs.
    Produced,
    Skipped,
    DeadLettered,
}

/// An attempt that failed.
#[derive(Debug)]
pub(super) struct FailedAttempt {
    pub(super) context: Arc<RecordContext>,
    /// Its number.
    pub(super) attempt: u32,
    pub(super) failure: Arc<Failure>,
    pub(super) then: FailureAction,
}

/// What follows a failed attempt.
#[derive(Debug)]
pub(super) enum FailureAction {
    /// The next one.
    Retry(Instant),
    /// Nothing: the record is done.
    Skip,
    /// It goes to the dead letters.
    DeadLetter,
    /// The dead letters do not take it yet: why.
    DeadLetterRefused(String),
    /// Its key stops: the turn stays with the owner.
    StopKey(Option<KeyGuard>),
    /// All stops. The turn is kept until nothing can begin.
    StopAll(Option<KeyGuard>),
}
