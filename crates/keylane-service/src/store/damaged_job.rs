//! Readable facts about a damaged job: above all its keys, which stop.
//!
//! The keys come from the job's chunks, and the chunks need no other row:
//!
//! - Damage of a payload leaves the keys of its chunk readable (`chunk_keys.rs`).
//! - Damage of the job's own row leaves the chunks readable. The number of subtasks is in that row
//!   and may be wrong. It counts as known if a chunk ends there, or if the checksum of the row is
//!   right with the end of a chunk in its place. All present chunks give keys: those of an unfinished
//!   extension stop a key too many rather than one too few.
//! - Damage of outcomes makes all subtasks count as unfinished, for the same reason.
//!
//! Only if keys themselves are damaged, or a chunk is missing, the keys of the job are unknown.

use std::collections::BTreeSet;

use super::chunk::{Chunk, MAX_SUBTASKS};
use super::chunk_keys::ChunkKeys;
use super::connection::{StoreConnection, StoredRow};
use super::ended::EndedSubtasks;
use super::error::ReadError;
use super::row_numbers::{at, rows_of};
use super::tables::{JOB, fixed_of, fixed_with};
use crate::ids::{JobId, JobNumber, Key, SubtaskNumber};

/// Readable facts about a damaged job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedJob {
    /// Number of the job.
    pub number: JobNumber,
    /// Identifier as stored, which may be wrong; `None` if it is not an identifier.
    pub id: Option<JobId>,
    /// Position in the order; `None` if it cannot be trusted.
    pub entered: Option<u64>,
    /// Keys of the unfinished subtasks; `None` if some cannot be read.
    pub keys: Option<BTreeSet<Key>>,
}

/// Reads the facts about a damaged job.
pub(super) fn look_at(
    connection: &dyn StoreConnection,
    job: JobNumber,
) -> Result<DamagedJob, ReadError> {
    let mut damaged = DamagedJob { number: job, id: None, entered: None, keys: None };
    damaged.keys = match facts(connection, job, &mut damaged) {
        Err(ReadError::Damaged(_)) => None,
        found => found?,
    };
    Ok(damaged)
}

/// Reads the job's row into `damaged`, and returns the keys.
fn facts(
    connection: &dyn StoreConnection,
    job: JobNumber,
    damaged: &mut DamagedJob,
) -> Result<Option<BTreeSet<Key>>, ReadError> {
    let sql = format!("SELECT {JOB}, chunk FROM job WHERE number = ?1");
    let number = [job.0.into()];
    let found = connection.first(&sql, &number, |row| {
        let fixed = fixed_of(row).ok();
        if let Some((fixed, _)) = &fixed {
            (damaged.id, damaged.entered) = (Some(fixed.id), Some(fixed.entered));
        } else {
            damaged.id = row.array(3).ok().map(JobId).filter(|id| id.number() == job);
        }
        let total = row.small(TOTAL).unwrap_or(0);
        let inline = row.optional_bytes(INLINE)?;
        let inline = inline.map(|sealed| FoundChunks::inline(job, total, sealed));
        Ok((fixed.map(|(fixed, _)| fixed.total), inline))
    })?;
    let Some((total, inline)) = found else { return Ok(None) };
    let chunks = match inline {
        Some(chunks) => chunks,
        None => FoundChunks::read(connection, job, total.unwrap_or(MAX_SUBTASKS))?,
    };
    let end = match total {
        Some(total) => Some(total),
        None => connection.first(&sql, &number, |row| Ok(chunks.confirmed_end(row)))?.flatten(),
    };
    let Some(end) = end else { return Ok(None) };
    let ended = ended(connection, job, end)?;
    Ok(chunks.keys(end, &ended))
}

/// Columns of a row in [`facts`].
const TOTAL: usize = 6;
const INLINE: usize = 10;

/// Reads which subtasks have ended.
fn ended(
    connection: &dyn StoreConnection,
    job: JobNumber,
    end: u32,
) -> Result<EndedSubtasks, ReadError> {
    let mut ended = EndedSubtasks::new(job, end);
    match ended.read_on(connection) {
        Ok(()) => Ok(ended),
        Err(ReadError::Damaged(_)) => Ok(EndedSubtasks::new(job, end)),
        Err(error) => Err(error),
    }
}

/// Chunks of a job, as far as they can be read.
#[derive(Debug, Default)]
struct FoundChunks {
    /// Ends of the readable chunks, without a gap before them.
    ends: Vec<SubtaskNumber>,
    keys: Vec<(SubtaskNumber, Vec<Key>)>,
    /// Subtasks whose keys cannot be read, before the last chunk.
    unknown: Vec<std::ops::Range<SubtaskNumber>>,
    /// One past the last subtask of a readable chunk.
    end: SubtaskNumber,
    is_inline: bool,
}

impl FoundChunks {
    fn inline(job: JobNumber, total: u32, sealed: &[u8]) -> Self {
        let mut found = FoundChunks { is_inline: true, ..FoundChunks::default() };
        found.add(job, 0, total, sealed);
        found
    }

    /// Reads the chunks of the first `limit` subtasks.
    fn read(
        connection: &dyn StoreConnection,
        job: JobNumber,
        limit: u32,
    ) -> Result<Self, ReadError> {
        let sql =
            "SELECT place, count, body FROM chunk WHERE place >= ?1 AND place < ?2 ORDER BY place";
        let (first, _) = rows_of(job);
        let mut found = FoundChunks::default();
        connection.each(sql, &[first.into(), (first + i64::from(limit)).into()], |row| {
            let (_, number) = at(row.unsigned(0)?);
            found.add(job, number, row.small(1).unwrap_or(0), row.bytes(2)?);
            Ok(())
        })?;
        Ok(found)
    }

    fn add(&mut self, job: JobNumber, first: SubtaskNumber, count: u32, sealed: &[u8]) {
        let owned = |keys: super::SubtaskKeys<'_>| {
            keys.filter(|claim| !claim.is_of_job())
                .map(|claim| Key::new(claim.key))
                .collect::<Vec<_>>()
        };
        let end = if let Some(chunk) = Chunk::open(job, first, count, sealed) {
            let keys = chunk.subtasks().map(|subtask| (subtask.number(), owned(subtask.keys())));
            self.keys.extend(keys);
            chunk.numbers().end
        } else if let Some(keys) = ChunkKeys::find(job, first, count, sealed) {
            self.keys.extend(keys.subtasks().map(|(number, keys)| (number, owned(keys))));
            keys.end()
        } else {
            return;
        };
        if self.end < first {
            self.unknown.push(self.end..first);
        }
        if self.unknown.is_empty() {
            self.ends.push(end);
        }
        self.end = self.end.max(end);
    }

    /// Returns the end of the chunks if the number of subtasks in the job's damaged row `row` agrees
    /// with them.
    fn confirmed_end(&self, row: &dyn StoredRow) -> Option<SubtaskNumber> {
        if self.is_inline {
            return self.ends.first().copied();
        }
        let stored = row.small(TOTAL).ok();
        let agrees = |end: &u32| stored == Some(*end) || fixed_with(row, Some(*end)).is_ok();
        let is_known = self.unknown.is_empty() && self.ends.iter().any(agrees);
        is_known.then_some(self.end)
    }

    /// Returns the keys of the unfinished ones of the first `end` subtasks, or `None` if some cannot
    /// be read.
    fn keys(self, end: SubtaskNumber, ended: &EndedSubtasks) -> Option<BTreeSet<Key>> {
        let behind = self.end.min(end)..end;
        let mut unknown = self.unknown.into_iter().chain([behind]).flatten();
        if unknown.any(|number| !ended.has(number)) {
            return None;
        }
        let unfinished = self.keys.into_iter().filter(|(number, _)| !ended.has(*number));
        Some(unfinished.flat_map(|(_, keys)| keys).collect())
    }
}
