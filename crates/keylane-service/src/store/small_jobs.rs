//! Reads of many small jobs with two statements, for the recovery: a statement costs more than a small job, above all if a
//! database executes it.

use std::collections::HashMap;

use super::chunk::Chunk;
use super::connection::{Parameter, StoreConnection, StoredRow};
use super::ended::EndedSubtasks;
use super::error::ReadError;
use super::read::{self, StoredJob};
use super::row_numbers::{PLACES, at};
use super::tables::JOB;
use crate::ids::JobNumber;

/// Maximum number of jobs that are read together.
pub(super) const MAX_TOGETHER: usize = 256;

/// Column of the chunk, behind those of [`JOB`].
const CHUNK: usize = 10;

/// Job whose only chunk is in its row.
pub(super) struct SmallJob {
    pub(super) job: StoredJob,
    pub(super) chunk: Chunk,
    pub(super) ended: EndedSubtasks,
}

/// Reads those of at most [`MAX_TOGETHER`] jobs that are small and undamaged. Why another one is missing is for a read of that job to say.
///
/// # Errors
/// If a statement fails.
pub(super) fn small_jobs(
    connection: &dyn StoreConnection,
    numbers: &[JobNumber],
) -> Result<HashMap<JobNumber, SmallJob>, ReadError> {
    let mut found = HashMap::with_capacity(numbers.len());
    let sql = format!("SELECT {JOB}, chunk FROM job WHERE number IN ({})", parameters_in_sql());
    connection.each(&sql, &padded(numbers.iter().copied()), |row| {
        let small = unless_damaged(small_job(row))?.flatten();
        found.extend(small.map(|small| (small.job.number, small)));
        Ok(())
    })?;
    read_outcomes(connection, &mut found)?;
    Ok(found)
}

/// Decodes a row of the columns [`JOB`] and the chunk. Returns `None` if the chunk is elsewhere or damaged.
fn small_job(row: &dyn StoredRow) -> Result<Option<SmallJob>, ReadError> {
    let (job, has_chunk) = read::stored(row)?;
    if !has_chunk || job.total == 0 {
        return Ok(None);
    }
    let chunk = Chunk::open(job.number, 0, job.total, row.bytes(CHUNK)?);
    let ended = EndedSubtasks::new(job.number, job.total);
    Ok(chunk.map(|chunk| SmallJob { job, chunk, ended }))
}

/// Reads the outcomes of these jobs, and removes those in which one is damaged.
fn read_outcomes(
    connection: &dyn StoreConnection,
    jobs: &mut HashMap<JobNumber, SmallJob>,
) -> Result<(), ReadError> {
    if jobs.is_empty() {
        return Ok(());
    }
    // The join is in this order for SQLite, which would otherwise be free to read all outcomes.
    let sql = format!(
        "SELECT outcome.place, outcome.count, outcome.numbers FROM job CROSS JOIN outcome
         WHERE job.number IN ({}) AND outcome.place >= job.number * {PLACES}
             AND outcome.place < (job.number + 1) * {PLACES}
         ORDER BY outcome.place",
        parameters_in_sql()
    );
    connection.each(&sql, &padded(jobs.keys().copied()), |row| {
        let (number, _) = at(row.unsigned(0)?);
        let added = jobs.get_mut(&number).map(|small| unless_damaged(small.ended.add_row(row)));
        if let Some(None) = added.transpose()? {
            jobs.remove(&number);
        }
        Ok(())
    })
}

/// Returns `None` for damage.
fn unless_damaged<T>(read: Result<T, ReadError>) -> Result<Option<T>, ReadError> {
    match read {
        Err(ReadError::Damaged(_)) => Ok(None),
        other => other.map(Some),
    }
}

/// Returns `?1, ?2` and so on, always as many, so that the statement is prepared once.
fn parameters_in_sql() -> String {
    let all: Vec<_> = (1..=MAX_TOGETHER).map(|number| format!("?{number}")).collect();
    all.join(", ")
}

/// Returns the numbers as parameters, the last one as often as there are parameters left.
fn padded(numbers: impl Iterator<Item = JobNumber>) -> Vec<Parameter<'static>> {
    let mut all: Vec<Parameter<'static>> = numbers.map(|number| number.0.into()).collect();
    debug_assert!(all.len() <= MAX_TOGETHER);
    let last = all.last().copied().unwrap_or(Parameter::Null);
    all.resize(MAX_TOGETHER, last);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{
        Changes, JobStatus, NewJob, OutcomeKind, Store, StoreSettings, SubtaskOutcome,
    };

    #[test]
    fn small_jobs_are_found_with_their_chunks_and_outcomes() {
        let folder = tempfile::tempdir().unwrap();
        let (store, _) =
            Store::open(folder.path().join("store"), &StoreSettings::default()).unwrap();
        let accept = |bytes: usize| {
            let mut upload = store.upload(2).unwrap();
            for _ in 0..2 {
                upload.push(&["key"], &vec![7; bytes]).unwrap();
            }
            let (number, kind, status) = (upload.job(), "kind".into(), JobStatus::WAITING);
            let new = NewJob { kind, created_ms: 1, head: Vec::new(), status, idempotency: None };
            upload.finish(new).wait().unwrap();
            number
        };
        let small: Vec<_> = (0..20).map(accept).collect();
        let large = accept(100_000);
        let end = |job, number| {
            let mut changes = Changes::new();
            let kind = OutcomeKind::Succeeded;
            let (started_ms, ended_ms, result) = (1, 2, Vec::new());
            let outcome = SubtaskOutcome { number, attempt: 1, kind, started_ms, ended_ms, result };
            changes.ended(job, outcome);
            store.submit(changes).wait().unwrap();
        };
        // The last one has a row of outcomes for each.
        for (job, number) in [(small[3], 1), (small[19], 1), (small[19], 0)] {
            end(job, number);
        }
        let missing = JobNumber(1 << 30);
        let asked: Vec<_> = small.iter().copied().chain([large, missing]).collect();
        let found = store.with_reader(|reader| small_jobs(reader, &asked)).unwrap();
        let mut numbers: Vec<_> = found.keys().copied().collect();
        numbers.sort_unstable();
        assert_eq!(numbers, small);
        for (at, job) in small.iter().enumerate() {
            let SmallJob { job, chunk, ended } = &found[job];
            assert_eq!((job.total, chunk.numbers(), chunk.job()), (2, 0..2, job.number));
            assert!(chunk.subtasks().all(|subtask| subtask.payload().len() == at));
            let has = [0, 1].map(|number| ended.has(number));
            assert_eq!(has, [at == 19, at == 3 || at == 19], "{at}");
        }
    }
}
