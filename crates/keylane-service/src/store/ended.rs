//! Which subtasks of a job have ended, how, and where that stands.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;

use super::error::{Damage, ReadError};
use super::outcome::{self, OutcomeKind, OutcomePlace};
use super::seal::{at, place, rows_of};
use super::status::Counts;
use crate::ids::{JobNumber, SubtaskNumber};

/// What a job's outcomes come to, up to one of its rows.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    job: JobNumber,
    /// Of each subtask, the place of its outcome plus one; 0 if it has not ended.
    places: Vec<u64>,
    pub(super) counts: Counts,
    /// How many outcomes there are, those included that were taken back.
    pub(super) outcomes: u64,
    /// One past the last row that is in it.
    next_row: u32,
    /// Subtasks that have ended although they had ended. Not kept beyond a few.
    pub(super) twice: Vec<SubtaskNumber>,
}

/// How many of those that ended twice are named.
const MOST_NAMED: usize = 100;

impl Ended {
    pub(super) fn new(job: JobNumber, total: u32) -> Self {
        let places = vec![0; total as usize];
        let counts = Counts::default();
        Ended { job, places, counts, outcomes: 0, next_row: 0, twice: Vec::new() }
    }

    /// Whether a subtask has ended.
    pub(super) fn has(&self, number: SubtaskNumber) -> bool {
        self.places.get(number as usize).is_some_and(|place| *place != 0)
    }

    /// Where the outcome of a subtask stands, if it has one.
    pub(super) fn place(&self, number: SubtaskNumber) -> Option<OutcomePlace> {
        let place = self.places.get(number as usize)?.checked_sub(1)?;
        Some(OutcomePlace::new(place >> KIND_BITS))
    }

    /// Whether its rows are all there for this connection: one that began to read before another was read with
    /// does not see as many.
    fn is_seen_by(&self, connection: &Connection) -> rusqlite::Result<bool> {
        let Some(last) = self.next_row.checked_sub(1) else { return Ok(true) };
        let mut find =
            connection.prepare_cached("SELECT EXISTS (SELECT 1 FROM outcome WHERE place = ?1)")?;
        find.query_row([place(self.job, last).cast_signed()], |row| row.get(0))
    }

    /// Reads the rows that have come since.
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
            // A row that is missing is one that was not read.
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
            if before != 0 && self.twice.len() < MOST_NAMED {
                self.twice.push(subtask);
            }
        }
        Some(())
    }
}

const KIND_BITS: u32 = 3;

/// One more than the place with its kind, so that it is not 0.
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

/// Up to how many bytes of these are kept, of jobs that were asked about lately.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// What was read for those who ask about outcomes by the numbers of subtasks.
#[derive(Debug, Default)]
pub(super) struct EndedCache {
    /// Nothing unwinds while it is locked.
    inner: Mutex<Inner>,
}

/// Jobs by number. Those who ask about one job take turns, so that its rows are read once, however many ask.
#[derive(Debug, Default)]
struct Inner {
    jobs: BTreeMap<JobNumber, Kept>,
    /// One past the last use.
    clock: u64,
}

#[derive(Debug)]
struct Kept {
    ended: Arc<Mutex<Ended>>,
    /// Bytes of `ended`, as of the last use.
    bytes: usize,
    used: u64,
}

impl EndedCache {
    /// Looks up what is to be known of a job, as of now.
    pub(super) fn with<T>(
        &self,
        connection: &Connection,
        job: JobNumber,
        total: u32,
        look: impl FnOnce(&Ended) -> T,
    ) -> Result<T, ReadError> {
        let kept = self.keep(job, total);
        let mut ended = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if !ended.is_seen_by(connection)? {
            // For this reader alone: it began before one that has read more.
            drop(ended);
            let mut ended = Ended::new(job, total);
            ended.read_on(connection)?;
            return Ok(look(&ended));
        }
        // It may have got more of them since.
        let places = (total as usize).max(ended.places.len());
        ended.places.resize(places, 0);
        if let Err(error) = ended.read_on(connection) {
            // What was read of a row that is damaged is not kept.
            *ended = Ended::new(job, total);
            return Err(error);
        }
        Ok(look(&ended))
    }

    /// What is kept of a job, or nothing yet. Of the others those go that were used least lately; the one that is asked
    /// about stays however large it is, so that its rows are not read for each page.
    fn keep(&self, job: JobNumber, total: u32) -> Arc<Mutex<Ended>> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clock += 1;
        let clock = inner.clock;
        let kept = inner.jobs.entry(job).or_insert_with(|| Kept {
            ended: Arc::new(Mutex::new(Ended::new(job, total))),
            bytes: 0,
            used: 0,
        });
        kept.used = clock;
        kept.bytes = total as usize * size_of::<u64>();
        let ended = Arc::clone(&kept.ended);
        let mut bytes = inner.jobs.values().map(|kept| kept.bytes).sum::<usize>();
        while bytes > MOST_BYTES && inner.jobs.len() > 1 {
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
    use super::super::outcome::{Outcome, Row};
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

        let (job, mut row) = (JobNumber(3), Row::default());
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

    /// A job of more than 4,194,304 subtasks was put in and taken out again, so each page of its results read all rows.
    #[test]
    fn the_job_that_is_asked_about_is_kept_however_large_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let connection = Connection::open(folder.path().join("file")).unwrap();
        connection.execute_batch(LAYOUT.tables).unwrap();
        let (job, large) = (JobNumber(3), (MOST_BYTES / 8 + 1) as u32);
        let mut row = Row::default();
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
