//! Reads of the tables.

use std::fmt;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::change::{IdempotencyEntry, KeyBlockReason, KeyRecord};
use super::chunk::Chunk;
use super::connection::{StoreConnection, StoredRow};
use super::error::{ReadError, StoreDamage};
use super::job_status::{JobState, JobStatus};
use super::key_rows::{seal_of_idempotency, seal_of_key};
use super::outcome::{self, OutcomePosition, RecordedOutcome, SubtaskOutcome};
use super::row_numbers::{at, place, rows_of};
use super::tables::{FixedColumns, JOB, job_of};
use crate::ids::{JobId, JobNumber, Key, SubtaskNumber};

/// Finished job.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EndedJob {
    /// Store-internal number.
    pub number: JobNumber,
    /// Kind.
    pub kind: String,
    /// Time of its end, in milliseconds since 1970.
    pub ended_ms: u64,
}

/// Job as stored on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StoredJob {
    /// Store-internal number.
    pub number: JobNumber,
    /// Public identifier.
    pub id: JobId,
    /// Position in the order in which jobs, and the subtasks added to them later, entered the
    /// store.
    pub entered: u64,
    /// Creation time, in milliseconds since 1970.
    pub created_ms: u64,
    /// Number of subtasks.
    pub total: u32,
    /// Kind, which names the handler of the subtasks.
    pub kind: String,
    /// Caller's own record, opaque to the store.
    pub head: Vec<u8>,
    /// State and its history.
    pub status: JobStatus,
}

/// Filter for a list of jobs.
#[derive(Clone, Default)]
pub struct JobFilter {
    /// States to include; empty for all.
    pub states: Vec<JobState>,
    /// Kind to include; `None` for all.
    pub kind: Option<String>,
    /// Further condition, for example on labels in the head; `None` for all jobs.
    pub matches: Option<Arc<JobPredicate>>,
}

/// Condition on a stored job.
pub type JobPredicate = dyn Fn(&StoredJob) -> bool + Send + Sync;

/// Page of a list of jobs.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct JobPage {
    /// Jobs, newest first.
    pub jobs: Vec<StoredJob>,
    /// Numbers of jobs with damaged rows, to which the filter cannot be applied.
    pub damaged: Vec<JobNumber>,
    /// Start of the next page, or `None` after the last one. A page can be shorter than its limit,
    /// or empty, with others behind it.
    pub next: Option<JobNumber>,
}

/// Maximum number of rows examined for a page. It bounds the duration of a query with few matches.
const MAX_LOOKED_AT: usize = 10_000;

/// Reads a job, and whether its chunk is in its row.
pub(super) fn find_job(
    connection: &dyn StoreConnection,
    job: JobNumber,
) -> Result<Option<(StoredJob, bool)>, ReadError> {
    let sql = format!("SELECT {JOB} FROM job WHERE number = ?1");
    connection.first(&sql, &[job.0.into()], stored)
}

/// Reads the identifier in a job's row, which may be wrong if the row is damaged.
pub(super) fn stored_id(
    connection: &dyn StoreConnection,
    job: JobNumber,
) -> Result<Option<JobId>, ReadError> {
    let sql = "SELECT id FROM job WHERE number = ?1";
    let id = connection.first(sql, &[job.0.into()], |row| Ok(row.array(0).ok()))?;
    Ok(id.flatten().map(JobId))
}

pub(super) fn stored(row: &dyn StoredRow) -> Result<(StoredJob, bool), ReadError> {
    let (number, fixed, status, has_chunk) = job_of(row)?;
    let FixedColumns { id, entered, created_ms, total, kind, head } = fixed;
    let job = StoredJob { number, id, entered, created_ms, total, kind, head, status };
    Ok((job, has_chunk))
}

pub(super) fn jobs(
    connection: &dyn StoreConnection,
    filter: &JobFilter,
    before: Option<JobNumber>,
    most: usize,
) -> Result<JobPage, ReadError> {
    let before = before.map_or(i64::MAX, |job| job.0.cast_signed());
    let _snapshot = connection.snapshot()?;
    let mut page = JobPage::default();
    let numbers = if filter.states.is_empty() || filter.states.contains(&JobState::Succeeded) {
        all_before(connection, before)?
    } else {
        in_states_before(connection, &filter.states, before)?
    };
    let mut more = numbers.len() == MAX_LOOKED_AT;
    let mut last = None;
    for number in numbers {
        if page.jobs.len() == most {
            more = true;
            break;
        }
        last = Some(number);
        match find_job(connection, number) {
            Ok(Some((job, _))) if filter.is_for(&job) => page.jobs.push(job),
            Ok(_) => {}
            Err(ReadError::Damaged(_)) => page.damaged.push(number),
            Err(error) => return Err(error),
        }
    }
    page.next = last.filter(|_| more);
    Ok(page)
}

fn all_before(connection: &dyn StoreConnection, before: i64) -> Result<Vec<JobNumber>, ReadError> {
    let sql = "SELECT number FROM job WHERE number < ?1 ORDER BY number DESC LIMIT ?2";
    connection.all(sql, &[before.into(), MAX_LOOKED_AT.into()], number)
}

/// Reads jobs through the state index, which is ordered by number within a state. Succeeded jobs
/// are not in it.
fn in_states_before(
    connection: &dyn StoreConnection,
    states: &[JobState],
    before: i64,
) -> Result<Vec<JobNumber>, ReadError> {
    let of_state = "SELECT number FROM job WHERE state = ?1 AND state <> 16 AND number < ?2
                    ORDER BY number DESC LIMIT ?3";
    let mut numbers = Vec::new();
    for state in states {
        let parameters = [state.code().into(), before.into(), MAX_LOOKED_AT.into()];
        numbers.extend(connection.all(of_state, &parameters, number)?);
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.dedup();
    numbers.truncate(MAX_LOOKED_AT);
    Ok(numbers)
}

fn number(row: &dyn StoredRow) -> Result<JobNumber, ReadError> {
    Ok(JobNumber(row.unsigned(0)?))
}

impl JobFilter {
    fn is_for(&self, job: &StoredJob) -> bool {
        (self.states.is_empty() || self.states.contains(&job.status.state))
            && self.kind.as_ref().is_none_or(|kind| *kind == job.kind)
            && self.matches.as_ref().is_none_or(|matches| matches(job))
    }
}

impl fmt::Debug for JobFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("JobFilter");
        debug.field("states", &self.states).field("kind", &self.kind);
        debug.field("matches", &self.matches.is_some()).finish()
    }
}

pub(super) fn ends(
    connection: &dyn StoreConnection,
    numbers: Range<u64>,
) -> Result<Vec<EndedJob>, ReadError> {
    let sql = format!("SELECT {JOB} FROM job WHERE number >= ?1 AND number < ?2");
    let mut ends = Vec::new();
    connection.each(&sql, &[numbers.start.into(), numbers.end.into()], |row| {
        let (job, _) = match stored(row) {
            Ok(job) => job,
            Err(ReadError::Damaged(_)) => return Ok(()),
            Err(error) => return Err(error),
        };
        let ended = job.status.ended_ms.filter(|_| job.status.state.is_final());
        let StoredJob { number, kind, .. } = job;
        ends.extend(ended.map(|ended_ms| EndedJob { number, kind, ended_ms }));
        Ok(())
    })?;
    Ok(ends)
}

/// Reads the chunk that contains a subtask.
pub(super) fn find_chunk(
    connection: &dyn StoreConnection,
    job: JobNumber,
    number: SubtaskNumber,
) -> Result<Chunk, ReadError> {
    let damaged = || ReadError::Damaged(StoreDamage::Chunk { job, number });
    let own = "SELECT total, chunk FROM job WHERE number = ?1";
    let own = connection.first(own, &[job.0.into()], |row| {
        let total = row.small(0)?;
        if number >= total {
            return Err(ReadError::NoSuchSubtask { job, number });
        }
        let inline = row.optional_bytes(1)?;
        inline.map(|sealed| Chunk::open(job, 0, total, sealed).ok_or_else(damaged)).transpose()
    })?;
    if let Some(inline) = own.ok_or(ReadError::NoSuchJob { job })? {
        return Ok(inline);
    }
    let find = "SELECT place, count, body FROM chunk WHERE place BETWEEN ?1 AND ?2
                ORDER BY place DESC LIMIT 1";
    let places = [place(job, 0).into(), place(job, number).into()];
    let chunk = connection.first(find, &places, chunk_of)?;
    let missing = StoreDamage::MissingSubtasks { job, from: number, until: number + 1 };
    let chunk = chunk.ok_or(ReadError::Damaged(missing.clone()))?.ok_or_else(damaged)?;
    match chunk.numbers().contains(&number) {
        true => Ok(chunk),
        false => Err(ReadError::Damaged(missing)),
    }
}

/// Decodes a row of `place, count, body`. Returns `None` if it is damaged.
pub(super) fn chunk_of(row: &dyn StoredRow) -> Result<Option<Chunk>, ReadError> {
    let (job, first) = at(row.unsigned(0)?);
    Ok(Chunk::open(job, first, row.small(1)?, row.bytes(2)?))
}

pub(super) fn outcomes(
    connection: &dyn StoreConnection,
    job: JobNumber,
    after: Option<OutcomePosition>,
    most: usize,
) -> Result<Vec<RecordedOutcome>, ReadError> {
    let (first, last) = rows_of(job);
    let (row, skip) = after.map_or((0, 0), |place| {
        let (row, within) = place.row();
        (row, within + 1)
    });
    let begin = first.saturating_add(row.cast_signed());
    let rows = "SELECT place, count, numbers, body FROM outcome
                WHERE place BETWEEN ?1 AND ?2 ORDER BY place";
    let mut found = Vec::new();
    connection.for_each_row(rows, &[begin.into(), last.into()], &mut |read| {
        let (number, outcomes) = row_of(read)?;
        let skip = if u64::from(number) == row { skip } else { 0 };
        let recorded = (0..).zip(outcomes).skip(skip as usize).map(|(within, outcome)| {
            RecordedOutcome { place: OutcomePosition::at(number, within), outcome }
        });
        found.extend(recorded.take(most - found.len()));
        Ok(if found.len() < most { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    Ok(found)
}

/// Decodes a row of outcomes, with its number within its job.
pub(super) fn row_of(row: &dyn StoredRow) -> Result<(u32, Vec<SubtaskOutcome>), ReadError> {
    let (job, number) = at(row.unsigned(0)?);
    let (numbers, body) = (row.bytes(2)?, row.bytes(3)?);
    let outcomes = outcome::outcomes(job, number, row.small(1)?, numbers, body);
    let from = OutcomePosition::at(number, 0);
    let damaged = ReadError::Damaged(StoreDamage::Outcomes { job, from });
    Ok((number, outcomes.ok_or(damaged)?))
}

pub(super) fn read_row(
    connection: &dyn StoreConnection,
    job: JobNumber,
    number: u32,
) -> Result<Vec<SubtaskOutcome>, ReadError> {
    let sql = "SELECT place, count, numbers, body FROM outcome WHERE place = ?1";
    let row = connection.first(sql, &[place(job, number).into()], row_of)?;
    let from = OutcomePosition::at(number, 0);
    Ok(row.ok_or(ReadError::Damaged(StoreDamage::Outcomes { job, from }))?.1)
}

pub(super) fn keys(connection: &dyn StoreConnection) -> Result<Vec<(Key, KeyRecord)>, ReadError> {
    let mut keys = Vec::new();
    for_each_key(connection, |key| {
        keys.push(key?);
        Ok(())
    })?;
    Ok(keys)
}

/// Reads the records of all paused or stopped keys.
pub(super) fn for_each_key(
    connection: &dyn StoreConnection,
    mut then: impl FnMut(Result<(Key, KeyRecord), ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let sql = "SELECT name, state, since_ms, reason, seal FROM key ORDER BY name";
    connection.each(sql, &[], |row| then(key_of(row)))
}

pub(super) fn key_of(row: &dyn StoredRow) -> Result<(Key, KeyRecord), ReadError> {
    let name = row.bytes(0)?;
    let damaged = || {
        let key = name.escape_ascii().to_string();
        ReadError::Damaged(StoreDamage::Key { key })
    };
    let record = KeyRecord {
        state: KeyBlockReason::of_code(row.number(1)?).ok_or_else(damaged)?,
        since_ms: row.unsigned(2)?,
        reason: row.text(3)?,
    };
    match row.bytes(4)? == seal_of_key(name, &record) {
        true => Ok((Key::new(name), record)),
        false => Err(damaged()),
    }
}

/// Decodes a row of `scope, key, expires_ms, body_hash, id, seal`.
pub(super) fn idempotency_of(row: &dyn StoredRow) -> Result<(IdempotencyEntry, JobId), ReadError> {
    let (scope, key, expires_ms) = (row.text(0)?, row.text(1)?, row.unsigned(2)?);
    let (body_hash, id) = (row.array(3)?, JobId(row.array(4)?));
    let entry = IdempotencyEntry { scope, key, body_hash, expires_ms };
    if row.bytes(5)? == seal_of_idempotency(&entry, id) {
        return Ok((entry, id));
    }
    let IdempotencyEntry { scope, key, .. } = entry;
    Err(ReadError::Damaged(StoreDamage::Idempotency { scope, key }))
}

/// Reads the unfinished jobs, in the order in which they entered.
pub(super) fn unfinished(
    connection: &dyn StoreConnection,
) -> Result<Vec<(u64, JobNumber)>, ReadError> {
    let sql = "SELECT entered, number FROM job WHERE state < 16 AND state <> 16";
    let mut jobs =
        connection.all(sql, &[], |row| Ok((row.unsigned(0)?, JobNumber(row.unsigned(1)?))))?;
    jobs.sort_unstable();
    Ok(jobs)
}

/// Returns whether a row of `number, state, status` is valid and says that the job has ended.
pub(super) fn is_validly_over(row: &dyn StoredRow) -> Result<bool, ReadError> {
    Ok(valid_state(row)?.is_some_and(JobState::is_final))
}

/// Returns whether a row of `number, state, status` is valid and says that the job was set aside.
pub(super) fn is_set_aside(row: &dyn StoredRow) -> Result<bool, ReadError> {
    Ok(valid_state(row)? == Some(JobState::Damaged))
}

/// Returns the state in a row of `number, state, status`, or `None` if it is damaged.
fn valid_state(row: &dyn StoredRow) -> Result<Option<JobState>, ReadError> {
    let job = number(row)?;
    let (Ok(code), Ok(status)) = (row.number(1), row.bytes(2)) else { return Ok(None) };
    Ok(JobStatus::decode(job, code, status).map(|status| status.state))
}

/// Returns whether a job has ended by a valid row, or does not exist.
pub(super) fn is_over(connection: &dyn StoreConnection, job: JobNumber) -> Result<bool, ReadError> {
    let sql = "SELECT number, state, status FROM job WHERE number = ?1";
    Ok(connection.first(sql, &[job.0.into()], is_validly_over)?.unwrap_or(true))
}

/// Reads all idempotency keys.
pub(super) fn for_each_idempotency(
    connection: &dyn StoreConnection,
    mut then: impl FnMut(Result<(IdempotencyEntry, JobId), ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let sql = "SELECT scope, key, expires_ms, body_hash, id, seal FROM idempotency";
    connection.each(sql, &[], |row| then(idempotency_of(row)))
}

/// Returns whether the store has no job.
pub(super) fn is_empty(connection: &dyn StoreConnection) -> Result<bool, ReadError> {
    let has_job = connection.finds("SELECT 1 FROM job LIMIT 1", &[])?;
    Ok(!has_job && super::audit::is_unused(connection)?)
}
