use std::fmt;
use std::panic::resume_unwind;
use std::sync::mpsc;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use super::builder::Builder;
use super::failure::Failure;
use super::shared::ConsumerShared;
use super::status::{ConsumerCounts, ConsumerStatus, PendingRecord};
use super::worker_event::WorkerEvent;
use crate::source::{Source, SourceError};
use crate::{Partition, Position};

/// Handles the records of a source: in parallel across keys, in order within one, none lost.
///
/// See the [module](super) for what it promises. Dropped, it stops as by [`stop`](Self::stop) with no
/// time at all, and waits for that.
#[must_use = "dropping a consumer stops it"]
pub struct Consumer {
    handle: ConsumerHandle,
    /// Until it is joined.
    coordinator: Option<JoinHandle<ShutdownReport>>,
}

/// Watches a consumer and can stop it, from anywhere. Cheap to clone.
#[derive(Clone)]
pub struct ConsumerHandle(Weak<ConsumerShared>);

/// Completion a consumer ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// StopReason.
    pub reason: StopReason,
    /// What it has done.
    pub counts: ConsumerCounts,
    /// Completion many attempts ran when it ended and were not awaited: their records are not done, and come
    /// again.
    pub abandoned: usize,
    /// The records with which keys had stopped.
    pub stopped: Vec<StoppedKey>,
}

/// A record with which a key has stopped. It is not done, nor is what is behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoppedKey {
    /// Where it is.
    pub partition: Partition,
    /// Which it is, and why.
    pub record: PendingRecord,
}

/// StopReason a consumer ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum StopReason {
    /// Somebody has asked for it.
    Asked,
    /// All partitions have [ended](crate::source::SourceEvent::Exhausted), and all that could be done is done.
    Exhausted,
    /// A record's last attempt has failed, and the policy says that everything stops.
    Failed {
        /// The record's partition.
        partition: Partition,
        /// Its place there. It is not done.
        position: Position,
        /// What the attempt failed of.
        failure: Arc<Failure>,
    },
    /// The source could not go on.
    Source(SourceError),
}

/// StopReason a consumer was not started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A rule sends records to the dead dead_letter_sink.
    #[error(
        "a rule sends records to dead letters, and no dead-letter sink is set; add one with `Builder::dead_letters`"
    )]
    NoDeadLetters,
    /// The pool was refused.
    #[error(transparent)]
    Pool(#[from] keylane::BuildError),
    /// The operating system gives no thread.
    #[error("cannot start a thread")]
    Thread(#[source] std::io::Error),
}

impl Consumer {
    /// Starts to build a consumer of this source.
    pub fn builder(source: impl Source + 'static) -> Builder {
        Builder::new(Box::new(source))
    }

    pub(super) fn new(
        shared: Arc<ConsumerShared>,
        coordinator: JoinHandle<ShutdownReport>,
    ) -> Self {
        Consumer { handle: ConsumerHandle(Arc::downgrade(&shared)), coordinator: Some(coordinator) }
    }

    /// Waits until it ends by itself, or is stopped by a [`ConsumerHandle`].
    ///
    /// # Panics
    /// If the source has panicked.
    pub fn wait(mut self) -> ShutdownReport {
        self.join()
    }

    /// Stops it: what runs has so long to end, what does not run is left for the next time, and all that
    /// was done is stored.
    ///
    /// Within that time and some seconds for the last commit it has ended, whatever happens.
    ///
    /// # Panics
    /// If the source has panicked.
    pub fn stop(mut self, within: Duration) -> ShutdownReport {
        self.handle.stop(within);
        self.join()
    }

    /// Something to watch and stop it with.
    #[must_use]
    pub fn handle(&self) -> ConsumerHandle {
        self.handle.clone()
    }

    /// Completion it stands.
    #[must_use]
    pub fn status(&self) -> Option<ConsumerStatus> {
        self.handle.status(Duration::from_secs(1))
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.coordinator.as_ref().is_none_or(JoinHandle::is_finished)
    }

    fn join(&mut self) -> ShutdownReport {
        let coordinator = self.coordinator.take().expect("it is joined once");
        coordinator.join().unwrap_or_else(|payload| resume_unwind(payload))
    }
}

impl ConsumerHandle {
    /// Asks it to end; see [`Consumer::stop`]. If it is about to, it has no longer than so.
    pub fn stop(&self, within: Duration) {
        if let Some(shared) = self.0.upgrade() {
            shared.mailbox.demand(WorkerEvent::Stop(within));
        }
    }

    /// Completion it stands; none if it has ended, or does not answer within this time, which means that its
    /// source hangs.
    #[must_use]
    pub fn status(&self, within: Duration) -> Option<ConsumerStatus> {
        let (reply, answer) = mpsc::channel();
        self.0.upgrade()?.mailbox.demand(WorkerEvent::Status(reply));
        answer.recv_timeout(within).ok()
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        if let Some(coordinator) = self.coordinator.take() {
            self.handle.stop(Duration::ZERO);
            // Nobody wants to know how it ended.
            let _ = coordinator.join();
        }
    }
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopReason::Asked => f.write_str("it was asked to"),
            StopReason::Exhausted => f.write_str("there is nothing left to do"),
            StopReason::Failed { partition, position, failure } => {
                write!(f, "the record at {position} of {partition} failed: {failure}")
            }
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
