//! Check of a whole store: every row's checksum, and the agreement between the rows.

use std::path::Path;

use keylane_storage::sqlite::{self, Lock};
use rusqlite::Connection;
use serde::Deserialize;

use super::alias;
use super::audit;
use super::census;
use super::chunk::Chunk;
use super::connection::StoreConnection;
use super::ended::EndedSubtasks;
use super::error::{ReadError, StoreDamage, StoreOpenError};
use super::handle::Store;
use super::job_status::{JobState, OutcomeCounts};
use super::live_settings;
use super::logs;
use super::open::{examine, look_at_mark};
use super::outcome::OutcomePosition;
use super::read::{self, StoredJob};
use super::recover::check_chunks;
use super::row_numbers::{at, rows_of};
use super::schedules;
use super::settings::StoreReport;
use super::started_attempts;
use super::tables::{JOB, LAYOUT, MetaRow};
use crate::ids::JobNumber;

impl Store {
    /// Reads the whole store and reports damage. Other readers and the writer continue.
    ///
    /// # Errors
    /// If the store cannot be read to its end.
    pub fn check(&self) -> Result<StoreReport, ReadError> {
        match self.is_in_file() {
            true => self.with_file_reader(|connection| {
                let _snapshot = connection.snapshot()?;
                check_all(connection, Some(connection))
            }),
            false => self.with_reader(|connection| {
                let _snapshot = connection.snapshot()?;
                check_all(connection, None)
            }),
        }
    }

    /// Checks a store that is not open, and that may be too damaged to be opened.
    ///
    /// # Errors
    /// If the file is open or is not a store, or cannot be read to its end.
    pub fn inspect(path: impl AsRef<Path>) -> Result<StoreReport, StoreOpenError> {
        let path = path.as_ref();
        let path = path.canonicalize().map_err(StoreOpenError::io("find the store", path))?;
        let _lock = Lock::take(&path).map_err(StoreOpenError::locked(&path))?;
        let reading = StoreOpenError::reading(&path);
        let connection = sqlite::reader(&path).map_err(|error| reading(error.into()))?;
        LAYOUT.preview(&connection).map_err(|error| reading(error.into()))?;
        examine(&connection, &path)?;
        let mut report = check_all(&connection, Some(&connection)).map_err(&reading)?;
        check_acknowledged(&connection, &path, &mut report)?;
        Ok(report)
    }
}

/// Checks all tables in one snapshot, and the file if they are in one.
fn check_all(
    snapshot: &dyn StoreConnection,
    file: Option<&Connection>,
) -> Result<StoreReport, ReadError> {
    let mut report = StoreReport::default();
    note(
        &mut report,
        MetaRow::load(snapshot)
            .and_then(|meta| meta.map(drop).ok_or(ReadError::Damaged(StoreDamage::Meta))),
    )?;
    check_jobs(snapshot, &mut report)?;
    if let Some(file) = file {
        check_census(file, &mut report)?;
    }
    check_orphans(snapshot, &mut report)?;
    check_marks(snapshot, &mut report)?;
    read::for_each_key(snapshot, |key| note(&mut report, key.map(drop)))?;
    read::for_each_idempotency(snapshot, |entry| note(&mut report, entry.map(drop)))?;
    alias::for_each(snapshot, |alias| note(&mut report, alias.map(drop)))?;
    schedules::for_each(snapshot, |record| note(&mut report, record.map(drop)))?;
    for setting in live_settings::all(snapshot)? {
        note(&mut report, setting.map(drop).map_err(ReadError::Damaged))?;
    }
    audit::for_each(snapshot, |row| note(&mut report, row.map(drop)))?;
    if let Some(file) = file {
        check_file(file, &mut report)?;
    }
    Ok(report)
}

/// Adds damage to the report; other errors end the check.
fn note(report: &mut StoreReport, result: Result<(), ReadError>) -> Result<(), ReadError> {
    match result {
        Err(ReadError::Damaged(damage)) => {
            report.damage.push(damage);
            Ok(())
        }
        other => other,
    }
}

/// Number of jobs whose rows are read together.
const JOBS_AT_ONCE: usize = 1_000;

fn check_jobs(connection: &dyn StoreConnection, report: &mut StoreReport) -> Result<(), ReadError> {
    let next = format!("SELECT {JOB} FROM job WHERE number >= ?1 ORDER BY number LIMIT ?2");
    let mut from = 0;
    loop {
        // A connection has one statement at a time, so the rows are read before the others of their jobs.
        let jobs = connection.all(&next, &[from.into(), JOBS_AT_ONCE.into()], |row| {
            Ok((row.number(0)?, read::stored(row), read::is_set_aside(row)?))
        })?;
        let Some((last, ..)) = jobs.last() else { return Ok(()) };
        from = last + 1;
        for (_, job, is_set_aside) in jobs {
            report.jobs += 1;
            match job {
                // A job that was set aside is known to be damaged.
                Ok((job, _)) if job.status.state == JobState::Damaged => {}
                Ok((job, has_chunk)) => check_job(connection, &job, has_chunk, report)?,
                // The rest of the row of a job that was set aside may be what is damaged.
                Err(_) if is_set_aside => {}
                Err(error) => note(report, Err(error))?,
            }
        }
    }
}

fn check_job(
    connection: &dyn StoreConnection,
    job: &StoredJob,
    has_chunk: bool,
    report: &mut StoreReport,
) -> Result<(), ReadError> {
    let number = job.number;
    if job.id.number() != number {
        report.damage.push(StoreDamage::Job { job: number });
    }
    report.unfinished += u64::from(!job.status.state.is_final());
    report.subtasks += u64::from(job.total);
    match has_chunk {
        true => note(report, read::find_chunk(connection, number, 0).map(drop))?,
        false => check_all_chunks(connection, number, job.total, report)?,
    }
    let mut ended = EndedSubtasks::new(number, job.total);
    let read = ended.read_on(connection);
    let is_known = read.is_ok();
    note(report, read)?;
    report.outcomes += ended.outcomes;
    let twice = ended.twice.iter();
    report.damage.extend(twice.map(|subtask| StoreDamage::Twice { job: number, number: *subtask }));
    if is_known && job.status.state.is_final() && !agree(job, &ended.counts) {
        report.damage.push(StoreDamage::Counts { job: number });
    }
    check_outcomes(connection, number, report)?;
    logs::for_each_of(connection, number, |log| note(report, log.map(drop)))
}

/// Steps of a job that have outcomes and do not count as subtasks.
#[derive(Default, Deserialize)]
#[serde(default)]
struct ExtraSteps {
    split: bool,
    fan_in: bool,
}

/// Returns whether the final counts of a job can follow from its outcomes.
///
/// Each succeeded, failed, skipped or superseded subtask has an outcome. A cancelled subtask has none if it
/// never started.
pub(super) fn agree(job: &StoredJob, found: &OutcomeCounts) -> bool {
    let counted = job.status.counts;
    let pairs = [
        (counted.succeeded, found.succeeded),
        (counted.failed, found.failed),
        (counted.skipped, found.skipped),
        (counted.superseded, found.superseded),
        (counted.cancelled.min(found.cancelled), found.cancelled),
    ];
    let surplus: Option<u32> =
        pairs.iter().map(|(counted, found)| found.checked_sub(*counted)).sum();
    let steps: ExtraSteps = serde_json::from_slice(&job.head).unwrap_or_default();
    surplus.is_some_and(|surplus| surplus <= u32::from(steps.split) + u32::from(steps.fan_in))
}

/// Checks each chunk of a job, and then that none is missing.
fn check_all_chunks(
    connection: &dyn StoreConnection,
    job: JobNumber,
    total: u32,
    report: &mut StoreReport,
) -> Result<(), ReadError> {
    let before = report.damage.len();
    let (first, _) = rows_of(job);
    let sql =
        "SELECT place, count, body FROM chunk WHERE place >= ?1 AND place < ?2 ORDER BY place";
    connection.each(sql, &[first.into(), (first + i64::from(total)).into()], |row| {
        let (_, number) = at(row.unsigned(0)?);
        let chunk: Option<Chunk> = read::chunk_of(row)?;
        if chunk.is_none() {
            report.damage.push(StoreDamage::Chunk { job, number });
        }
        Ok(())
    })?;
    // Behind a damaged chunk, the next expected number is unknown.
    if report.damage.len() == before {
        note(report, check_chunks(connection, job, total))?;
    }
    Ok(())
}

fn check_outcomes(
    connection: &dyn StoreConnection,
    job: JobNumber,
    report: &mut StoreReport,
) -> Result<(), ReadError> {
    let (first, last) = rows_of(job);
    let sql = "SELECT place, count, numbers, body FROM outcome
               WHERE place BETWEEN ?1 AND ?2 ORDER BY place";
    connection.each(sql, &[first.into(), last.into()], |row| {
        let (_, number) = at(row.unsigned(0)?);
        let named = StoreDamage::Outcomes { job, from: OutcomePosition::at(number, 0) };
        let read = read::row_of(row).map(drop);
        match read.is_ok() || !report.damage.contains(&named) {
            true => note(report, read),
            false => Ok(()),
        }
    })
}

/// Reports data of absent jobs that is not scheduled for deletion.
fn check_orphans(
    connection: &dyn StoreConnection,
    report: &mut StoreReport,
) -> Result<(), ReadError> {
    for table in ["chunk", "outcome", "log"] {
        let next = format!("SELECT place FROM {table} WHERE place >= ?1 ORDER BY place LIMIT 1");
        let known = "SELECT 1 FROM job WHERE number = ?1
                     UNION ALL SELECT 1 FROM loose WHERE job = ?1";
        let mut from = 0i64;
        loop {
            let place = connection.first(&next, &[from.into()], |row| row.unsigned(0))?;
            let Some(place) = place else { break };
            let (job, _) = at(place);
            let known = connection.finds(known, &[job.0.into()])?;
            let orphans = StoreDamage::Orphans { job };
            if !known && !report.damage.contains(&orphans) {
                report.damage.push(orphans);
            }
            let Some(after) = rows_of(job).1.checked_add(1) else { break };
            from = after;
        }
    }
    Ok(())
}

fn check_marks(
    connection: &dyn StoreConnection,
    report: &mut StoreReport,
) -> Result<(), ReadError> {
    connection.each("SELECT number, body FROM started ORDER BY number", &[], |row| {
        let number = row.unsigned(0)?;
        if started_attempts::decode(number, row.bytes(1)?).is_none() {
            report.damage.push(StoreDamage::Marks { row: number });
        }
        Ok(())
    })
}

/// Checks that the number of unfinished jobs is the recorded one, and that all are in the index.
fn check_census(connection: &Connection, report: &mut StoreReport) -> Result<(), ReadError> {
    let census = census::take(connection)?;
    report.damage.extend(census.not_in_index.into_iter().map(|job| StoreDamage::Index { job }));
    let known = MetaRow::load(connection).ok().flatten().and_then(|meta| meta.unfinished);
    let count = known.and_then(|known| known.checked_sub(census.unfinished.len() as u64));
    if let Some(count) = count.filter(|count| *count > 0) {
        report.damage.push(StoreDamage::MissingJobs { count });
    }
    Ok(())
}

/// Checks that no acknowledged commit is missing, without which a store is not opened.
fn check_acknowledged(
    connection: &Connection,
    path: &Path,
    report: &mut StoreReport,
) -> Result<(), StoreOpenError> {
    // Without its own counters, no mark belongs to the store.
    let Ok(Some(meta)) = MetaRow::load(connection) else { return Ok(()) };
    match look_at_mark(path, &meta) {
        Ok(()) => {}
        Err(StoreOpenError::Lost { has, acknowledged, .. }) => {
            report.damage.push(StoreDamage::Lost { has, acknowledged });
        }
        Err(StoreOpenError::Damaged(damage)) => report.damage.push(damage),
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Runs SQLite's check of the pages, and of the agreement between indexes and tables.
fn check_file(connection: &Connection, report: &mut StoreReport) -> Result<(), ReadError> {
    let mut statement = connection.prepare("PRAGMA integrity_check(100)")?;
    for line in statement.query_map([], |row| row.get::<_, String>(0))? {
        let why = line?;
        if why != "ok" {
            report.damage.push(StoreDamage::File { why });
        }
    }
    Ok(())
}
