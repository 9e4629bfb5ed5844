//! Status of a consumer, as its handle reports it.

use std::time::Duration;

use super::handler_times::HandlerTimes;
use super::target::PausedTarget;
use crate::{Partition, Position};

/// Status of a consumer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStatus {
    /// Assigned partitions.
    pub partitions: Vec<PartitionStatus>,
    /// Counts since the consumer started.
    pub counts: ConsumerCounts,
    /// Whether the consumer is stopping.
    pub stopping: bool,
    /// Whether the source can deliver: it is connected, and has joined its group if there is one.
    pub ready: bool,
    /// Time without a connection to the source, if there is none.
    pub unreachable: Option<Duration>,
    /// Latency of attempts.
    pub times: HandlerTimes,
    /// Targets that the operator has paused: topics, partitions and keys, in this order.
    pub paused: Vec<PausedTarget>,
}

/// Counts since a consumer started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerCounts {
    /// Records that were handled.
    pub handled: u64,
    /// Attempts that failed.
    pub failed_attempts: u64,
    /// Attempts that were cancelled and ended without success. Their records are left to the next
    /// owner of the partition.
    pub cancelled: u64,
    /// Records that were skipped after their last attempt.
    pub skipped: u64,
    /// Records that were written to the dead letters.
    pub dead_lettered: u64,
    /// Records that a later one of their key has replaced before they began.
    pub replaced: u64,
    /// Delivered records that were complete already.
    pub repeated: u64,
    /// Number of polls that reported assigned, revoked or lost partitions.
    pub rebalances: u64,
    /// Positions that the source has skipped because their records were removed before they were
    /// read.
    pub missed: u64,
    /// Records whose attempts ended after their partition was released. Such answers are ignored,
    /// and the records may be handled again.
    pub fenced: u64,
    /// Successful commits.
    pub commits: u64,
    /// Failed commits.
    pub failed_commits: u64,
}

/// Status of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// The partition.
    pub partition: Partition,
    /// Epoch of its assignment.
    pub epoch: u64,
    /// Watermark of the last commit: all positions below are complete.
    pub committed: Position,
    /// Current watermark: all positions below are complete.
    pub watermark: Position,
    /// One past the highest completed position.
    pub highest_done: Position,
    /// One past the last record, as far as the source knows.
    pub end: Option<Position>,
    /// Number of admitted records that are not complete.
    pub in_flight: usize,
    /// Number of running attempts.
    pub running: usize,
    /// Estimated memory of the records in flight, in bytes.
    pub bytes: usize,
    /// Number of delivered records that are not admitted yet.
    pub buffered: usize,
    /// Number of records in flight that the operator has paused. Some may still be running.
    pub paused_records: usize,
    /// Limit or pause that keeps further records from being admitted, if any.
    pub paused_by: Option<PauseReason>,
    /// Incomplete record with the lowest position.
    pub oldest: Option<PendingRecord>,
    /// Records that wait for anything but their turn or a worker; the first of them by position.
    pub blocked: Vec<PendingRecord>,
    /// Number of records that wait for anything but their turn or a worker.
    pub blocked_count: usize,
    /// Time since the last completion or admission; zero if there was nothing to do, or all records
    /// wait for the operator.
    pub without_progress: Duration,
    /// Age of the oldest progress that is not committed.
    pub uncommitted: Duration,
}

/// A record that is not complete.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingRecord {
    /// Position of the record.
    pub position: Position,
    /// Key of the record itself.
    pub key: Option<Vec<u8>>,
    /// Time since the record was admitted.
    pub age: Duration,
    /// Number of failed attempts.
    pub failed_attempts: u32,
    /// Cause of the last failed attempt.
    pub failure: Option<String>,
    /// Reason why the record is not complete yet.
    pub reason: WaitReason,
}

/// Reason why a record is not complete yet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// It is running, or waits for its turn or a worker.
    Running,
    /// It waits for its next attempt.
    Retry {
        /// Time until the next attempt.
        within: Duration,
    },
    /// It waits for its dead letter to be written.
    DeadLetter {
        /// Reason of the last refusal.
        refused: Option<String>,
    },
    /// It has its turn, and waits for the operator to resume it.
    Paused,
    /// It has stopped its key.
    Stopped,
    /// It waits behind the record at this position, which has stopped the key.
    BehindStopped(Position),
}

/// Limit or pause that keeps a partition from admitting records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PauseReason {
    /// Number of records in flight.
    Records,
    /// Bytes of the records in flight.
    Bytes,
    /// Length of the map of completed positions, which could exceed its limit.
    Map,
    /// The partition is in revocation.
    Closing,
    /// The operator has paused the partition or its topic.
    Operator,
}
