//! Records between two attempts by workers, which keep the turn of their keys: how they reach the
//! thread that waits with them.

use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use keylane::Turn;

use crate::key::RecordKey;
use crate::worker::PendingRecord;

use super::dispatched_record::DispatchedRecord;

/// Sends records to the thread that waits with them.
#[derive(Debug)]
pub(super) struct WorkerRetries(Sender<RetryMessage>);

/// Message to the waiting thread.
#[derive(Debug)]
pub(super) enum RetryMessage {
    Wait(Box<WaitingAttempt>),
    /// Starts have stopped: the waiting records are not run.
    Stopped,
    /// No further record will come.
    End,
}

/// Record that waits for its next attempt.
#[derive(Debug)]
pub(super) struct WaitingAttempt {
    pub(super) due: Instant,
    pub(super) ticket: DispatchedRecord,
    pub(super) key: RecordKey,
    pub(super) turn: Option<Turn>,
}

impl WorkerRetries {
    /// Returns the sender, and the receiver for the waiting thread.
    pub(super) fn new() -> (Self, Receiver<RetryMessage>) {
        let (sender, receiver) = mpsc::channel();
        (WorkerRetries(sender), receiver)
    }

    /// Gives a record to a worker again after a wait.
    pub(super) fn retry(&self, record: PendingRecord<DispatchedRecord>, wait: Duration) {
        let (ticket, key, turn) = record.into_parts();
        let now = Instant::now();
        let due = now.checked_add(wait).unwrap_or_else(|| now + Duration::from_secs(1 << 30));
        self.send(RetryMessage::Wait(Box::new(WaitingAttempt { due, ticket, key, turn })));
    }

    /// Gives up the waiting records, because starts have stopped.
    pub(super) fn stopped(&self) {
        self.send(RetryMessage::Stopped);
    }

    /// Ends the thread.
    pub(super) fn end(&self) {
        self.send(RetryMessage::End);
    }

    fn send(&self, message: RetryMessage) {
        // Without a thread there is one attempt, and no record comes.
        let _ = self.0.send(message);
    }
}

impl Ord for WaitingAttempt {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let by = |attempt: &Self| (attempt.due, attempt.ticket.place.number);
        by(self).cmp(&by(other))
    }
}

impl PartialOrd for WaitingAttempt {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for WaitingAttempt {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for WaitingAttempt {}
