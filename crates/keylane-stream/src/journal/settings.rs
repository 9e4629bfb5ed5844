//! Settings of journals, and the reports about them.

use std::time::SystemTime;

use super::JournalDamage;
use crate::Position;
use crate::tracker::Progress;

/// Settings of a journal.
#[derive(Clone, Debug, Default)]
pub struct JournalSettings {
    /// Maximum size of the file, in bytes; `None` for no limit. SQLite's log beside it takes some
    /// 16 MiB and one transaction more. Default: `None`.
    pub max_bytes: Option<u64>,
}

/// Records that a journal must keep; older ones may be removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RetentionPolicy {
    /// Records that some group has not completed: everything from the lowest watermark on.
    /// Everything if there is no group.
    Unfinished,
    /// This position and everything after it, whatever groups have completed.
    From(Position),
    /// The newest records, in this number, whatever groups have completed.
    Newest(u64),
    /// Records written since this time, by the writing machine's clock, whatever groups have
    /// completed.
    WrittenSince(SystemTime),
}

/// Result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// First position, or the position of the first record to come.
    pub begin: Position,
    /// One past the last readable record.
    pub end: Position,
    /// Number of chunks.
    pub chunks: u64,
    /// Size of the chunks' bodies, in bytes.
    pub bytes: u64,
    /// Number of groups with progress.
    pub groups: u64,
    /// Damage found; empty for an intact journal.
    pub damage: Vec<JournalDamage>,
}

/// Range of a journal, and its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalInfo {
    /// First position, or the position of the first record to come.
    pub begin: Position,
    /// One past the last record.
    pub end: Position,
    /// Groups with their committed progress, by name.
    pub groups: Vec<(String, Progress)>,
}
