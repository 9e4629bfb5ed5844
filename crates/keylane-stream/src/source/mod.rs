//! What a consumer needs of the place where records come from.
//!
//! A [`Source`] has *partitions*: streams with positions of their own, each of which belongs to this
//! consumer for a time. It belongs to one thread, which asks it with [`poll`](Source::poll) what has
//! happened, and tells it what was done. Kafka's client, a journal, a file and a test's script all fit.
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
//! 1. [`SourceEvent::Assigned`] says what is done already. It can wait until the source knows where the
//!    stream begins. Records with lower positions may come once more; they are not handled again.
//! 2. [`SourceEvent::Records`] follow, their positions ascending. [`pause`](Source::pause) holds them back,
//!    for one partition alone.
//! 3. [`commit`](Source::commit) is handed progress from time to time, for a partition only when the
//!    one before was answered by [`SourceEvent::Committed`].
//! 4. [`SourceEvent::Revoked`] asks for partitions back. What runs is awaited, up to a deadline, while
//!    others go on and `poll` is called as ever. Then the last progress is committed, and
//!    [`release`](Source::release) gives all of them back; only then may somebody else have them.
//!    [`SourceEvent::Lost`] says that they are somebody else's already: nothing is committed, or released.
//! 5. A stream that is cut, or begins anew below what was delivered, is lost and assigned again, with
//!    what is then done.
//! 6. [`SourceEvent::Exhausted`] says of a partition that nothing will ever follow, as at the end of a file.

mod error;

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

pub use self::error::{CommitError, SourceError};
use crate::tracker::{MapLimit, Progress};
use crate::{Delivered, Position};

/// Where records come from, and progress is kept. See the [module](self) for the life of a partition.
///
/// All methods are called by one thread. None but `poll`, `commit` and `close` may wait for anything.
pub trait Source: Send {
    /// Adds what has happened to `events`, in its order. If nothing has, waits for something for at most
    /// `timeout`, and may return earlier with nothing.
    ///
    /// It adds no more than `most_records` records, and few at a time if they are large: until there is
    /// room for them they lie in memory. It is called at least every 100 ms, whatever happens.
    ///
    /// # Errors
    /// If there is no going on. What may pass, such as a broker that does not answer, is none: the
    /// source tries again, and says so with [`SourceEvent::Notice`].
    fn poll(
        &mut self,
        timeout: Duration,
        most_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError>;

    /// Begins to store progress, or stores it. For each partition [`SourceEvent::Committed`] says what came
    /// of it, in a later `poll`; it may take as long as it likes for that.
    ///
    /// What it stores must be there before it says so. It may write less of a map than it is given (see
    /// [`Progress::shortened`]), never more.
    fn commit(&mut self, commits: Vec<Commit>);

    /// Whether the progress of all partitions is committed together, in a transaction with what was made of the
    /// records that it says are done.
    ///
    /// Then nothing is committed before it was [cut](Self::begin_commit), and nothing is committed in part: if it cannot be,
    /// all of it is given up, and each partition is lost and assigned again, with what is stored. An
    /// [`SourceEvent::Aborted`] follows.
    fn is_transactional(&self) -> bool {
        false
    }

    /// Lets nothing more into the transaction until it is committed or aborted, and says whether that is so. All whose
    /// output is in it have been answered before. If not, it can be tried again soon.
    fn begin_commit(&mut self) -> bool {
        true
    }

    /// Gives up a transaction that was cut.
    fn abort_transaction(&mut self) {}

    /// Holds back the records of a partition until it is resumed. What was fetched already should be
    /// kept for then, rather than fetched again.
    fn pause(&mut self, partition: &Partition);

    /// Lets a paused partition go on, after the last record that it has delivered.
    fn resume(&mut self, partition: &Partition);

    /// Gives up partitions: exactly those of one [`SourceEvent::Revoked`]. What this process does about their
    /// records from now on is no longer committed.
    fn release(&mut self, partitions: &[Partition]);

    /// Leaves: all that runs has ended or is given up, and the last progress was committed.
    ///
    /// # Errors
    /// If that could not be said to those whom it concerns within `timeout`; they will notice.
    fn close(&mut self, timeout: Duration) -> Result<(), SourceError>;

    /// What ends the wait of a `poll` from another thread, if anything does. Without it `poll` is asked
    /// to wait only for moments while a partition is held back.
    fn waker(&self) -> Option<Waker> {
        None
    }

    /// Whether records can come: the source is connected, and is a member of its group if there is one.
    fn is_ready(&self) -> bool {
        true
    }

    /// Since when there has been no connection to the place that records come from, if there is none.
    fn unreachable_since(&self) -> Option<Instant> {
        None
    }

    /// One past the last record that a partition is known to have, without asking anybody for it.
    fn end(&self, partition: &Partition) -> Option<Position> {
        let _ = partition;
        None
    }
}

impl<S: Source + ?Sized> Source for Box<S> {
    fn poll(
        &mut self,
        timeout: Duration,
        most_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        (**self).poll(timeout, most_records, events)
    }

    fn commit(&mut self, commits: Vec<Commit>) {
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

    fn end(&self, partition: &Partition) -> Option<Position> {
        (**self).end(partition)
    }
}

/// A stream of records with positions of its own: a topic's partition, a journal, a file.
///
/// Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition {
    stream: Arc<str>,
    number: u32,
}

/// What a source reports.
#[derive(Debug)]
#[non_exhaustive]
pub enum SourceEvent {
    /// A partition is ours from now on.
    Assigned(Assigned),
    /// Records of a partition that is ours; positions ascend, within the event and from event to
    /// event. Positions that are left out have no record, and never will.
    Records {
        /// Whose they are.
        partition: Partition,
        /// The records.
        records: Vec<Delivered>,
    },
    /// All below a position was delivered, or has no record: so the watermark also passes positions
    /// without records at which a stream ends for now, such as the markers of transactions.
    Reached {
        /// Where.
        partition: Partition,
        /// What comes next, if anything does.
        position: Position,
    },
    /// Records of a partition will not be delivered, and were not handled: they were removed before they
    /// were read, and the source's settings say to go on without them.
    Missed {
        /// Whose they were.
        partition: Partition,
        /// How many positions are passed over. Some of them may never have had a record.
        positions: u64,
    },
    /// Nothing will ever follow in a partition. When that is so of all, the consumer ends.
    Exhausted(Partition),
    /// What came of a commit.
    Committed {
        /// Whose progress it is.
        partition: Partition,
        /// Whether it is stored now.
        result: Result<(), CommitError>,
    },
    /// Partitions are wanted back. They are ours until they are released.
    Revoked(Vec<Partition>),
    /// Partitions are no longer ours. If they had been revoked, they need not be released.
    Lost(Vec<Partition>),
    /// The transaction was given up, and with it what was written since the last commit: the partitions were lost
    /// and are assigned again. Nothing is written until the next `poll`.
    Aborted,
    /// Something that a person may want to know.
    Notice(String),
}

/// A partition that is ours from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assigned {
    /// Which.
    pub partition: Partition,
    /// What of it is done already. Records are delivered from the watermark on.
    pub progress: Progress,
    /// How much can be stored beside the watermark.
    pub limit: MapLimit,
}

/// Progress that is to be stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Whose it is.
    pub partition: Partition,
    /// What is done.
    pub progress: Progress,
}

impl Partition {
    /// The partition `number` of the stream with this name.
    pub fn new(stream: impl Into<Arc<str>>, number: u32) -> Self {
        Partition { stream: stream.into(), number }
    }

    /// The name of the stream: a topic, a file.
    #[must_use]
    pub fn stream(&self) -> &str {
        &self.stream
    }

    /// Its number in the stream, from 0 on.
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
