//! Index of a job's ended subtasks: for each the kind and the position of its outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

use super::error::{Damage, ReadError};
use super::outcome::{self, OutcomeKind, OutcomePlace};
use super::places::{at, place, rows_of};
use super::status::Counts;
use crate::ids::{JobNumber, SubtaskNumber};

/// Index of a job's outcomes, up to one of its rows.
#[derive(Clone, Debug)]
pub(super) struct EndedSubtasks {
    job: JobNumber,
    /// For each subtask the packed position and kind of its outcome; 0 if it has not ended.
    places: Vec<u64>,
    pub(super) counts: Counts,
    /// Number of outcomes, including those before a reopening.
    pub(super) outcomes: u64,
    /// One past the last row read.
    next_row: u32,
    /// Subtasks that ended twice without a reopening. At most [`MAX_NAMED`] are kept.
    pub(super) twice: Vec<SubtaskNumber>,
}

/// Maximum number of subtasks reported as ended twice.
const MAX_NAMED: usize = 100;

impl EndedSubtasks {
    pub(super) fn new(job: JobNumber, total: u32) -> Self {
        let places = vec![0; total as usize];
        let counts = Counts::default();
        EndedSubtasks { job, places, counts, outcomes: 0, next_row: 0, twice: Vec::new() }
    }

    /// Returns whether a subtask has ended.
    pub(super) fn has(&self, number: SubtaskNumber) -> bool {
        self.places.get(number as usize).is_some_and(|place| *place != 0)
    }

    /// Returns the position of a subtask's outcome, if it has one.
    pub(super) fn place(&self, number: SubtaskNumber) -> Option<OutcomePlace> {
        let place = self.places.get(number as usize)?.checked_sub(1)?;
        Some(OutcomePlace::new(place >> KIND_BITS))
    }

    /// Returns whether this connection sees all rows of the index. A snapshot older than the last
    /// read does not.
    fn is_seen_by(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let Some(last) = self.next_row.checked_sub(1) else { return Ok(true) };
        let mut find =
            connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM outcome WHERE place = ?1)")?;
        find.query_row([place(self.job, last).cast_signed()], |row| row.get(0))
    }

    /// Reads the rows added since the last read.
    pub(super) fn read_on(&mut self, connection: &Connection) -> Result<(), ReadError> {
        let (first, last) = rows_of(self.job);
        let mut rows = connection.prepare_cached(
            "SELECT place, count, numbers FROM outcome WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
        )?;
        let mut rows = rows.query([first + i64::from(self.next_row), last])?;
        while let Some(row) = rows.next()? {
            let place = row.get::<_, i64>(0)?.cast_unsigned();
            let (_, number) = at(place);
            let job = self.job;
            let damaged = |row| {
                let from = OutcomePlace::at(row, 0);
                ReadError::Damaged(Damage::Outcomes { job, from })
            };
            // A gap in the numbers is a missing row.
            if number != self.next_row {
                return Err(damaged(self.next_row));
            }
            let numbers = outcome::numbers(place, row.get(1)?, row.get_ref(2)?.as_blob()?);
            for (within, (subtask, _, kind)) in (0..).zip(numbers.ok_or_else(|| damaged(number))?) {
                let known = self.note(subtask, kind, OutcomePlace::at(number, within));
                known.ok_or_else(|| damaged(number))?;
            }
            self.next_row += 1;
        }
        Ok(())
    }

    fn note(
        &mut self,
        subtask: SubtaskNumber,
        kind: OutcomeKind,
        place: OutcomePlace,
    ) -> Option<()> {
        self.outcomes += 1;
        let entry = self.places.get_mut(subtask as usize)?;
        let before = *entry;
        let is_over = kind != OutcomeKind::Reopened;
        *entry = if is_over { pack(place, kind) } else { 0 };
        if before != 0 {
            *count(&mut self.counts, unpack_kind(before)) -= 1;
        }
        if is_over {
            *count(&mut self.counts, kind) += 1;
            if before != 0 && self.twice.len() < MAX_NAMED {
                self.twice.push(subtask);
            }
        }
        Some(())
    }
}

const KIND_BITS: u32 = 3;

/// Packs a position and a kind, plus one so that the result is never 0.
fn pack(place: OutcomePlace, kind: OutcomeKind) -> u64 {
    ((place.get() << KIND_BITS) | u64::from(kind.code())) + 1
}

fn unpack_kind(packed: u64) -> OutcomeKind {
    let code = ((packed - 1) & 7) as u8;
    let kind = OutcomeKind::ALL.into_iter().find(|kind| kind.code() == code);
    kind.expect("only kinds are packed")
}

fn count(counts: &mut Counts, kind: OutcomeKind) -> &mut u32 {
    match kind {
        OutcomeKind::Succeeded => &mut counts.succeeded,
        OutcomeKind::Failed => &mut counts.failed,
        OutcomeKind::Cancelled => &mut counts.cancelled,
        OutcomeKind::Skipped => &mut counts.skipped,
        OutcomeKind::Reopened => unreachable!("what was reopened has not ended"),
    }
}

/// Maximum size of the cached indexes, in bytes. Those used last are kept.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Cache of indexes for queries of outcomes by subtask numbers.
#[derive(Debug, Default)]
pub(super) struct EndedCache {
    /// No code that holds this lock unwinds.
    inner: Mutex<CachedIndexes>,
}

/// Indexes by job. Queries of one job exclude each other, so that its rows are read once for all of
/// them.
#[derive(Debug, Default)]
struct CachedIndexes {
    jobs: BTreeMap<JobNumber, CachedIndex>,
    /// One past the last use.
    clock: u64,
}

#[derive(Debug)]
struct CachedIndex {
    ended: Arc<Mutex<EndedSubtasks>>,
    /// Size of `ended` at the last use, in bytes.
    bytes: usize,
    used: u64,
}

impl EndedCache {
    /// Calls `look` with the current index of a job.
    pub(super) fn with<T>(
        &self,
        connection: &Connection,
        job: JobNumber,
        total: u32,
        look: impl FnOnce(&EndedSubtasks) -> T,
    ) -> Result<T, ReadError> {
        let kept = self.keep(job, total);
        let mut ended = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !ended.is_seen_by(connection)? {
            // A private index: this reader's snapshot is older than the cached index.
            drop(ended);
            let mut ended = EndedSubtasks::new(job, total);
            ended.read_on(connection)?;
            return Ok(look(&ended));
        }
        // The job may have gained subtasks since.
        let places = (total as usize).max(ended.places.len());
        ended.places.resize(places, 0);
        if let Err(error) = ended.read_on(connection) {
            // An index that met a damaged row is not kept.
            *ended = EndedSubtasks::new(job, total);
            return Err(error);
        }
        Ok(look(&ended))
    }

    /// Returns the cached index of a job, or a new one, and evicts those used least recently. The
    /// requested index stays however large it is, so that its rows are not read again for each
    /// page.
    fn keep(&self, job: JobNumber, total: u32) -> Arc<Mutex<EndedSubtasks>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clock += 1;
        let clock = inner.clock;
        let kept = inner.jobs.entry(job).or_insert_with(|| CachedIndex {
            ended: Arc::new(Mutex::new(EndedSubtasks::new(job, total))),
            bytes: 0,
            used: 0,
        });
        kept.used = clock;
        kept.bytes = total as usize * size_of::<u64>();
        let ended = Arc::clone(&kept.ended);
        let mut bytes = inner.jobs.values().map(|kept| kept.bytes).sum::<usize>();
        while bytes > MAX_BYTES && inner.jobs.len() > 1 {
            let oldest = inner.jobs.iter().min_by_key(|(_, kept)| kept.used);
            let oldest = oldest.map(|(job, _)| *job).expect("there is more than one");
            bytes -= inner.jobs.remove(&oldest).map_or(0, |kept| kept.bytes);
        }
        ended
    }

    pub(super) fn forget(&self, job: JobNumber) {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).jobs.remove(&job);
    }
}

#[cfg(test)]
mod tests {
    use super::super::outcome::{Outcome, OutcomeRow};
    use super::super::tables::LAYOUT;
    use super::*;

    #[test]
    fn what_a_later_reader_has_found_is_not_for_one_that_began_before() {
        let folder = tempfile::tempdir().unwrap();
        let open = || Connection::open(folder.path().join("file")).unwrap();
        let (later, earlier) = (open(), open());
        later.pragma_update(None, "journal_mode", "wal").unwrap();
        later.execute_batch(LAYOUT.tables).unwrap();
        let earlier = earlier.unchecked_transaction().unwrap();
        let rows: i64 =
            earlier.query_row("SELECT count(*) FROM outcome", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 0);

        let (job, mut row) = (JobNumber(3), OutcomeRow::default());
        let (kind, result) = (OutcomeKind::Failed, Vec::new());
        row.push(&Outcome { number: 0, attempt: 1, kind, started_ms: 1, ended_ms: 2, result });
        let place = place(job, 0);
        let (count, numbers, body) = row.sealed(place);
        let sql = "INSERT INTO outcome (place, count, numbers, body) VALUES (?1, ?2, ?3, ?4)";
        later.execute(sql, rusqlite::params![place.cast_signed(), count, numbers, body]).unwrap();

        let cache = EndedCache::default();
        let has = |reader: &Connection| cache.with(reader, job, 1, |ended| ended.has(0)).unwrap();
        assert!(has(&later));
        assert!(!has(&earlier));
        assert!(has(&later));
    }

    /// Regression: an index of more than 4,194,304 subtasks was cached and evicted at once, so each
    /// page of results read all rows.
    #[test]
    fn the_job_that_is_asked_about_is_kept_however_large_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join("file")).unwrap();
        connection.execute_batch(LAYOUT.tables).unwrap();
        let (job, large) = (JobNumber(3), (MAX_BYTES / 8 + 1) as u32);
        let mut row = OutcomeRow::default();
        let (kind, result) = (OutcomeKind::Failed, Vec::new());
        row.push(&Outcome { number: 7, attempt: 1, kind, started_ms: 1, ended_ms: 2, result });
        let place = place(job, 0);
        let (count, numbers, body) = row.sealed(place);
        let sql = "INSERT INTO outcome (place, count, numbers, body) VALUES (?1, ?2, ?3, ?4)";
        connection
            .execute(sql, rusqlite::params![place.cast_signed(), count, numbers, body])
            .unwrap();

        let cache = EndedCache::default();
        let rows_read = || cache.with(&connection, job, large, |ended| ended.next_row).unwrap();
        assert_eq!(rows_read(), 1);
        let kept = || cache.inner.lock().unwrap().jobs.keys().copied().collect::<Vec<_>>();
        assert_eq!(kept(), [job], "the next page reads only what has come since");
        cache.with(&connection, JobNumber(2), 1, |_| ()).unwrap();
        assert_eq!(kept(), [JobNumber(2)], "and it goes when another job is asked about");
    }
}
