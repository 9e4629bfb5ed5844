//! A running consumer: status, shutdown, and the report of its end.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::failure::AttemptFailure;
use super::shared::ConsumerShared;
use super::status::{ConsumerCounts, ConsumerStatus, PendingRecord};
use super::target::{ControlError, Target};
use super::worker_event::{OperatorCommand, StopCancellation, WorkerEvent};
use crate::source::SourceError;
use crate::{Partition, Position};

/// A running consumer: handles the records of a source in parallel across keys, in order within a
/// key, without loss.
///
/// The [module](super) documents the guarantees. Dropping it stops it like [`stop`](Self::stop)
/// with a timeout of zero, and waits for the end.
#[must_use = "dropping a consumer stops it"]
pub struct Consumer {
    handle: ConsumerHandle,
    /// Coordinator thread, until it is joined.
    coordinator: Option<JoinHandle<ShutdownReport>>,
}

/// Handle for the status, the shutdown and the operator's pauses of a consumer, usable from any thread.
/// Cheap to clone.
#[derive(Clone)]
pub struct ConsumerHandle(Weak<ConsumerShared>);

/// Report of a consumer's end.
#[derive(Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Reason of the end.
    pub reason: StopReason,
    /// Counts over the consumer's life.
    pub counts: ConsumerCounts,
    /// Number of attempts that were still running at the deadline. Their records are incomplete and
    /// will be delivered again.
    pub abandoned: usize,
    /// Keys that had stopped.
    pub stopped: Vec<StoppedKey>,
    /// Partitions whose last progress was not stored. Their records since the last stored progress
    /// will be delivered again.
    pub uncommitted: Vec<Partition>,
}

/// A stopped key: the record that stopped it. Neither this record nor those behind it are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedKey {
    /// Partition of the record.
    pub partition: Partition,
    /// The record and its failure.
    pub record: PendingRecord,
}

/// Reason of a consumer's end.
#[derive(Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// A handle or the owner has stopped it.
    Asked,
    /// All partitions are [exhausted](crate::source::SourceEvent::Exhausted), and no record can
    /// make progress any more.
    Exhausted,
    /// A record's last attempt has failed, and the policy stops the consumer.
    Failed {
        /// Partition of the record.
        partition: Partition,
        /// Position of the record, which is incomplete.
        position: Position,
        /// Cause.
        failure: Arc<AttemptFailure>,
    },
    /// The source has failed.
    Source(SourceError),
    /// The order is over all partitions, and another member of the group has some of them, or gets some.
    /// The text says which.
    NotAlone(String),
}

/// Error of a consumer that did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A rule uses dead letters, and no destination is set.
    #[error(
        "a rule sends records to dead letters, and no dead-letter sink is set; add one with \
         `Builder::dead_letters`"
    )]
    NoDeadLetters,
    /// Settings of the order contradict each other.
    #[error("{0}; leave one of them out")]
    Lanes(&'static str),
    /// The pool has refused its settings.
    #[error(transparent)]
    Pool(#[from] keylane::BuildError),
    /// The operating system did not start a thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

impl Consumer {
    pub(super) fn new(
        shared: Arc<ConsumerShared>,
        coordinator: JoinHandle<ShutdownReport>,
    ) -> Self {
        Consumer { handle: ConsumerHandle(Arc::downgrade(&shared)), coordinator: Some(coordinator) }
    }

    /// Waits until the consumer ends by itself, or is stopped by a [`ConsumerHandle`].
    ///
    /// # Panics
    /// If the source has panicked.
    pub fn wait(mut self) -> ShutdownReport {
        self.join()
    }

    /// Stops the consumer: running attempts have `within` to end, waiting records are left for the
    /// next start, and progress is committed.
    ///
    /// Returns after `within` and a few seconds for the last commit at the latest.
    ///
    /// # Panics
    /// If the source has panicked.
    pub fn stop(mut self, within: Duration) -> ShutdownReport {
        self.handle.stop(within);
        self.join()
    }

    /// Returns a handle for status and shutdown.
    #[must_use]
    pub fn handle(&self) -> ConsumerHandle {
        self.handle.clone()
    }

    /// Returns the status; see [`ConsumerHandle::status`].
    #[must_use]
    pub fn status(&self) -> Option<ConsumerStatus> {
        self.handle.status(Duration::from_secs(1))
    }

    /// Returns whether the consumer has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.coordinator.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) -> ShutdownReport {
        let coordinator = self.coordinator.take().expect("the coordinator is joined once");
        coordinator.join().unwrap_or_else(|payload| resume_unwind(payload))
    }
}

impl ConsumerHandle {
    /// Stops the consumer like [`Consumer::stop`], without waiting. A shutdown in progress can only
    /// become faster.
    pub fn stop(&self, within: Duration) {
        if let Some(shared) = self.0.upgrade() {
            let cancellation = StopCancellation::BeforeDeadline;
            shared.mailbox.push_and_wake(WorkerEvent::Stop { within, cancellation });
        }
    }

    /// Stops the consumer like [`stop`](Self::stop), and [cancels](super::Attempt::on_cancel) the
    /// running attempts at once.
    pub fn cancel(&self, within: Duration) {
        if let Some(shared) = self.0.upgrade() {
            let cancellation = StopCancellation::Now;
            shared.mailbox.push_and_wake(WorkerEvent::Stop { within, cancellation });
        }
    }

    /// Returns the status, or `None` if the consumer has ended or does not answer within this time
    /// because its source blocks.
    #[must_use]
    pub fn status(&self, within: Duration) -> Option<ConsumerStatus> {
        let (reply, answer) = mpsc::channel();
        self.0.upgrade()?.mailbox.push_and_wake(WorkerEvent::Status(reply));
        answer.recv_timeout(within).ok()
    }

    /// Pauses a topic, a partition or a key. Returns whether it was not paused before.
    ///
    /// - When this has returned, no attempt at a record of the target starts until it is
    ///   [resumed](Self::resume), retries included. Attempts that have begun go on: those that run,
    ///   and records that were handed to a batch of different keys, an output or a dead letter. A
    ///   partition that is paused runs none when its [`running`](super::PartitionStatus::running) is 0.
    /// - Records of other keys are handled in parallel as before. The order does not change: a record
    ///   with several keys waits if one of them is paused, and so do the later records of its other
    ///   keys.
    /// - No record of a paused topic or partition is admitted, and its source is paused. Records of a
    ///   paused key are admitted and stay in flight, so that the partition's
    ///   [limits](super::ConsumerBuilder::max_in_flight) bound them. When they fill the limits or the
    ///   map of completed positions, the partition admits no record of other keys either, and
    ///   [`paused_by`](super::PartitionStatus::paused_by) says so.
    /// - Progress is committed as usual. A partition without progress because of a pause counts as
    ///   healthy.
    /// - A pause outlasts rebalances: a partition that is assigned again is still paused. It ends with
    ///   the consumer. A pause does not delay a shutdown or a revocation: paused records are left for
    ///   the next start or the next owner. A consumer whose source is exhausted does not end before its
    ///   paused records are complete.
    /// - A [rate](super::ConsumerBuilder::rate) counts a record when it gets its turn, so records that
    ///   got theirs during the pause start at once when it ends.
    ///
    /// Waits at most `within` for the consumer, which answers unless its source blocks.
    ///
    /// # Errors
    /// If the consumer has ended, does not answer in time, or too many targets are paused.
    pub fn pause(&self, target: &Target, within: Duration) -> Result<bool, ControlError> {
        self.ask(within, |reply| OperatorCommand::Pause(target.clone(), reply))?
    }

    /// Resumes a target as it was [paused](Self::pause), and returns whether it was. A record that
    /// belongs to another paused target goes on waiting. The others go on in order.
    ///
    /// # Errors
    /// If the consumer has ended, or does not answer in time.
    pub fn resume(&self, target: &Target, within: Duration) -> Result<bool, ControlError> {
        self.ask(within, |reply| OperatorCommand::Resume(target.clone(), reply))
    }

    /// Tries records of a target again at once that wait for their next attempt, or have stopped their
    /// keys. Returns their number.
    ///
    /// - A record that waits for its next attempt does not wait for the rest of its time. The attempt
    ///   counts as any other.
    /// - A record that has [stopped](crate::retry::OnExhausted::StopKey) its key gets one more
    ///   attempt, whatever its number is. If it succeeds, the key goes on in order; if not, the policy
    ///   decides again.
    /// - A paused record gets its attempt after its [resume](Self::resume).
    /// - Not tried again: records that were rejected without an attempt, as those without a key, and
    ///   those whose dead letters are being written.
    ///
    /// # Errors
    /// If the consumer has ended, or does not answer in time.
    pub fn retry(&self, target: &Target, within: Duration) -> Result<usize, ControlError> {
        self.ask(within, |reply| OperatorCommand::Retry(target.clone(), reply))
    }

    /// Sends a command to the coordinator, and waits for its result.
    fn ask<T>(
        &self,
        within: Duration,
        command: impl FnOnce(mpsc::Sender<T>) -> OperatorCommand,
    ) -> Result<T, ControlError> {
        let (reply, answer) = mpsc::channel();
        let shared = self.0.upgrade().ok_or(ControlError::Ended)?;
        shared.mailbox.push_and_wake(WorkerEvent::Operate(Box::new(command(reply))));
        drop(shared);
        answer.recv_timeout(within).map_err(|error| match error {
            RecvTimeoutError::Timeout => ControlError::NoAnswer,
            RecvTimeoutError::Disconnected => ControlError::Ended,
        })
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            self.handle.stop(Duration::ZERO);
            // The report of a dropped consumer is not needed.
            let _ = coordinator.join();
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Asked => f.write_str("stopped on request"),
            StopReason::Exhausted => f.write_str("all records are processed"),
            StopReason::Failed { partition, position, failure } => {
                write!(f, "the record at {position} of {partition} failed: {failure}")
            }
            StopReason::NotAlone(missing) => write!(
                f,
                "several keys per record, shared keys and barriers need all partitions, and {missing}; \
                 run one member of the group"
            ),
            StopReason::Source(error) => {
                let cause = std::error::Error::source(error);
                write!(f, "{error}")?;
                cause.map_or(Ok(()), |cause| write!(f, ": {cause}"))
            }
        }
    }
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("ended", &self.is_finished()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ConsumerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumerHandle").finish_non_exhaustive()
    }
}
