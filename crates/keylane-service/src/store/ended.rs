//! Index of a job's ended subtasks: for each the kind and the position of its outcome.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::connection::{StoreConnection, StoredRow};
use super::error::{ReadError, StoreDamage};
use super::job_status::OutcomeCounts;
use super::outcome::{self, OutcomeKind, OutcomePosition};
use super::row_numbers::{at, place, rows_of};
use crate::ids::{JobNumber, SubtaskNumber};

/// Index of a job's outcomes, up to one of its rows.
#[derive(Clone, Debug)]
pub(super) struct EndedSubtasks {
    job: JobNumber,
    /// For each subtask the packed position and kind of its outcome; 0 if it has not ended.
    places: Vec<u64>,
    pub(super) counts: OutcomeCounts,
    /// Number of outcomes, including those before a reopening.
    pub(super) outcomes: u64,
    /// One past the last row read.
    next_row: u32,
    /// Subtasks that ended twice without a reopening. At most [`MAX_NAMED`] are kept.
    pub(super) twice: Vec<SubtaskNumber>,
}

/// Maximum number of subtasks reported as ended twice.
const MAX_NAMED: usize = 100;

/// Number of rows that are read in one statement: some milliseconds. The index of a large job takes
/// many such reads, and its log can restart between two of them.
const ROWS_IN_SLICE: u32 = 1_000;

impl EndedSubtasks {
    pub(super) fn new(job: JobNumber, total: u32) -> Self {
        let places = vec![0; total as usize];
        let counts = OutcomeCounts::default();
        EndedSubtasks { job, places, counts, outcomes: 0, next_row: 0, twice: Vec::new() }
    }

    /// Returns whether a subtask has ended.
    pub(super) fn has(&self, number: SubtaskNumber) -> bool {
        self.places.get(number as usize).is_some_and(|place| *place != 0)
    }

    /// Returns the position of a subtask's outcome, if it has one.
    pub(super) fn place(&self, number: SubtaskNumber) -> Option<OutcomePosition> {
        let place = self.places.get(number as usize)?.checked_sub(1)?;
        Some(OutcomePosition::new(place >> KIND_BITS))
    }

    /// Returns whether this connection sees all rows of the index. A snapshot older than the last
    /// read does not.
    fn is_seen_by(&self, connection: &dyn StoreConnection) -> Result<bool, ReadError> {
        let Some(last) = self.next_row.checked_sub(1) else { return Ok(true) };
        let sql = "SELECT 1 FROM outcome WHERE place = ?1";
        connection.finds(sql, &[place(self.job, last).into()])
    }

    /// Reads the rows added since the last read.
    pub(super) fn read_on(&mut self, connection: &dyn StoreConnection) -> Result<(), ReadError> {
        while self.read_slice(connection)? {}
        Ok(())
    }

    /// Reads at most [`ROWS_IN_SLICE`] rows added since the last read. Returns whether there may be
    /// more.
    fn read_slice(&mut self, connection: &dyn StoreConnection) -> Result<bool, ReadError> {
        let (first, last) = rows_of(self.job);
        let before = self.next_row;
        let sql = "SELECT place, count, numbers FROM outcome WHERE place BETWEEN ?1 AND ?2
                   ORDER BY place LIMIT ?3";
        let first = first + i64::from(before);
        let parameters = [first.into(), last.into(), ROWS_IN_SLICE.into()];
        connection.each(sql, &parameters, |row| self.add_row(row))?;
        Ok(self.next_row - before == ROWS_IN_SLICE)
    }

    /// Adds the next row of the job, with the columns `place, count, numbers`.
    ///
    /// # Errors
    /// If the row is damaged, or a row before it is missing.
    pub(super) fn add_row(&mut self, row: &dyn StoredRow) -> Result<(), ReadError> {
        let place = row.unsigned(0)?;
        let (_, number) = at(place);
        let job = self.job;
        let damaged = |row| {
            let from = OutcomePosition::at(row, 0);
            ReadError::Damaged(StoreDamage::Outcomes { job, from })
        };
        // A gap in the numbers is a missing row.
        if number != self.next_row {
            return Err(damaged(self.next_row));
        }
        let numbers = outcome::numbers(place, row.small(1)?, row.bytes(2)?);
        for (within, (subtask, _, kind)) in (0..).zip(numbers.ok_or_else(|| damaged(number))?) {
            let known = self.note(subtask, kind, OutcomePosition::at(number, within));
            known.ok_or_else(|| damaged(number))?;
        }
        self.next_row += 1;
        Ok(())
    }

    /// Makes room for the subtasks that the job may have gained since.
    fn grow(&mut self, total: u32) {
        let places = (total as usize).max(self.places.len());
        self.places.resize(places, 0);
    }

    /// Empties an index that met a damaged row.
    fn clear_after_error<T>(&mut self, read: Result<T, ReadError>) -> Result<T, ReadError> {
        if read.is_err() {
            *self = EndedSubtasks::new(self.job, self.places.len() as u32);
        }
        read
    }

    fn note(
        &mut self,
        subtask: SubtaskNumber,
        kind: OutcomeKind,
        place: OutcomePosition,
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
fn pack(place: OutcomePosition, kind: OutcomeKind) -> u64 {
    ((place.get() << KIND_BITS) | u64::from(kind.code())) + 1
}

fn unpack_kind(packed: u64) -> OutcomeKind {
    let code = ((packed - 1) & 7) as u8;
    let kind = OutcomeKind::ALL.into_iter().find(|kind| kind.code() == code);
    kind.expect("only kinds are packed")
}

fn count(counts: &mut OutcomeCounts, kind: OutcomeKind) -> &mut u32 {
    match kind {
        OutcomeKind::Succeeded => &mut counts.succeeded,
        OutcomeKind::Failed => &mut counts.failed,
        OutcomeKind::Cancelled => &mut counts.cancelled,
        OutcomeKind::Skipped => &mut counts.skipped,
        OutcomeKind::Superseded => &mut counts.superseded,
        OutcomeKind::Reopened => unreachable!("what was reopened has not ended"),
    }
}

/// Maximum size of the cached indexes, in bytes. Those used last are kept.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// Maximum size of the pinned indexes, in bytes. A stream beyond it reads without a pin.
const MAX_PINNED_BYTES: usize = 16 * MAX_BYTES;

/// Cache of indexes for queries of outcomes by subtask numbers.
#[derive(Debug)]
pub(super) struct EndedCache {
    /// No code that holds this lock unwinds.
    inner: Mutex<CachedIndexes>,
    max_bytes: usize,
    max_pinned_bytes: usize,
}

impl Default for EndedCache {
    fn default() -> Self {
        EndedCache {
            inner: Mutex::default(),
            max_bytes: MAX_BYTES,
            max_pinned_bytes: MAX_PINNED_BYTES,
        }
    }
}

/// Keeps the index of a job while a stream reads its outcomes page by page, so that pages of other
/// jobs in between do not evict it.
#[derive(Debug)]
pub struct PinnedIndex {
    _index: Arc<SharedIndex>,
}

/// Index of a job, for all of its queries.
pub(super) type SharedIndex = Mutex<EndedSubtasks>;

/// Indexes by job. Queries of one job exclude each other, so that its rows are read once for all of
/// them.
#[derive(Debug, Default)]
struct CachedIndexes {
    jobs: BTreeMap<JobNumber, CachedIndex>,
    /// Pinned indexes with their sizes in bytes, whether or not they are in `jobs` too.
    pinned: BTreeMap<JobNumber, (Weak<SharedIndex>, usize)>,
    /// One past the last use.
    clock: u64,
    /// Number of indexes that were begun.
    #[cfg(test)]
    begun: usize,
}

impl CachedIndexes {
    /// Returns the pinned index of a job, or a new one.
    fn find(&mut self, job: JobNumber, total: u32) -> Arc<SharedIndex> {
        if let Some(pinned) = self.pinned.get(&job).and_then(|(pinned, _)| pinned.upgrade()) {
            return pinned;
        }
        #[cfg(test)]
        {
            self.begun += 1;
        }
        Arc::new(Mutex::new(EndedSubtasks::new(job, total)))
    }
}

#[derive(Debug)]
struct CachedIndex {
    ended: Arc<SharedIndex>,
    /// Size of `ended` at the last use, in bytes.
    bytes: usize,
    used: u64,
}

impl EndedCache {
    /// Reads the next rows of an index, and returns whether there may be more. Called before
    /// [`with`](Self::with), each time without a snapshot, so that a long read does not keep the log
    /// from restarting.
    pub(super) fn read_slice(
        index: &SharedIndex,
        connection: &dyn StoreConnection,
        total: u32,
    ) -> Result<bool, ReadError> {
        let mut ended = index.lock().unwrap_or_else(PoisonError::into_inner);
        ended.grow(total);
        let read = ended.read_slice(connection);
        ended.clear_after_error(read)
    }

    /// Calls `look` with an index from [`keep`](Self::keep), with all rows that the connection sees.
    pub(super) fn with<T>(
        index: &SharedIndex,
        connection: &dyn StoreConnection,
        total: u32,
        look: impl FnOnce(&EndedSubtasks) -> T,
    ) -> Result<T, ReadError> {
        let mut ended = index.lock().unwrap_or_else(PoisonError::into_inner);
        if !ended.is_seen_by(connection)? {
            // A private index: this reader's snapshot is older than the cached index.
            let job = ended.job;
            drop(ended);
            let mut ended = EndedSubtasks::new(job, total);
            ended.read_on(connection)?;
            return Ok(look(&ended));
        }
        ended.grow(total);
        let read = ended.read_on(connection);
        ended.clear_after_error(read)?;
        Ok(look(&ended))
    }

    /// Returns the cached index of a job, or a new one, and evicts those used least recently. The
    /// requested index stays however large it is, so that its rows are not read again for each
    /// page.
    pub(super) fn keep(&self, job: JobNumber, total: u32) -> Arc<SharedIndex> {
        let mut inner = self.lock();
        inner.clock += 1;
        let used = inner.clock;
        let kept = inner.jobs.get(&job).map(|kept| Arc::clone(&kept.ended));
        let ended = kept.unwrap_or_else(|| inner.find(job, total));
        let bytes = size_of_index(total);
        inner.jobs.insert(job, CachedIndex { ended: Arc::clone(&ended), bytes, used });
        let mut bytes = inner.jobs.values().map(|kept| kept.bytes).sum::<usize>();
        while bytes > self.max_bytes && inner.jobs.len() > 1 {
            let oldest = inner.jobs.iter().min_by_key(|(_, kept)| kept.used);
            let oldest = oldest.map(|(job, _)| *job).expect("there is more than one");
            bytes -= inner.jobs.remove(&oldest).map_or(0, |kept| kept.bytes);
        }
        ended
    }

    /// Keeps the index of a job until the pin is dropped. Returns `None` if too much is pinned.
    pub(super) fn pin(&self, job: JobNumber, total: u32) -> Option<PinnedIndex> {
        let index = self.keep(job, total);
        let mut inner = self.lock();
        inner.pinned.retain(|_, (pinned, _)| pinned.strong_count() > 0);
        let others = inner.pinned.iter().filter(|(other, _)| **other != job);
        let bytes = others.map(|(_, (_, bytes))| *bytes).sum::<usize>() + size_of_index(total);
        if bytes > self.max_pinned_bytes {
            return None;
        }
        inner.pinned.insert(job, (Arc::downgrade(&index), size_of_index(total)));
        Some(PinnedIndex { _index: index })
    }

    pub(super) fn forget(&self, job: JobNumber) {
        let mut inner = self.lock();
        inner.jobs.remove(&job);
        inner.pinned.remove(&job);
    }

    fn lock(&self) -> MutexGuard<'_, CachedIndexes> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size_of_index(total: u32) -> usize {
    total as usize * size_of::<u64>()
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::super::outcome::{OutcomeRow, SubtaskOutcome};
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
        row.push(&SubtaskOutcome {
            number: 0,
            attempt: 1,
            kind,
            started_ms: 1,
            ended_ms: 2,
            result,
        });
        let place = place(job, 0);
        let (count, numbers, body) = row.sealed(place);
        let sql = "INSERT INTO outcome (place, count, numbers, body) VALUES (?1, ?2, ?3, ?4)";
        later.execute(sql, rusqlite::params![place.cast_signed(), count, numbers, body]).unwrap();

        let cache = EndedCache::default();
        let index = cache.keep(job, 1);
        let has = |reader: &Connection| {
            EndedCache::with(&index, reader, 1, |ended| ended.has(0)).unwrap()
        };
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
        row.push(&SubtaskOutcome {
            number: 7,
            attempt: 1,
            kind,
            started_ms: 1,
            ended_ms: 2,
            result,
        });
        let place = place(job, 0);
        let (count, numbers, body) = row.sealed(place);
        let sql = "INSERT INTO outcome (place, count, numbers, body) VALUES (?1, ?2, ?3, ?4)";
        connection
            .execute(sql, rusqlite::params![place.cast_signed(), count, numbers, body])
            .unwrap();

        let cache = EndedCache::default();
        let rows_read = || {
            let index = cache.keep(job, large);
            EndedCache::with(&index, &connection, large, |ended| ended.next_row).unwrap()
        };
        assert_eq!(rows_read(), 1);
        let kept = || cache.inner.lock().unwrap().jobs.keys().copied().collect::<Vec<_>>();
        assert_eq!(kept(), [job], "the next page reads only what has come since");
        drop(cache.keep(JobNumber(2), 1));
        assert_eq!(kept(), [JobNumber(2)], "and it goes when another job is asked about");
    }

    /// Opens a file with one outcome, of subtask 0, for each of these jobs.
    fn with_outcomes(file: &std::path::Path, jobs: &[JobNumber]) -> Connection {
        let connection = Connection::open(file).unwrap();
        connection.execute_batch(LAYOUT.tables).unwrap();
        let sql = "INSERT INTO outcome (place, count, numbers, body) VALUES (?1, ?2, ?3, ?4)";
        for job in jobs {
            let mut row = OutcomeRow::default();
            let (kind, result) = (OutcomeKind::Failed, Vec::new());
            row.push(&SubtaskOutcome {
                number: 0,
                attempt: 1,
                kind,
                started_ms: 1,
                ended_ms: 2,
                result,
            });
            let place = place(*job, 0);
            let (count, numbers, body) = row.sealed(place);
            let values = rusqlite::params![place.cast_signed(), count, numbers, body];
            connection.execute(sql, values).unwrap();
        }
        connection
    }

    /// Regression: two streams of results whose indexes exceeded the cache together evicted each
    /// other's index, so each page of either read all rows of its job.
    #[test]
    fn streams_of_two_jobs_read_in_turns_keep_their_indexes() {
        const TOTAL: u32 = 100;
        let folder = tempfile::tempdir().unwrap();
        let jobs = [JobNumber(3), JobNumber(4)];
        let connection = with_outcomes(&folder.path().join("file"), &jobs);
        let max_bytes = size_of_index(TOTAL + TOTAL / 2);
        let max_pinned_bytes = size_of_index(2 * TOTAL);
        let cache = EndedCache { max_bytes, max_pinned_bytes, ..EndedCache::default() };
        let page = |job| {
            let index = cache.keep(job, TOTAL);
            assert!(EndedCache::with(&index, &connection, TOTAL, |ended| ended.has(0)).unwrap());
        };
        let read_in_turns = || (0..10).for_each(|_| jobs.into_iter().for_each(page));

        let pins = jobs.map(|job| cache.pin(job, TOTAL).expect("both fit"));
        read_in_turns();
        assert_eq!(cache.lock().begun, 2, "each index is built once");
        // What is pinned has a bound, and another stream of the same job needs no more.
        assert!(cache.pin(JobNumber(5), TOTAL).is_none());
        assert!(cache.pin(jobs[0], TOTAL).is_some());
        drop(pins);
        assert!(cache.pin(JobNumber(5), TOTAL).is_some());
        let before = cache.lock().begun;
        read_in_turns();
        assert!(cache.lock().begun >= before + 20, "without pins they evict each other");
    }

    /// Regression: a page of results read all outcomes of a large job in one statement, whose
    /// snapshot kept the log from restarting.
    #[test]
    fn the_log_restarts_while_the_outcomes_of_a_large_job_are_read() {
        use keylane_storage::sqlite;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let writer = sqlite::writer(&path, None).unwrap();
        writer.execute_batch(LAYOUT.tables).unwrap();
        let (job, rows) = (JobNumber(3), 2 * ROWS_IN_SLICE + 1);
        let insert = "INSERT INTO outcome (place, count, numbers, body) VALUES (?1, ?2, ?3, ?4)";
        writer.execute_batch("BEGIN").unwrap();
        for number in 0..rows {
            let mut row = OutcomeRow::default();
            let (kind, result) = (OutcomeKind::Succeeded, Vec::new());
            row.push(&SubtaskOutcome {
                number,
                attempt: 1,
                kind,
                started_ms: 1,
                ended_ms: 2,
                result,
            });
            let place = place(job, number);
            let (count, numbers, body) = row.sealed(place);
            let values = rusqlite::params![place.cast_signed(), count, numbers, body];
            writer.prepare_cached(insert).unwrap().execute(values).unwrap();
        }
        writer.execute_batch("COMMIT").unwrap();

        let cache = EndedCache::default();
        let index = cache.keep(job, rows);
        let reader = sqlite::reader(&path).unwrap();
        let mut restarts = 0;
        while EndedCache::read_slice(&index, &reader, rows).unwrap() {
            writer
                .execute_batch("INSERT INTO loose (job) VALUES (last_insert_rowid() + 1)")
                .unwrap();
            assert!(sqlite::log_bytes(&writer).unwrap() > 0);
            assert!(sqlite::checkpoint(&writer, sqlite::Checkpoint::Reset).unwrap());
            restarts += 1;
        }
        assert_eq!(restarts, 2);
        let read = EndedCache::with(&index, &reader, rows, |ended| ended.counts.succeeded);
        assert_eq!(read.unwrap(), rows);
    }
}
