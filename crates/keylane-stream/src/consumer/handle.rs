//! A running consumer: status, shutdown, and the report of its end.

use std::fmt;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::failure::AttemptFailure;
use super::shared::ConsumerShared;
use super::status::{ConsumerCounts, ConsumerStatus, PendingRecord};
use super::worker_event::{StopCancellation, WorkerEvent};
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

/// Handle for the status and the shutdown of a consumer, usable from any thread. Cheap to clone.
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
