//! Damage of a store: what is wrong, and the row or column in which it is.

use std::path::PathBuf;

use crate::ids::{JobNumber, SubtaskNumber};
use crate::store::outcome::OutcomePosition;

/// Damage in a store: a part whose checksum or content is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreDamage {
    /// Main row of a job.
    Job {
        /// Number of the job.
        job: JobNumber,
    },
    /// Chunk that contains a subtask.
    Chunk {
        /// Number of the job.
        job: JobNumber,
        /// Number of the subtask.
        number: SubtaskNumber,
    },
    /// Subtasks without a chunk.
    MissingSubtasks {
        /// Number of the job.
        job: JobNumber,
        /// First missing subtask.
        from: SubtaskNumber,
        /// One past the last missing subtask.
        until: SubtaskNumber,
    },
    /// Outcomes from a place on, up to the next row.
    Outcomes {
        /// Number of the job.
        job: JobNumber,
        /// Place of the first of them.
        from: OutcomePosition,
    },
    /// Final counts of a job that do not agree with its outcomes.
    Counts {
        /// Number of the job.
        job: JobNumber,
    },
    /// Subtask with two outcomes and no reopening between them.
    Twice {
        /// Number of the job.
        job: JobNumber,
        /// Number of the subtask.
        number: SubtaskNumber,
    },
    /// Log of an attempt.
    Log {
        /// Number of the job.
        job: JobNumber,
        /// Number of the subtask.
        number: SubtaskNumber,
    },
    /// Chunks, outcomes or logs without a job.
    Orphans {
        /// Number of the job.
        job: JobNumber,
    },
    /// Record of started attempts.
    Marks {
        /// Number of the row.
        row: u64,
    },
    /// Record of a paused or stopped key.
    Key {
        /// Key, with unprintable bytes escaped.
        key: String,
    },
    /// Idempotency key.
    Idempotency {
        /// Scope of the key.
        scope: String,
        /// Key.
        key: String,
    },
    /// Client's identifier of a job.
    Alias {
        /// Identifier.
        name: String,
    },
    /// Setting that an operator has changed.
    Setting {
        /// Name of the setting.
        name: String,
    },
    /// Schedule.
    Schedule {
        /// Name of the schedule.
        name: String,
    },
    /// Entry of the audit log.
    Audit {
        /// Number of the entry.
        number: u64,
    },
    /// Missing entries of the audit log.
    MissingAudit {
        /// First missing entry.
        from: u64,
        /// One past the last missing entry.
        until: u64,
    },
    /// The store's own settings and counters.
    Meta,
    /// Missing unfinished jobs.
    MissingJobs {
        /// Number of missing jobs.
        count: u64,
    },
    /// Job that is missing in the index, and would therefore never run.
    Index {
        /// Number of the job.
        job: JobNumber,
    },
    /// Damaged pages of the file, with rows of a job.
    Pages {
        /// Number of the job.
        job: JobNumber,
        /// SQLite's message.
        why: String,
    },
    /// Unreadable pages of the file, with rows of a table.
    Rows {
        /// Name of the table.
        table: String,
        /// First row that may be lost.
        first: i64,
        /// Last row that may be lost.
        last: i64,
        /// SQLite's message.
        why: String,
    },
    /// Acknowledged commits are missing in the file.
    Lost {
        /// Last commit in the file.
        has: u64,
        /// Last acknowledged commit.
        acknowledged: u64,
    },
    /// High-water mark file.
    Mark {
        /// Path of the mark file.
        path: PathBuf,
    },
    /// Damage of the file as a whole.
    File {
        /// SQLite's message.
        why: String,
    },
}

impl StoreDamage {
    /// Returns the number of the damaged job, if the damage concerns one.
    #[must_use]
    pub fn job(&self) -> Option<JobNumber> {
        match self {
            StoreDamage::Job { job }
            | StoreDamage::Chunk { job, .. }
            | StoreDamage::MissingSubtasks { job, .. }
            | StoreDamage::Outcomes { job, .. }
            | StoreDamage::Counts { job }
            | StoreDamage::Twice { job, .. }
            | StoreDamage::Log { job, .. }
            | StoreDamage::Index { job }
            | StoreDamage::Pages { job, .. }
            | StoreDamage::Orphans { job } => Some(*job),
            _ => None,
        }
    }
}

impl std::fmt::Display for StoreDamage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoreDamage::Job { job } => write!(f, "the row of job {}", job.0),
            StoreDamage::Chunk { job, number } => {
                write!(f, "the chunk of job {} with subtask {number}", job.0)
            }
            StoreDamage::MissingSubtasks { job, from, until } => {
                write!(f, "subtasks {from} to before {until} of job {} are missing", job.0)
            }
            StoreDamage::Outcomes { job, from } => {
                write!(f, "the outcomes of job {} from place {} on", job.0, from.get())
            }
            StoreDamage::Counts { job } => {
                write!(f, "the counts of job {} do not match its outcomes", job.0)
            }
            StoreDamage::Twice { job, number } => {
                write!(f, "subtask {number} of job {} has ended twice", job.0)
            }
            StoreDamage::Log { job, number } => {
                write!(f, "the log of an attempt at subtask {number} of job {}", job.0)
            }
            StoreDamage::Orphans { job } => {
                write!(f, "parts of job {}, which does not exist", job.0)
            }
            StoreDamage::Marks { row } => write!(f, "row {row} of the started attempts"),
            StoreDamage::Key { key } => write!(f, "the record of key {key:?}"),
            StoreDamage::Idempotency { scope, key } => {
                write!(f, "the idempotency key {key:?} in {scope:?}")
            }
            StoreDamage::Alias { name } => write!(f, "the job identifier {name:?}"),
            StoreDamage::Setting { name } => write!(f, "the setting {name:?}"),
            StoreDamage::Schedule { name } => write!(f, "the schedule {name:?}"),
            StoreDamage::Audit { number } => write!(f, "entry {number} of the audit log"),
            StoreDamage::MissingAudit { from, until } => {
                write!(f, "entries {from} to before {until} of the audit log are missing")
            }
            StoreDamage::Meta => f.write_str("the store's own counters"),
            StoreDamage::MissingJobs { count } => write!(f, "{count} unfinished jobs are missing"),
            StoreDamage::Index { job } => {
                write!(f, "the index lacks job {}; the next start repairs it", job.0)
            }
            StoreDamage::Pages { job, why } => write!(f, "pages with rows of job {}: {why}", job.0),
            StoreDamage::Rows { table, first: i64::MIN, last: i64::MAX, why } => {
                write!(f, "rows of the table {table}: {why}")
            }
            StoreDamage::Rows { table, first, last, why } => {
                write!(f, "rows {first} to {last} of the table {table}: {why}")
            }
            StoreDamage::Lost { has, acknowledged } => {
                write!(f, "commits {} to {acknowledged} were acknowledged and are gone", has + 1)
            }
            StoreDamage::Mark { path } => write!(
                f,
                "{} belongs to another store or is damaged; if this store replaced another one, delete that file, too",
                path.display()
            ),
            StoreDamage::File { why } => write!(f, "the file: {why}"),
        }
    }
}
