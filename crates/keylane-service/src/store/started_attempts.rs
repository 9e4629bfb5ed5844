//! Attempts that have started and not ended, so that a crash counts as an attempt.
//!
//! A row of the table `started` has the marks from one transaction. A mark is needed until its
//! subtask ends or starts another attempt; a row is deleted as soon as none of its marks is needed.
//! So the table has about as many marks as there are running subtasks. An attempt that starts and
//! ends within one transaction is never written. A row is not rewritten when one of its marks
//! becomes obsolete: a restart loads that mark too, harmlessly, because its subtask has ended, and
//! only until its job ends. A reopened job would find such marks of earlier attempts: so a
//! reopening writes all needed marks into new rows and deletes all old rows.
//!
//! A mark also has the stage of the attempt ([`AttemptStage`]): a worker's lease, the backoff after a
//! failed attempt, a subtask that has stopped its keys. So these survive a restart.
//!
//! A body has, in LEB128: the number of marks; for each the job's number, the subtask's, the
//! attempt plus 2^32 times the stage's number, and the fields of the stage. Rows of layouts before
//! 7 have stage 0 only. A checksum, which includes the row's number, follows.
//!
//! | stage | number | fields |
//! |---|---|---|
//! | started | 0 | none |
//! | leased | 1 | fence, time of the start, bytes of the worker's name plus one (0 for none), the name |
//! | backing off | 2 | time of the failure, wait until the next attempt |
//! | stopped | 3 | time of the stop, bytes of the reason, the reason |
//! | backing off, with its reason | 4 | as 2, bytes of the reason, the reason |

use std::collections::{HashMap, HashSet};

use keylane_storage::checksum::{seal, unseal};
use keylane_storage::leb128;
use keylane_storage::sqlite::SqliteError;

use super::connection::StoreConnection;
use super::error::{ReadError, StoreDamage};
use super::job_status::FIRST_FINAL;
use crate::ids::{JobNumber, SubtaskId};

/// Maximum number of marks in a row. It bounds how many obsolete marks a long-lived one keeps.
const MAX_IN_ROW: usize = 256;

/// Latest attempt at an unfinished subtask.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatestAttempt {
    /// Number of the attempt, from 1; 0 if the only attempt was withdrawn.
    pub attempt: u32,
    /// Stage of the attempt.
    pub stage: AttemptStage,
}

/// Stage of an attempt. Times are milliseconds since 1970.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AttemptStage {
    /// The attempt has begun. A restart begins the next attempt.
    #[default]
    Started,
    /// A remote worker has a lease. A restart keeps it.
    Leased {
        /// Fence of the attempt.
        fence: u64,
        /// Time of the start.
        since_ms: u64,
        /// Name of the worker, if it gave one.
        worker: Option<Box<str>>,
    },
    /// The attempt has failed. The next one waits.
    BackingOff {
        /// Time of the failure.
        since_ms: u64,
        /// Time between the failure and the next attempt.
        wait_ms: u64,
        /// Cause of the failure; empty if it is not kept.
        reason: Box<str>,
    },
    /// The subtask has failed for good and holds its keys until an operator retries or skips it.
    Stopped {
        /// Time of the failure.
        since_ms: u64,
        /// Cause of the failure.
        reason: Box<str>,
    },
}

impl LatestAttempt {
    /// Returns the mark of an attempt that has begun.
    #[must_use]
    pub const fn started(attempt: u32) -> Self {
        LatestAttempt { attempt, stage: AttemptStage::Started }
    }
}

/// Marks in the file, or after the current transaction.
#[derive(Debug, Default)]
pub(super) struct AttemptTable {
    /// Latest mark of each subtask, with its row; `None` if it is not written yet.
    running: HashMap<SubtaskId, (LatestAttempt, Option<u64>), foldhash::fast::RandomState>,
    /// Number of subtasks of each job in `running`.
    jobs: HashMap<JobNumber, u32, foldhash::fast::RandomState>,
    /// Number of needed marks in each row.
    rows: HashMap<u64, usize>,
    /// Subtasks with marks that are not written yet.
    fresh: Vec<SubtaskId>,
    /// Rows without needed marks.
    gone: Vec<u64>,
    /// Whether a job was reopened, so that no row with obsolete marks may stay.
    reopened: bool,
    /// One past the last row.
    next_row: u64,
}

impl AttemptTable {
    /// Loads the marks of unfinished jobs from the file.
    pub(super) fn load(connection: &dyn StoreConnection) -> Result<AttemptTable, ReadError> {
        let mut marks = AttemptTable::default();
        let sql = "SELECT number, body FROM started ORDER BY number";
        connection.each(sql, &[], |row| {
            let number = row.unsigned(0)?;
            let row = decode(number, row.bytes(1)?)
                .ok_or(ReadError::Damaged(StoreDamage::Marks { row: number }))?;
            marks.rows.insert(number, row.len());
            for (subtask, mark) in row {
                marks.set(subtask, mark, Some(number));
            }
            marks.next_row = number + 1;
            Ok(())
        })?;
        let jobs: Vec<_> = marks.jobs.keys().copied().collect();
        let goes_on = "SELECT 1 FROM job WHERE number = ?1 AND state < ?2";
        for job in jobs {
            if !connection.finds(goes_on, &[job.0.into(), FIRST_FINAL.into()])? {
                marks.end_all(job);
            }
        }
        Ok(marks)
    }

    /// Returns the mark of each subtask of these jobs that has one.
    pub(super) fn all(&self) -> HashMap<SubtaskId, LatestAttempt, foldhash::fast::RandomState> {
        self.running.iter().map(|(subtask, (mark, _))| (*subtask, mark.clone())).collect()
    }

    pub(super) fn put(&mut self, subtask: SubtaskId, mark: LatestAttempt) {
        self.set(subtask, mark, None);
        self.fresh.push(subtask);
    }

    /// Sets the latest mark of a subtask.
    fn set(&mut self, subtask: SubtaskId, mark: LatestAttempt, row: Option<u64>) {
        match self.running.insert(subtask, (mark, row)) {
            Some((_, before)) => self.leave(before),
            None => *self.jobs.entry(subtask.job).or_default() += 1,
        }
    }

    pub(super) fn end(&mut self, subtask: SubtaskId) {
        let Some((_, row)) = self.running.remove(&subtask) else { return };
        self.leave(row);
        let left = self.jobs.get_mut(&subtask.job).expect("it counts those that run");
        *left -= 1;
        if *left == 0 {
            self.jobs.remove(&subtask.job);
        }
    }

    /// Handles a reopened job, which has no needed marks: no row may keep its earlier attempts.
    pub(super) fn reopen(&mut self) {
        self.reopened = true;
    }

    /// Removes all marks of a job.
    pub(super) fn end_all(&mut self, job: JobNumber) {
        // The usual case: outcomes have removed them.
        if !self.jobs.contains_key(&job) {
            return;
        }
        let of_job: Vec<_> =
            self.running.keys().copied().filter(|subtask| subtask.job == job).collect();
        of_job.into_iter().for_each(|subtask| self.end(subtask));
    }

    /// Counts a mark of a row as obsolete.
    fn leave(&mut self, row: Option<u64>) {
        let Some(number) = row else { return };
        let Some(left) = self.rows.get_mut(&number) else { return };
        *left -= 1;
        if *left == 0 {
            self.rows.remove(&number);
            self.gone.push(number);
        }
    }

    /// Deletes all rows and schedules their needed marks for new ones. The cost is proportional to
    /// the number of running subtasks.
    fn leave_all(&mut self) {
        self.gone.extend(self.rows.drain().map(|(number, _)| number));
        for (subtask, (_, row)) in &mut self.running {
            if row.take().is_some() {
                self.fresh.push(*subtask);
            }
        }
    }

    /// Writes the changes.
    pub(super) fn write(&mut self, connection: &dyn StoreConnection) -> Result<(), SqliteError> {
        if std::mem::take(&mut self.reopened) {
            self.leave_all();
        }
        let fresh = self.take_fresh();
        for row in fresh.chunks(MAX_IN_ROW) {
            let number = self.next_row;
            self.next_row += 1;
            let body = encode(number, row);
            let sql = "INSERT INTO started (number, body) VALUES (?1, ?2)";
            connection.execute(sql, &[number.into(), (&body).into()])?;
            self.rows.insert(number, row.len());
            for (subtask, _) in row {
                let (_, written) = self.running.get_mut(subtask).expect("a fresh mark is needed");
                *written = Some(number);
            }
        }
        for number in self.gone.drain(..) {
            connection.execute("DELETE FROM started WHERE number = ?1", &[number.into()])?;
        }
        Ok(())
    }

    /// Returns the needed marks that are in no row, each once.
    fn take_fresh(&mut self) -> Vec<(SubtaskId, LatestAttempt)> {
        let mut seen = HashSet::with_capacity(self.fresh.len());
        let fresh = std::mem::take(&mut self.fresh).into_iter();
        let needed = fresh.filter_map(|subtask| match self.running.get(&subtask) {
            Some((mark, None)) if seen.insert(subtask) => Some((subtask, mark.clone())),
            _ => None,
        });
        needed.collect()
    }
}

pub(super) fn encode(row: u64, marks: &[(SubtaskId, LatestAttempt)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(marks.len() * 8 + 8);
    leb128::put(&mut bytes, marks.len() as u64);
    for (subtask, mark) in marks {
        leb128::put(&mut bytes, subtask.job.0);
        leb128::put(&mut bytes, u64::from(subtask.number));
        leb128::put(&mut bytes, u64::from(mark.attempt) | mark.stage.number() << 32);
        mark.stage.encode(&mut bytes);
    }
    seal(&mut bytes, &[row]);
    bytes
}

/// Decodes the marks of a row. Returns `None` if it is damaged.
pub(super) fn decode(row: u64, sealed: &[u8]) -> Option<Vec<(SubtaskId, LatestAttempt)>> {
    let mut rest = unseal(sealed, &[row])?;
    let mut marks = Vec::new();
    for _ in 0..leb128::take(&mut rest)? {
        let job = JobNumber(leb128::take(&mut rest)?);
        let number = u32::try_from(leb128::take(&mut rest)?).ok()?;
        let coded = leb128::take(&mut rest)?;
        let (attempt, stage) = (coded as u32, AttemptStage::decode(coded >> 32, &mut rest)?);
        marks.push((SubtaskId { job, number }, LatestAttempt { attempt, stage }));
    }
    rest.is_empty().then_some(marks)
}

impl AttemptStage {
    fn number(&self) -> u64 {
        match self {
            AttemptStage::Started => 0,
            AttemptStage::Leased { .. } => 1,
            AttemptStage::BackingOff { reason, .. } if reason.is_empty() => 2,
            AttemptStage::BackingOff { .. } => 4,
            AttemptStage::Stopped { .. } => 3,
        }
    }

    fn encode(&self, bytes: &mut Vec<u8>) {
        match self {
            AttemptStage::Started => {}
            AttemptStage::Leased { fence, since_ms, worker } => {
                leb128::put(bytes, *fence);
                put_time(bytes, *since_ms);
                leb128::put(bytes, worker.as_ref().map_or(0, |name| name.len() as u64 + 1));
                bytes.extend(worker.iter().flat_map(|name| name.bytes()));
            }
            AttemptStage::BackingOff { since_ms, wait_ms, reason } => {
                put_time(bytes, *since_ms);
                put_time(bytes, *wait_ms);
                if !reason.is_empty() {
                    leb128::put(bytes, reason.len() as u64);
                    bytes.extend(reason.bytes());
                }
            }
            AttemptStage::Stopped { since_ms, reason } => {
                put_time(bytes, *since_ms);
                leb128::put(bytes, reason.len() as u64);
                bytes.extend(reason.bytes());
            }
        }
    }

    fn decode(number: u64, rest: &mut &[u8]) -> Option<Self> {
        Some(match number {
            0 => AttemptStage::Started,
            1 => {
                let (fence, since_ms) = (leb128::take(rest)?, leb128::take(rest)?);
                let worker = match leb128::take(rest)?.checked_sub(1) {
                    Some(length) => Some(text(rest, length)?),
                    None => None,
                };
                AttemptStage::Leased { fence, since_ms, worker }
            }
            2 | 4 => {
                let (since_ms, wait_ms) = (leb128::take(rest)?, leb128::take(rest)?);
                let reason = match number {
                    4 => {
                        let length = leb128::take(rest)?;
                        text(rest, length)?
                    }
                    _ => Box::default(),
                };
                AttemptStage::BackingOff { since_ms, wait_ms, reason }
            }
            3 => {
                let (since_ms, length) = (leb128::take(rest)?, leb128::take(rest)?);
                AttemptStage::Stopped { since_ms, reason: text(rest, length)? }
            }
            _ => return None,
        })
    }
}

/// Writes milliseconds. A wait can be as long as a number is large, and what is read has 63 bits.
fn put_time(bytes: &mut Vec<u8>, ms: u64) {
    leb128::put(bytes, ms.min(i64::MAX.cast_unsigned()));
}

fn text(rest: &mut &[u8], length: u64) -> Option<Box<str>> {
    let (text, behind) = rest.split_at_checked(usize::try_from(length).ok()?)?;
    *rest = behind;
    std::str::from_utf8(text).ok().map(Box::from)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use proptest::prelude::*;

    fn subtask(job: u64, number: u32) -> SubtaskId {
        SubtaskId { job: JobNumber(job), number }
    }

    fn file() -> Connection {
        let connection = Connection::open_in_memory().unwrap();
        connection.execute_batch(super::super::tables::LAYOUT.tables).unwrap();
        for job in 0..3 {
            let sql = "INSERT INTO job VALUES (?1, 2, x'', x'', 1, 1, 9, 'kind', x'', NULL)";
            connection.execute(sql, [job]).unwrap();
        }
        connection
    }

    fn rows(connection: &Connection) -> i64 {
        connection.query_row("SELECT count(*) FROM started", [], |row| row.get(0)).unwrap()
    }

    fn stages() -> impl Strategy<Value = AttemptStage> {
        let number = || 0..1_u64 << 63;
        let leased = (number(), number(), prop::option::of(".{0,9}"));
        prop_oneof![
            Just(AttemptStage::Started),
            leased.prop_map(|(fence, since_ms, worker)| {
                AttemptStage::Leased { fence, since_ms, worker: worker.map(String::into_boxed_str) }
            }),
            (number(), number(), ".{0,9}").prop_map(|(since_ms, wait_ms, reason)| {
                AttemptStage::BackingOff { since_ms, wait_ms, reason: reason.into_boxed_str() }
            }),
            (number(), ".{0,9}").prop_map(|(since_ms, reason)| {
                AttemptStage::Stopped { since_ms, reason: reason.into_boxed_str() }
            }),
        ]
    }

    proptest! {
        #[test]
        fn a_row_is_read_as_it_was_written(
            marks in prop::collection::vec((0u64..1 << 39, any::<u32>(), any::<u32>(), stages()), 1..20),
            row in any::<u64>(), bit in any::<prop::sample::Index>(),
        ) {
            let marks: Vec<_> =
                marks.into_iter().map(|(job, number, attempt, stage)| {
                    (subtask(job, number), LatestAttempt { attempt, stage })
                }).collect();
            let mut bytes = encode(row, &marks);
            prop_assert_eq!(decode(row, &bytes), Some(marks));
            prop_assert_eq!(decode(!row, &bytes), None);
            let bit = bit.index(bytes.len() * 8);
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(row, &bytes), None);
        }

        /// A transaction ends, and perhaps the process, wherever the steps say so.
        #[test]
        fn what_runs_is_in_the_file_and_little_else(
            steps in prop::collection::vec((0u8..6, 0u64..3, 0u32..5, stages()), 1..120),
        ) {
            let connection = file();
            let mut marks = AttemptTable::default();
            let mut model = HashMap::new();
            for (attempt, (step, job, number, stage)) in (1..).zip(steps) {
                let (one, mark) = (subtask(job, number), LatestAttempt { attempt, stage });
                match step {
                    0 | 1 => {
                        marks.put(one, mark.clone());
                        model.insert(one, mark);
                    }
                    2 => {
                        marks.end(one);
                        model.remove(&one);
                    }
                    3 => {
                        marks.end_all(JobNumber(job));
                        model.retain(|subtask, _| subtask.job.0 != job);
                    }
                    _ => {
                        marks.write(&connection).unwrap();
                        prop_assert!(rows(&connection) <= marks.running.len() as i64);
                        if step == 5 {
                            marks = AttemptTable::load(&connection).unwrap();
                        }
                    }
                }
            }
            marks.write(&connection).unwrap();
            let mut loaded = AttemptTable::load(&connection).unwrap();
            // What has ended besides may still be there, but nothing that runs is missing.
            let all = loaded.all();
            for (subtask, mark) in &model {
                prop_assert_eq!(all.get(subtask), Some(mark));
            }
            (0..3).for_each(|job| loaded.end_all(JobNumber(job)));
            loaded.write(&connection).unwrap();
            prop_assert_eq!(rows(&connection), 0);
        }
    }

    /// The body of a row that 46944ce wrote: two marks.
    #[test]
    fn a_row_of_an_earlier_layout_is_read() {
        let mut bytes = vec![2, 1, 1, 3, 2, 0, 0xff, 0xff, 0xff, 0xff, 0x0f];
        seal(&mut bytes, &[9]);
        let wanted = [
            (subtask(1, 1), LatestAttempt::started(3)),
            (subtask(2, 0), LatestAttempt::started(u32::MAX)),
        ];
        assert_eq!(decode(9, &bytes).unwrap(), wanted);
    }

    #[test]
    fn marks_of_a_job_that_has_ended_go_when_the_file_is_opened() {
        let (connection, mut marks) = (file(), AttemptTable::default());
        marks.put(subtask(1, 1), LatestAttempt::started(1));
        marks.put(subtask(2, 1), LatestAttempt::started(1));
        marks.write(&connection).unwrap();
        connection.execute("UPDATE job SET state = 17 WHERE number = 1", []).unwrap();
        connection.execute("DELETE FROM job WHERE number = 2", []).unwrap();
        let mut marks = AttemptTable::load(&connection).unwrap();
        assert_eq!(marks.all().len(), 0);
        marks.write(&connection).unwrap();
        assert_eq!(rows(&connection), 0);
    }

    #[test]
    fn what_begins_and_ends_in_one_transaction_is_not_written() {
        let (connection, mut marks) = (file(), AttemptTable::default());
        marks.put(subtask(1, 1), LatestAttempt::started(1));
        marks.end(subtask(1, 1));
        marks.write(&connection).unwrap();
        assert_eq!(rows(&connection), 0);
    }
}
