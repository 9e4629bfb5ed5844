use std::time::SystemTime;

use super::Damage;
use crate::Position;
use crate::tracker::Progress;

/// How a journal is opened.
#[derive(Clone, Debug, Default)]
pub struct JournalSettings {
    /// How large the file may become; none for no bound but the disk's. Beside it there is a log of
    /// SQLite's, of some 16 MiB and a transaction. Default: none.
    pub max_bytes: Option<u64>,
}

/// What a journal is to keep; what is older than all of that can go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Retain {
    /// What some group has not finished: everything from the lowest watermark on. Without any group,
    /// everything.
    Unfinished,
    /// This position and all after it, whether groups have finished what is before or not.
    From(Position),
    /// This many records, whether groups have finished the others or not.
    Newest(u64),
    /// What was written since, by the writing machine's clock, whether groups have finished the rest
    /// or not.
    WrittenSince(SystemTime),
}

/// What a journal has, and what of it is damaged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckReport {
    /// The first position, or where the first record will be.
    pub begin: Position,
    /// One past the last record that could be read.
    pub end: Position,
    /// How many chunks there are.
    pub chunks: u64,
    /// How many bytes their records take.
    pub bytes: u64,
    /// How many groups have committed.
    pub groups: u64,
    /// All that is not what was written; nothing if all is well.
    pub damage: Vec<Damage>,
}

/// How far a journal reaches, and its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JournalInfo {
    /// The first position, or where the first record will be.
    pub begin: Position,
    /// One past the last record.
    pub end: Position,
    /// The groups that have committed, by name, and what.
    pub groups: Vec<(String, Progress)>,
}
