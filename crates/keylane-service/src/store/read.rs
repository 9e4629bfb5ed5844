//! Reads of the tables.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, params};

use super::change::{IdempotencyEntry, KeyBlockReason, KeyRecord};
use super::chunk::Chunk;
use super::error::{ReadError, StoreDamage};
use super::job_status::{FIRST_FINAL, JobState, JobStatus};
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
    connection: &Connection,
    job: JobNumber,
) -> Result<Option<(StoredJob, bool)>, ReadError> {
    let mut find =
        connection.prepare_cached(&format!("SELECT {JOB} FROM job WHERE number = ?1"))?;
    let mut rows = find.query([job.0.cast_signed()])?;
    rows.next()?.map(stored).transpose()
}

/// Reads the identifier in a job's row, which may be wrong if the row is damaged.
pub(super) fn stored_id(
    connection: &Connection,
    job: JobNumber,
) -> Result<Option<JobId>, ReadError> {
    let mut find = connection.prepare_cached("SELECT id FROM job WHERE number = ?1")?;
    let mut rows = find.query([job.0.cast_signed()])?;
    Ok(rows.next()?.and_then(|row| row.get(0).ok()).map(JobId))
}

pub(super) fn stored(row: &rusqlite::Row<'_>) -> Result<(StoredJob, bool), ReadError> {
    let (number, fixed, status, has_chunk) = job_of(row)?;
    let FixedColumns { id, entered, created_ms, total, kind, head } = fixed;
    let job = StoredJob { number, id, entered, created_ms, total, kind, head, status };
    Ok((job, has_chunk))
}

pub(super) fn jobs(
    connection: &Connection,
    filter: &JobFilter,
    before: Option<JobNumber>,
    most: usize,
) -> Result<JobPage, ReadError> {
    let before = before.map_or(i64::MAX, |job| job.0.cast_signed());
    let snapshot = connection.unchecked_transaction()?;
    let mut page = JobPage::default();
    let numbers = if filter.states.is_empty() || filter.states.contains(&JobState::Succeeded) {
        all_before(&snapshot, before)?
    } else {
        in_states_before(&snapshot, &filter.states, before)?
    };
    let mut more = numbers.len() == MAX_LOOKED_AT;
    let mut last = None;
    for number in numbers {
        if page.jobs.len() == most {
            more = true;
            break;
        }
        last = Some(number);
        match find_job(&snapshot, number) {
            Ok(Some((job, _))) if filter.is_for(&job) => page.jobs.push(job),
            Ok(_) => {}
            Err(ReadError::Damaged(_)) => page.damaged.push(number),
            Err(error) => return Err(error),
        }
    }
    page.next = last.filter(|_| more);
    Ok(page)
}

fn all_before(connection: &Connection, before: i64) -> rusqlite::Result<Vec<JobNumber>> {
    let sql = "SELECT number FROM job WHERE number < ?1 ORDER BY number DESC LIMIT ?2";
    let mut newest = connection.prepare_cached(sql)?;
    let numbers = newest.query_map(params![before, MAX_LOOKED_AT as i64], number)?;
    numbers.collect()
}

/// Reads jobs through the state index, which is ordered by number within a state. Succeeded jobs
/// are not in it.
fn in_states_before(
    connection: &Connection,
    states: &[JobState],
    before: i64,
) -> rusqlite::Result<Vec<JobNumber>> {
    let mut of_state = connection.prepare_cached(
        "SELECT number FROM job WHERE state = ?1 AND state <> 16 AND number < ?2
         ORDER BY number DESC LIMIT ?3",
    )?;
    let mut numbers = Vec::new();
    for state in states {
        let parameters = params![state.code(), before, MAX_LOOKED_AT as i64];
        for job in of_state.query_map(parameters, number)? {
            numbers.push(job?);
        }
    }
    numbers.sort_unstable_by(|a, b| b.cmp(a));
    numbers.dedup();
    numbers.truncate(MAX_LOOKED_AT);
    Ok(numbers)
}

fn number(row: &rusqlite::Row<'_>) -> rusqlite::Result<JobNumber> {
    Ok(JobNumber(row.get::<_, i64>(0)?.cast_unsigned()))
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
    connection: &Connection,
    numbers: Range<u64>,
) -> Result<Vec<EndedJob>, ReadError> {
    let sql = format!("SELECT {JOB} FROM job WHERE number >= ?1 AND number < ?2");
    let mut find = connection.prepare_cached(&sql)?;
    let mut rows = find.query([numbers.start.cast_signed(), numbers.end.cast_signed()])?;
    let mut ends = Vec::new();
    while let Some(row) = rows.next()? {
        let (job, _) = match stored(row) {
            Ok(job) => job,
            Err(ReadError::Damaged(_)) => continue,
            Err(error) => return Err(error),
        };
        let ended = job.status.ended_ms.filter(|_| job.status.state.is_final());
        let StoredJob { number, kind, .. } = job;
        ends.extend(ended.map(|ended_ms| EndedJob { number, kind, ended_ms }));
    }
    Ok(ends)
}

/// Reads the chunk that contains a subtask.
pub(super) fn find_chunk(
    connection: &Connection,
    job: JobNumber,
    number: SubtaskNumber,
) -> Result<Chunk, ReadError> {
    let mut own = connection.prepare_cached("SELECT total, chunk FROM job WHERE number = ?1")?;
    let mut rows = own.query([job.0.cast_signed()])?;
    let row = rows.next()?.ok_or(ReadError::NoSuchJob { job })?;
    let total: u32 = row.get(0)?;
    if number >= total {
        return Err(ReadError::NoSuchSubtask { job, number });
    }
    let damaged = || ReadError::Damaged(StoreDamage::Chunk { job, number });
    if let Some(sealed) = row.get_ref(1)?.as_blob_or_null()? {
        return Chunk::open(job, 0, total, sealed).ok_or_else(damaged);
    }
    let mut find = connection.prepare_cached(
        "SELECT place, count, body FROM chunk WHERE place BETWEEN ?1 AND ?2
         ORDER BY place DESC LIMIT 1",
    )?;
    let places = [place(job, 0), place(job, number)].map(u64::cast_signed);
    let mut rows = find.query(places)?;
    let missing = StoreDamage::MissingSubtasks { job, from: number, until: number + 1 };
    let row = rows.next()?.ok_or(ReadError::Damaged(missing.clone()))?;
    let chunk = chunk_of(row)?.ok_or_else(damaged)?;
    match chunk.numbers().contains(&number) {
        true => Ok(chunk),
        false => Err(ReadError::Damaged(missing)),
    }
}

/// Decodes a row of `place, count, body`. Returns `None` if it is damaged.
pub(super) fn chunk_of(row: &rusqlite::Row<'_>) -> Result<Option<Chunk>, ReadError> {
    let (job, first) = at(row.get::<_, i64>(0)?.cast_unsigned());
    Ok(Chunk::open(job, first, row.get(1)?, row.get_ref(2)?.as_blob()?))
}

pub(super) fn outcomes(
    connection: &Connection,
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
    let mut rows = connection.prepare_cached(
        "SELECT place, count, numbers, body FROM outcome
         WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
    )?;
    let mut rows = rows.query([begin, last])?;
    let mut found = Vec::new();
    while found.len() < most
        && let Some(read) = rows.next()?
    {
        let (number, outcomes) = row_of(read)?;
        let skip = if u64::from(number) == row { skip } else { 0 };
        let recorded = (0..).zip(outcomes).skip(skip as usize).map(|(within, outcome)| {
            RecordedOutcome { place: OutcomePosition::at(number, within), outcome }
        });
        found.extend(recorded.take(most - found.len()));
    }
    Ok(found)
}

/// Decodes a row of outcomes, with its number within its job.
pub(super) fn row_of(row: &rusqlite::Row<'_>) -> Result<(u32, Vec<SubtaskOutcome>), ReadError> {
    let (job, number) = at(row.get::<_, i64>(0)?.cast_unsigned());
    let (numbers, body) = (row.get_ref(2)?.as_blob()?, row.get_ref(3)?.as_blob()?);
    let outcomes = outcome::outcomes(job, number, row.get(1)?, numbers, body);
    let from = OutcomePosition::at(number, 0);
    let damaged = ReadError::Damaged(StoreDamage::Outcomes { job, from });
    Ok((number, outcomes.ok_or(damaged)?))
}

pub(super) fn read_row(
    connection: &Connection,
    job: JobNumber,
    number: u32,
) -> Result<Vec<SubtaskOutcome>, ReadError> {
    let mut find = connection
        .prepare_cached("SELECT place, count, numbers, body FROM outcome WHERE place = ?1")?;
    let mut rows = find.query([place(job, number).cast_signed()])?;
    let from = OutcomePosition::at(number, 0);
    let row = rows.next()?.ok_or(ReadError::Damaged(StoreDamage::Outcomes { job, from }))?;
    Ok(row_of(row)?.1)
}

pub(super) fn keys(connection: &Connection) -> Result<Vec<(Key, KeyRecord)>, ReadError> {
    let mut keys = Vec::new();
    for_each_key(connection, |key| {
        keys.push(key?);
        Ok(())
    })?;
    Ok(keys)
}

/// Reads the records of all paused or stopped keys.
pub(super) fn for_each_key(
    connection: &Connection,
    mut then: impl FnMut(Result<(Key, KeyRecord), ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut all = connection
        .prepare_cached("SELECT name, state, since_ms, reason, seal FROM key ORDER BY name")?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        then(key_of(row))?;
    }
    Ok(())
}

pub(super) fn key_of(row: &rusqlite::Row<'_>) -> Result<(Key, KeyRecord), ReadError> {
    let name = row.get_ref(0)?.as_blob()?;
    let damaged = || {
        let key = name.escape_ascii().to_string();
        ReadError::Damaged(StoreDamage::Key { key })
    };
    let record = KeyRecord {
        state: KeyBlockReason::of_code(row.get(1)?).ok_or_else(damaged)?,
        since_ms: row.get::<_, i64>(2)?.cast_unsigned(),
        reason: row.get(3)?,
    };
    match row.get_ref(4)?.as_blob()? == seal_of_key(name, &record) {
        true => Ok((Key::new(name), record)),
        false => Err(damaged()),
    }
}

/// Decodes a row of `scope, key, expires_ms, body_hash, id, seal`.
pub(super) fn idempotency_of(
    row: &rusqlite::Row<'_>,
) -> Result<(IdempotencyEntry, JobId), ReadError> {
    let (scope, key): (String, String) = (row.get(0)?, row.get(1)?);
    let expires_ms = row.get::<_, i64>(2)?.cast_unsigned();
    let (body_hash, id) = (row.get(3)?, JobId(row.get(4)?));
    let entry = IdempotencyEntry { scope, key, body_hash, expires_ms };
    if row.get_ref(5)?.as_blob()? == seal_of_idempotency(&entry, id) {
        return Ok((entry, id));
    }
    let IdempotencyEntry { scope, key, .. } = entry;
    Err(ReadError::Damaged(StoreDamage::Idempotency { scope, key }))
}

/// Reads the unfinished jobs, in the order in which they entered.
pub(super) fn unfinished(connection: &Connection) -> rusqlite::Result<Vec<(u64, JobNumber)>> {
    let mut all =
        connection.prepare("SELECT entered, number FROM job WHERE state < 16 AND state <> 16")?;
    let jobs = all.query_map([], |row| {
        let [entered, number] = [row.get::<_, i64>(0)?, row.get(1)?].map(i64::cast_unsigned);
        Ok((entered, JobNumber(number)))
    })?;
    let mut jobs: Vec<_> = jobs.collect::<rusqlite::Result<_>>()?;
    jobs.sort_unstable();
    Ok(jobs)
}

/// Unfinished jobs according to the rows themselves, and not to the index.
#[derive(Debug, Default)]
pub(super) struct UnfinishedCensus {
    /// Order positions and numbers. A damaged row that claims that its job has ended counts as
    /// unfinished.
    pub(super) unfinished: Vec<(u64, JobNumber)>,
    /// Jobs that are unfinished by their rows and missing in the index.
    pub(super) not_in_index: Vec<JobNumber>,
}

/// Reads the rows of all jobs.
pub(super) fn census(connection: &Connection) -> Result<UnfinishedCensus, ReadError> {
    let mut all =
        connection.prepare("SELECT number, state, status, entered FROM job NOT INDEXED")?;
    let mut listed = connection.prepare(
        "SELECT EXISTS (SELECT 1 FROM job INDEXED BY job_by_state WHERE state = ?2 AND state <> 16 AND number = ?1)",
    )?;
    let mut rows = all.query([])?;
    let mut census = UnfinishedCensus::default();
    while let Some(row) = rows.next()? {
        if is_validly_over(row)? {
            continue;
        }
        let job = number(row)?;
        let entered = row.get::<_, i64>(3).map_or(0, i64::cast_unsigned);
        census.unfinished.push((entered, job));
        let state: Option<i64> = row.get(1).ok();
        if let Some(state) = state.filter(|state| *state < FIRST_FINAL)
            && !listed.query_row([job.0.cast_signed(), state], |row| row.get::<_, bool>(0))?
        {
            census.not_in_index.push(job);
        }
    }
    census.unfinished.sort_unstable();
    Ok(census)
}

/// Returns whether a row of `number, state, status` is valid and says that the job has ended.
fn is_validly_over(row: &rusqlite::Row<'_>) -> rusqlite::Result<bool> {
    Ok(valid_state(row)?.is_some_and(JobState::is_final))
}

/// Returns whether a row of `number, state, status` is valid and says that the job was set aside.
pub(super) fn is_set_aside(row: &rusqlite::Row<'_>) -> rusqlite::Result<bool> {
    Ok(valid_state(row)? == Some(JobState::Damaged))
}

/// Returns the state in a row of `number, state, status`, or `None` if it is damaged.
fn valid_state(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<JobState>> {
    let job = number(row)?;
    let (Ok(code), Ok(status)) = (row.get(1), row.get_ref(2)?.as_blob()) else { return Ok(None) };
    Ok(JobStatus::decode(job, code, status).map(|status| status.state))
}

/// Returns whether a job has ended by a valid row, or does not exist.
pub(super) fn is_over(connection: &Connection, job: JobNumber) -> rusqlite::Result<bool> {
    let mut find =
        connection.prepare_cached("SELECT number, state, status FROM job WHERE number = ?1")?;
    let mut rows = find.query([job.0.cast_signed()])?;
    rows.next()?.map_or(Ok(true), is_validly_over)
}

/// Reads all idempotency keys.
pub(super) fn for_each_idempotency(
    connection: &Connection,
    mut then: impl FnMut(Result<(IdempotencyEntry, JobId), ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let sql = "SELECT scope, key, expires_ms, body_hash, id, seal FROM idempotency";
    let mut all = connection.prepare(sql)?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        then(idempotency_of(row))?;
    }
    Ok(())
}

/// Returns whether the store has no job.
pub(super) fn is_empty(connection: &Connection) -> rusqlite::Result<bool> {
    let job = connection.query_row("SELECT 1 FROM job LIMIT 1", [], |_| Ok(())).optional()?;
    Ok(job.is_none() && super::audit::is_unused(connection)?)
}
