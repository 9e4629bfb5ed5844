//! Events of a simulation, as the broker, handlers, dead letters and operators saw them.

use std::collections::BTreeSet;
use std::fmt;

/// Event with its time.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    /// Time since the begin of the simulation, in microseconds.
    pub(super) at: u64,
    pub(super) event: Event,
}

/// A record: number of its partition, and its position.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) partition: u32,
    pub(super) position: u64,
}

/// Progress of a partition.
#[derive(Clone, PartialEq, Eq, Default)]
pub(super) struct Claim {
    /// All positions below it are claimed.
    pub(super) watermark: u64,
    /// Claimed positions above the watermark.
    pub(super) above: BTreeSet<u64>,
}

/// End of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttemptEnd {
    Succeeded,
    Failed,
    Panicked,
    /// The acknowledgement was dropped.
    Dropped,
    /// The answer does not count any more, so the output was not written.
    Withdrawn,
    /// The attempt was cancelled, and has failed for that reason.
    Cancelled,
}

/// Answer to a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitAnswer {
    Stored,
    /// Refused for now, or for a member without the partition.
    Refused,
    /// Refused because the map is too long. A shorter one claims less.
    TooLong,
}

/// Records that a command of the operator is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// All partitions.
    All,
    Partition(u32),
    /// The number of a key.
    Key(u8),
}

/// `member` is the number of a process, from 0, over the whole simulation.
#[derive(Clone, Debug)]
#[allow(dead_code, reason = "some fields are only printed")]
pub(super) enum Event {
    /// A record is in the log.
    Produced { place: Place, key: u8 },
    /// A process starts.
    Opened { member: usize },
    /// The group gives a partition to a member, which reads it from its stored progress on.
    Assigned { member: usize, partition: u32, claim: Claim },
    /// A handler begins.
    Started { member: usize, place: Place, attempt: u32 },
    /// A handler ends, and has answered.
    Ended { member: usize, place: Place, attempt: u32, end: AttemptEnd },
    /// A running attempt is cancelled.
    Cancelled { member: usize, place: Place, is_forced: bool },
    /// A dead letter is written. `is_acknowledged` is false if the writer does not learn it.
    Letter { member: usize, place: Place, attempts: u32, is_acknowledged: bool },
    /// A record is replaced by a later one of its key, and has not begun.
    Replaced { member: usize, place: Place, by: Place },
    /// The consumer reports that it skips a record.
    Skipped { member: usize, place: Place },
    /// The consumer sends a commit.
    Committing { member: usize, partition: u32, claim: Claim },
    /// The broker stores a commit.
    Stored { member: usize, partition: u32, claim: Claim },
    /// The consumer gets the answer to a commit.
    Committed { member: usize, partition: u32, answer: CommitAnswer },
    /// Output of a record is in the open transaction.
    Output { member: usize, place: Place },
    /// The output of a transaction is committed, with the progress that was stored before.
    Published { member: usize, outputs: Vec<Place> },
    /// A transaction is aborted.
    Aborted { member: usize },
    /// The group takes partitions back.
    Revoked { member: usize, partitions: Vec<u32> },
    /// The consumer gives partitions back.
    Released { member: usize, partitions: Vec<u32> },
    /// A member learns that other members have its partitions.
    Lost { member: usize, partitions: Vec<u32> },
    /// The source of a process fails for good.
    Failed { member: usize },
    /// A member has no connection to the broker.
    Cut { member: usize },
    /// A process does not run for a while.
    Frozen { member: usize, ms: u64 },
    /// A member has a connection, or runs, again.
    Back { member: usize },
    /// A process confirms a pause.
    Paused { member: usize, scope: Scope },
    /// A process confirms a resume.
    Resumed { member: usize, scope: Scope },
    /// A process confirms that it tries records again.
    Retried { member: usize, scope: Scope },
    /// The operator stops a process, with this time for running attempts.
    Stopping { member: usize, ms: u64 },
    /// The consumer has ended, for this reason.
    Stopped { member: usize, reason: &'static str, abandoned: usize },
    /// A process is killed.
    Killed { member: usize },
    /// The time of day is set.
    Set { ms: i64 },
    /// Nothing fails from here on.
    Healed,
    /// The end of the simulation.
    Finished,
}

impl Claim {
    /// Returns whether a position is claimed.
    pub(super) fn has(&self, position: u64) -> bool {
        position < self.watermark || self.above.contains(&position)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.partition, self.position)
    }
}

impl fmt::Debug for Claim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}+{:?}", self.watermark, self.above)
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (ms, micros) = (self.at / 1000, self.at % 1000);
        write!(f, "{:5}.{:03}.{micros:03} {:?}", ms / 1000, ms % 1000, self.event)
    }
}
