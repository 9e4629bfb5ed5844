//! Sources of records: the trait that a consumer requires, and the life of a partition.
//!
//! A [`Source`] has *partitions*: streams with positions of their own, each assigned to this
//! consumer for some time. One thread uses the source: it [polls](Source::poll) for events, and
//! commits progress. Kafka's client, a journal, a file and a scripted test are all sources.
//!
//! # The life of a partition
//!
//! ```text
//! Assigned ─▶ Records … ─▶ Revoked ──▶ commit, wait ──▶ release
//!     ▲         │    │                    │                │
//!     │         │    └─▶ Lost ◀───────────┘                │
//!     └─────────┴──────────────────────────────────────────┘
//! ```
//!
//! 1. [`SourceEvent::Assigned`] has the progress so far. It can be delayed until the source knows
//!    where the stream begins. Completed records may be delivered again; they are not handled
//!    again.
//! 2. [`SourceEvent::Records`] follow, with ascending positions. [`pause`](Source::pause) holds
//!    back one partition.
//! 3. [`commit`](Source::commit) stores progress. The next commit of a partition comes only after
//!    [`SourceEvent::Committed`].
//! 4. [`SourceEvent::Revoked`] takes partitions back. Running attempts are awaited, up to a
//!    deadline, while other partitions continue and `poll` is called as usual. Then the last
//!    progress is committed, and [`release`](Source::release) gives the partitions back; only then
//!    may other members have them. [`SourceEvent::Lost`] reports partitions that other members have
//!    already: nothing is committed or released.
//! 5. A stream that was truncated, or restarts below delivered positions, is lost and assigned
//!    again, with its new progress.
//! 6. [`SourceEvent::Exhausted`] ends a partition for good, as at the end of a file.

mod error;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

pub use self::error::{CommitError, SourceError};
use crate::tracker::{OffsetMapLimit, Progress};
use crate::{DeliveredRecord, Position};

/// A source of records that also stores progress. See the [module](self) for the life of a
/// partition.
///
/// One thread calls all methods. Only `poll`, `commit` and `close` may block.
pub trait Source: Send {
    /// Appends new events to `events`, in order. If there are none, waits for at most `timeout`; it
    /// may return earlier without events.
    ///
    /// Adds at most `max_records` records, and fewer if they are large, because they stay in memory
    /// until they are admitted. It is called at least every 100 ms.
    ///
    /// # Errors
    /// If the source cannot continue. Temporary conditions, such as a broker that does not answer,
    /// are no errors: the source retries, and reports them with [`SourceEvent::Notice`].
    fn poll(
        &mut self,
        timeout: Duration,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError>;

    /// Commits progress, or starts to. A later `poll` reports the result of each partition with
    /// [`SourceEvent::Committed`], however long it takes.
    ///
    /// Progress must be stored before that event. A source may store a shorter map (see
    /// [`Progress::shortened`]), never a longer one.
    fn commit(&mut self, commits: Vec<ProgressCommit>);

    /// Returns whether the source commits the progress of all partitions in one transaction with
    /// the output of the completed records.
    ///
    /// Then each commit follows a [`begin_commit`](Self::begin_commit), and is atomic: if it fails,
    /// all of it is aborted, and each partition is lost and assigned again with the stored
    /// progress, followed by [`SourceEvent::Aborted`].
    fn is_transactional(&self) -> bool {
        false
    }

    /// Closes the transaction to further output until it is committed or aborted, and returns
    /// whether it is closed. The records of all output in it have been reported before. If `false`,
    /// try again soon.
    fn begin_commit(&mut self) -> bool {
        true
    }

    /// Aborts the transaction after `begin_commit`.
    fn abort_transaction(&mut self) {}

    /// Holds back the records of a partition until it is resumed. Fetched records should be kept
    /// rather than fetched again.
    fn pause(&mut self, partition: &Partition);

    /// Resumes a paused partition after the last delivered record.
    fn resume(&mut self, partition: &Partition);

    /// Releases partitions: exactly those of one [`SourceEvent::Revoked`]. No progress of theirs is
    /// committed afterwards.
    fn release(&mut self, partitions: &[Partition]);

    /// Leaves the group. All attempts have ended or are abandoned, and the last progress is
    /// committed.
    ///
    /// # Errors
    /// If other members could not be informed within `timeout`; they will notice by themselves.
    fn close(&mut self, timeout: Duration) -> Result<(), SourceError>;

    /// Returns a waker that ends a `poll` from another thread, if there is one. Without it, the
    /// timeout of `poll` is short while a partition is paused.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// Returns whether records can be delivered: the source is connected, and has joined its group
    /// if there is one.
    fn is_ready(&self) -> bool {
        true
    }

    /// Returns the time since when there has been no connection, if there is none.
    fn unreachable_since(&self) -> Option<Instant> {
        None
    }

    /// Returns the time since when the source has been finding out where an assigned partition
    /// continues, if it delivers no record until it knows.
    fn resolving_since(&self, partition: &Partition) -> Option<Instant> {
        let _ = partition;
        None
    }

    /// Returns whether this source has all partitions of its streams. A source that no others share has.
    ///
    /// It is called after assignments, by consumers whose order is over all partitions, until the answer is
    /// known. `poll` must return when it becomes known.
    fn ownership(&mut self) -> PartitionOwnership {
        PartitionOwnership::All
    }

    /// Returns one past the last known record of a partition, without a request to the broker.
    fn end(&self, partition: &Partition) -> Option<Position> {
        let _ = partition;
        None
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn poll(
        &mut self,
        timeout: Duration,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        (**self).poll(timeout, max_records, events)
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        (**self).commit(commits);
    }

    fn is_transactional(&self) -> bool {
        (**self).is_transactional()
    }

    fn begin_commit(&mut self) -> bool {
        (**self).begin_commit()
    }

    fn abort_transaction(&mut self) {
        (**self).abort_transaction();
    }

    fn pause(&mut self, partition: &Partition) {
        (**self).pause(partition);
    }

    fn resume(&mut self, partition: &Partition) {
        (**self).resume(partition);
    }

    fn release(&mut self, partitions: &[Partition]) {
        (**self).release(partitions);
    }

    fn close(&mut self, timeout: Duration) -> Result<(), SourceError> {
        (**self).close(timeout)
    }

    fn waker(&self) -> Option<Waker> {
        (**self).waker()
    }

    fn is_ready(&self) -> bool {
        (**self).is_ready()
    }

    fn unreachable_since(&self) -> Option<Instant> {
        (**self).unreachable_since()
    }

    fn resolving_since(&self, partition: &Partition) -> Option<Instant> {
        (**self).resolving_since(partition)
    }

    fn ownership(&mut self) -> PartitionOwnership {
        (**self).ownership()
    }

    fn end(&self, partition: &Partition) -> Option<Position> {
        (**self).end(partition)
    }
}

/// Which partitions of its streams a source has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PartitionOwnership {
    /// All of them.
    All,
    /// It is not known yet.
    Unknown,
    /// Not all. The text names what is missing, as in "the group gives `orders[3]` to another member".
    Some(String),
}

/// A stream of records with its own positions: a topic's partition, a journal, a file.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    stream: Arc<str>,
    number: u32,
}

/// An event of a source.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceEvent {
    /// A partition was assigned.
    Assigned(PartitionAssignment),
    /// Records of an assigned partition; positions ascend, within the event and from event to
    /// event. Missing positions have no record, and never will.
    Records {
        /// Partition of the records.
        partition: Partition,
        /// The records.
        records: Vec<DeliveredRecord>,
    },
    /// All positions below `position` were delivered or have no record. So the watermark also
    /// passes gaps at the current end of a stream, such as transaction markers.
    Reached {
        /// The partition.
        partition: Partition,
        /// The next position.
        position: Position,
    },
    /// Records will not be delivered, and were not handled: they were removed before they were
    /// read, and the source's settings allow that.
    Missed {
        /// The partition.
        partition: Partition,
        /// Number of skipped positions. Some of them may never have had a record.
        positions: u64,
    },
    /// No record will ever follow in a partition. The consumer ends when all partitions are
    /// exhausted.
    Exhausted(Partition),
    /// Result of a commit.
    Committed {
        /// The partition.
        partition: Partition,
        /// Whether the progress is stored.
        result: Result<(), CommitError>,
    },
    /// Partitions are revoked. They remain assigned until they are released. Partitions that were just
    /// [lost](Self::Lost) can be named too, if the source keeps them from other members: they are released
    /// when the attempts at their records have ended.
    Revoked(Vec<Partition>),
    /// Partitions were lost. They need not be released, even if they had been revoked.
    Lost(Vec<Partition>),
    /// The transaction was aborted, with all output since the last commit: the partitions were lost
    /// and are assigned again. No output is written until the next `poll`.
    Aborted,
    /// A message for the operator.
    Notice(String),
}

/// Assignment of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionAssignment {
    /// The partition.
    pub partition: Partition,
    /// Progress so far. Records are delivered from its watermark on.
    pub progress: Progress,
    /// Maximum length of the map beside the watermark.
    pub limit: OffsetMapLimit,
}

/// Progress to store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgressCommit {
    /// The partition.
    pub partition: Partition,
    /// Its progress.
    pub progress: Progress,
}

impl Partition {
    /// Creates the partition `number` of a stream.
    pub fn new(stream: impl Into<Arc<str>>, number: u32) -> Self {
        Partition { stream: stream.into(), number }
    }

    /// Returns the name of the stream: a topic, a file.
    #[must_use]
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Returns the number within the stream, counted from 0.
    #[must_use]
    pub const fn number(&self) -> u32 {
        self.number
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]", self.stream, self.number)
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
