use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use keylane::TurnKeeper;

use super::assignment::{Assignment, RunningAttempt};
use super::failure::Failure;
use super::key_guard::KeyGuard;
use super::shared::ConsumerShared;
use super::worker_event::Completion;
use crate::retry::Attempts;
use crate::{Delivered, Header, Partition, Position, Record};

/// A record on its way through the pool.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) context: Arc<RecordContext>,
    pub(super) attempts: Attempts,
    /// The turn of its key, where it is kept beyond the handler's call by a worker.
    pub(super) turn: Option<KeyGuard>,
}

/// What all attempts at a record have in common.
#[derive(Debug)]
pub(super) struct RecordContext {
    pub(super) assignment: Arc<Assignment>,
    pub(super) delivered: Delivered,
    /// Where the owner has its entry.
    pub(super) index: usize,
}

/// One attempt at a record: what a handler gets.
///
/// A clone is the same attempt. The record lives as long as the last of them.
#[derive(Clone)]
pub struct Attempt {
    context: Arc<RecordContext>,
    number: u32,
}

/// The answer that is owed for an attempt.
///
/// The record's key is taken until it is given, on whatever thread. Dropped without an answer, the
/// attempt has [failed](Failure::Abandoned).
#[must_use = "dropping it fails the attempt"]
pub struct Ack(Option<AckState>);

/// What is needed for an answer.
struct AckState {
    shared: Arc<ConsumerShared>,
    in_flight: InFlight,
    running: RunningAttempt,
}

impl InFlight {
    pub(super) fn new(assignment: Arc<Assignment>, delivered: Delivered, index: usize) -> Self {
        let context = Arc::new(RecordContext { assignment, delivered, index });
        InFlight { context, attempts: Attempts::default(), turn: None }
    }

    /// Keeps the turn that it was called with, unless it is a later attempt, which has come with the turn of
    /// its key: that call's own is of a lane that nobody else is in.
    pub(super) fn keep(&mut self, turn: TurnKeeper<'_>) {
        self.turn.get_or_insert_with(|| KeyGuard::Pool(turn.keep()));
    }

    pub(super) fn begin(&self) -> Option<RunningAttempt> {
        self.context.assignment.begin()
    }

    pub(super) fn attempt(&self) -> Attempt {
        Attempt { context: self.context.clone(), number: self.attempts.current() }
    }
}

impl Attempt {
    /// What is to be handled.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.context.delivered.record
    }

    /// The record's own key, whatever order is kept for.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        self.record().key.as_deref()
    }

    /// What the record is about; empty if it is a tombstone.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.record().payload()
    }

    /// Whether the record has no payload, not even an empty one: it deletes what its key had.
    #[must_use]
    pub fn is_tombstone(&self) -> bool {
        self.record().payload.is_none()
    }

    /// When the record was written.
    #[must_use]
    pub fn written(&self) -> SystemTime {
        self.context.delivered.written
    }

    /// The record's partition.
    #[must_use]
    pub fn partition(&self) -> &Partition {
        &self.context.assignment.partition
    }

    /// The record's index in its partition. With the partition, it names the record for ever: who
    /// stores it beside an effect notices a repetition.
    #[must_use]
    pub fn position(&self) -> Position {
        self.context.delivered.position
    }

    /// The record's name for ever, as headers for what is made of it: `keylane-stream`,
    /// `keylane-partition` and `keylane-position`, as text. Who reads that can notice a repetition by them.
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

    /// Which attempt of this process it is; the first is 1.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Which stretch of owning partitions it belongs to: higher than all that this consumer had
    /// before.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.context.assignment.epoch
    }

    /// Whether its answer still counts. If not, the partition is somebody else's, or the consumer has
    /// ended: there is no use in going on.
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

    /// The record is handled. It is not handled again, once that is committed.
    pub fn done(self) {
        self.answer(Ok(()));
    }

    /// The attempt has failed.
    pub fn failed(self, why: impl Into<Failure>) {
        self.answer(Err(why.into()));
    }

    /// Whether the answer still counts.
    pub(super) fn is_current(&self) -> bool {
        self.0.as_ref().is_some_and(|owed| !owed.in_flight.context.assignment.is_fenced())
    }

    /// The record is handled, and what was made of it is where it belongs.
    pub(super) fn produced(mut self) {
        if let Some(AckState { shared, in_flight, running }) = self.0.take() {
            shared.ended(in_flight, running, Completion::Produced);
        }
    }

    /// What came of the attempt matters to nobody, for its partition was given up, or all is over.
    pub(super) fn withdraw(mut self) {
        if let Some(AckState { shared, in_flight, running }) = self.0.take() {
            running.end(&shared.mailbox);
            drop(in_flight);
        }
    }

    /// What came of the attempt.
    pub fn answer(mut self, result: Result<(), Failure>) {
        self.settle(result);
    }

    fn settle(&mut self, result: Result<(), Failure>) {
        if let Some(AckState { shared, in_flight, running }) = self.0.take() {
            shared.answer(in_flight, running, result);
        }
    }
}

impl Drop for Ack {
    fn drop(&mut self) {
        let why = if std::thread::panicking() {
            Failure::Panicked("before it answered".to_owned())
        } else {
            Failure::Abandoned
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
