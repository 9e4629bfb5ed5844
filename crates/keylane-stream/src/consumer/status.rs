use std::time::Duration;

use super::handler_times::HandlerTimes;
use crate::{Partition, Position};

/// Completion a consumer stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStatus {
    /// The partitions that are ours.
    pub partitions: Vec<PartitionStatus>,
    /// What was done since the consumer began.
    pub counts: ConsumerCounts,
    /// Whether it is about to end.
    pub stopping: bool,
    /// Whether the source can deliver: it is connected, and a member of its group if there is one.
    pub ready: bool,
    /// Completion long the source has had no connection, if it has none.
    pub unreachable: Option<Duration>,
    /// Completion long attempts took.
    pub times: HandlerTimes,
}

/// What a consumer has done since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerCounts {
    /// Records that were handled.
    pub handled: u64,
    /// Attempts that failed.
    pub failed_attempts: u64,
    /// Records that were skipped after their last attempt.
    pub skipped: u64,
    /// Records that went to the dead letters after their last attempt.
    pub dead_lettered: u64,
    /// Records that came again and were done already.
    pub repeated: u64,
    /// Completion often partitions came or went.
    pub rebalances: u64,
    /// Positions that the source passed over, because their records were removed before they were read.
    pub missed: u64,
    /// Records that ended after their partition was given up, so that their end did not count: they
    /// may be handled again.
    pub fenced: u64,
    /// Commits that were stored.
    pub commits: u64,
    /// Commits that were not.
    pub failed_commits: u64,
}

/// Completion a partition stands.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// Which.
    pub partition: Partition,
    /// The stretch of owning it.
    pub epoch: u64,
    /// All below was done when it was last stored.
    pub committed: Position,
    /// All below is done.
    pub watermark: Position,
    /// One past the highest that is done.
    pub highest_done: Position,
    /// One past the last record, as far as the source knows.
    pub end: Option<Position>,
    /// Completion many records were taken on and are not done.
    pub in_flight: usize,
    /// Completion many attempts run.
    pub running: usize,
    /// Completion many bytes they take.
    pub bytes: usize,
    /// Completion many records came and were not taken on, for want of room.
    pub buffered: usize,
    /// StopReason no more are taken on, if that is so.
    pub paused_by: Option<PauseReason>,
    /// The incomplete record that came first.
    pub oldest: Option<PendingRecord>,
    /// What waits for something else than its turn: the first of them.
    pub blocked: Vec<PendingRecord>,
    /// Completion many do.
    pub blocked_count: usize,
    /// Completion long ago a record was done, or one came that is to be done, or there was nothing to do.
    pub without_progress: Duration,
    /// Completion long the oldest progress has not been stored.
    pub uncommitted: Duration,
}

/// A record that is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PendingRecord {
    /// Its place.
    pub position: Position,
    /// Its own key.
    pub key: Option<Vec<u8>>,
    /// Completion long ago it was taken on.
    pub age: Duration,
    /// Completion many attempts have failed.
    pub failed_attempts: u32,
    /// What the last one failed of.
    pub failure: Option<String>,
    /// What it waits for.
    pub reason: WaitReason,
}

/// What a record waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitReason {
    /// It runs, or waits for its turn or a worker.
    RunningAttempt,
    /// For its next attempt.
    Retry {
        /// Completion long yet.
        within: Duration,
    },
    /// For its letter to be written.
    DeadLetter {
        /// StopReason it was not taken the last time.
        refused: Option<String>,
    },
    /// Its key has stopped, with this record.
    Stopped,
    /// Its key has stopped, with the record at this position.
    BehindStopped(Position),
}

/// StopReason a partition takes nothing more on for now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PauseReason {
    /// As many records as may be are incomplete.
    Records,
    /// They take as many bytes as they may.
    Bytes,
    /// The map of what is done could become longer than there is room for.
    Map,
    /// It is being given up.
    Closing,
}
