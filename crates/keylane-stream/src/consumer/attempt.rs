//! Attempts: what a handler receives for a record, and the acknowledgement that it owes.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use super::assignment::RunningAttempt;
use super::cancellation::{CancelHook, Cancellation};
use super::failure::AttemptFailure;
use super::in_flight::{InFlight, RecordContext};
use super::shared::ConsumerShared;
use super::worker_event::CompletionKind;
use crate::{Header, Partition, Position, Record};

/// One attempt at a record: the argument of a handler.
///
/// A clone is the same attempt. The record is freed with the last clone.
#[derive(Clone)]
pub struct Attempt {
    context: Arc<RecordContext>,
    number: u32,
}

/// Acknowledgement of an attempt.
///
/// The record's key stays occupied until the acknowledgement is given, on any thread. Dropping it
/// without an answer [fails](AttemptFailure::Abandoned) the attempt.
#[must_use = "dropping it fails the attempt"]
pub struct Ack(Option<AckState>);

/// Data that is consumed by the answer.
struct AckState {
    shared: Arc<ConsumerShared>,
    in_flight: InFlight,
    running: RunningAttempt,
}

impl Attempt {
    /// Returns the current attempt at a record.
    pub(super) fn of(in_flight: &InFlight) -> Self {
        Attempt { context: in_flight.context.clone(), number: in_flight.attempts.current() }
    }

    /// The record to handle.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.context.delivered.record
    }

    /// The record's own key, even if the consumer orders by something else.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.record().key.as_deref()
    }

    /// The payload; empty for a tombstone.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.record().payload()
    }

    /// Whether the record has no payload. A tombstone deletes the value of its key.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.record().payload.is_none()
    }

    /// Time at which the record was written.
    #[must_use]
    pub fn written(&self) -> SystemTime {
        self.context.delivered.written
    }

    /// The record's partition.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.context.assignment.partition
    }

    /// Position of the record in its partition. Partition and position identify the record
    /// permanently: store them beside an effect to detect repetitions.
    #[must_use]
    pub fn position(&self) -> Position {
        self.context.delivered.position
    }

    /// Partition and position as headers for output: `keylane-stream`, `keylane-partition` and
    /// `keylane-position`, as text. Consumers of the output can detect repetitions by them.
    #[must_use]
    pub fn origin(&self) -> Vec<Header> {
        let partition = self.partition();
        [
            ("keylane-stream", partition.stream().to_owned()),
            ("keylane-partition", partition.number().to_string()),
            ("keylane-position", self.position().to_string()),
        ]
        .map(|(name, value)| (name.to_owned(), Some(value.into_bytes())))
        .into()
    }

    /// Number of this attempt in this process, counted from 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Epoch of the partition's assignment. It is higher than the epochs of all earlier assignments
    /// of this consumer.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.context.assignment.epoch
    }

    /// Registers a hook that ends this attempt early, until the returned value is dropped.
    ///
    /// The hook is called with [`Cancellation::Requested`] when the time that a revocation or a
    /// shutdown gives the attempt is nearly over, and with [`Cancellation::Forced`] when it is over,
    /// or at once if other members have the partition already. The partition is released only after
    /// the hook is dropped, or a few seconds after the forced end. A failure of a cancelled attempt
    /// does not count: its record is left to the next owner of the partition.
    ///
    /// The hook is called on any thread, must return quickly, and can be called once more while it
    /// is being removed.
    pub fn on_cancel(&self, hook: impl Fn(Cancellation) + Send + Sync + 'static) -> CancelHook {
        let hooks = &self.context.assignment.cancel_hooks;
        hooks.register(self.context.clone(), Box::new(hook))
    }

    /// Whether the attempt was cancelled by a [hook](Self::on_cancel) of its own.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.context.is_cancelled()
    }

    /// Whether the answer of this attempt still counts. If not, the partition was released or the
    /// consumer has stopped, and the handler can return early.
    #[must_use]
    pub fn is_current(&self) -> bool {
        !self.context.assignment.is_fenced()
    }
}

impl Ack {
    pub(super) fn new(
        shared: Arc<ConsumerShared>,
        in_flight: InFlight,
        running: RunningAttempt,
    ) -> Self {
        Ack(Some(AckState { shared, in_flight, running }))
    }

    /// Marks the record as handled. It is not handled again once this is committed.
    pub fn done(self) {
        self.answer(Ok(()));
    }

    /// Fails the attempt.
    pub fn failed(self, why: impl Into<AttemptFailure>) {
        self.answer(Err(why.into()));
    }

    /// Whether the answer still counts.
    pub(super) fn is_current(&self) -> bool {
        self.0.as_ref().is_some_and(|owed| !owed.in_flight.context.assignment.is_fenced())
    }

    /// Marks the record as handled, with its output in the open transaction or acknowledged by the
    /// sink.
    pub(super) fn produced(mut self) {
        if let Some(AckState { shared, in_flight, running }) = self.0.take() {
            shared.complete(in_flight, running, CompletionKind::Produced);
        }
    }

    /// Ends the attempt without an answer: its partition was released, or the consumer has stopped.
    pub(super) fn withdraw(mut self) {
        if let Some(AckState { shared, in_flight, running }) = self.0.take() {
            running.end(&shared.mailbox);
            drop(in_flight);
        }
    }

    /// Ends the attempt without a result. The record gets another attempt at once, and this one is
    /// not counted.
    pub fn restart(mut self) {
        if let Some(AckState { shared, in_flight, running }) = self.0.take() {
            shared.timer.schedule(shared.outside.now(), in_flight);
            running.end(&shared.mailbox);
        }
    }

    /// Ends the attempt with `result`.
    pub fn answer(mut self, result: Result<(), AttemptFailure>) {
        self.settle(result);
    }

    fn settle(&mut self, result: Result<(), AttemptFailure>) {
        if let Some(AckState { shared, in_flight, running }) = self.0.take() {
            shared.answer(in_flight, running, result);
        }
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        let why = if std::thread::panicking() {
            AttemptFailure::Panicked("before the attempt was acknowledged".to_owned())
        } else {
            AttemptFailure::Abandoned
        };
        self.settle(Err(why));
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt")
            .field("partition", self.partition())
            .field("position", &self.position())
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Ack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ack").finish_non_exhaustive()
    }
}
