//! Which attempts have begun and not ended, so that a crash counts as an attempt.
//!
//! A row of the table `started` has the attempts that were marked in one transaction. It goes as soon as
//! none of its marks is needed: a mark is needed until its subtask has ended or another attempt at it is
//! marked. So the table has about as many marks as subtasks run. An attempt that begins and ends within one
//! transaction is not written at all. A row is not written again when one of its marks is not needed any more:
//! read after a restart it has that mark as well, which does no harm, for the subtask has ended, and stays no
//! longer than its job is unfinished. A job that was over and goes on would find such marks of its earlier
//! attempts: with it, what is needed is written into new rows, and all rows before go.
//!
//! A body is, LEB128: how many marks; for each the job's number, the subtask's, the attempt. Behind it is the
//! seal, for the row's number.

use std::collections::{HashMap, HashSet};

use keylane_stream::leb128;
use rusqlite::{Connection, params};

use super::error::{Damage, ReadError};
use super::seal::{seal, unseal};
use super::status::FIRST_FINAL;
use crate::ids::{JobNumber, SubtaskId};

/// How many marks a row has at most: one that is needed for long keeps no more than these.
const MOST_IN_ROW: usize = 256;

/// The marks that are in the file, or will be when the transaction ends.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// The last attempt of each, and the row that it is in; none if it is in no row yet.
    running: HashMap<SubtaskId, (u32, Option<u64>), foldhash::fast::RandomState>,
    /// How many subtasks of each job are in `running`.
    jobs: HashMap<JobNumber, u32, foldhash::fast::RandomState>,
    /// How many marks of each row are needed.
    rows: HashMap<u64, usize>,
    /// Those that are in no row yet.
    fresh: Vec<SubtaskId>,
    /// Rows of which no mark is needed any more.
    gone: Vec<u64>,
    /// Whether a job that was over goes on, so that no row may stay that has marks which are not needed.
    reopened: bool,
    /// One past the last row.
    next_row: u64,
}

impl Marks {
    /// What is in the file, of jobs that have not ended.
    pub(super) fn load(connection: &Connection) -> Result<Marks, ReadError> {
        let mut marks = Marks::default();
        let mut all = connection.prepare("SELECT number, body FROM started ORDER BY number")?;
        let mut rows = all.query([])?;
        while let Some(row) = rows.next()? {
            let number = row.get::<_, i64>(0)?.cast_unsigned();
            let body = row.get_ref(1)?.as_blob()?;
            let row =
                decode(number, body).ok_or(ReadError::Damaged(Damage::Marks { row: number }))?;
            marks.rows.insert(number, row.len());
            for (subtask, attempt) in row {
                marks.set(subtask, attempt, Some(number));
            }
            marks.next_row = number + 1;
        }
        let jobs: Vec<_> = marks.jobs.keys().copied().collect();
        let mut goes_on = connection
            .prepare("SELECT EXISTS (SELECT 1 FROM job WHERE number = ?1 AND state < ?2)")?;
        for job in jobs {
            let parameters = [job.0.cast_signed(), FIRST_FINAL];
            if !goes_on.query_row(parameters, |row| row.get::<_, bool>(0))? {
                marks.end_all(job);
            }
        }
        Ok(marks)
    }

    /// Of each subtask of these jobs, how many attempts have begun.
    pub(super) fn attempts(&self) -> HashMap<SubtaskId, u32, foldhash::fast::RandomState> {
        self.running.iter().map(|(subtask, (attempt, _))| (*subtask, *attempt)).collect()
    }

    pub(super) fn start(&mut self, subtask: SubtaskId, attempt: u32) {
        self.set(subtask, attempt, None);
        self.fresh.push(subtask);
    }

    /// This is the last attempt of a subtask, and here is its mark.
    fn set(&mut self, subtask: SubtaskId, attempt: u32, row: Option<u64>) {
        match self.running.insert(subtask, (attempt, row)) {
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

    /// A job that was over, and so has no mark that is needed, goes on: no row may tell of its attempts so far.
    pub(super) fn reopen(&mut self) {
        self.reopened = true;
    }

    /// None of a job is needed any more.
    pub(super) fn end_all(&mut self, job: JobNumber) {
        // Nearly always: outcomes have ended them.
        if !self.jobs.contains_key(&job) {
            return;
        }
        let of_job: Vec<_> =
            self.running.keys().copied().filter(|subtask| subtask.job == job).collect();
        of_job.into_iter().for_each(|subtask| self.end(subtask));
    }

    /// One mark of a row is not needed any more.
    fn leave(&mut self, row: Option<u64>) {
        let Some(number) = row else { return };
        let Some(left) = self.rows.get_mut(&number) else { return };
        *left -= 1;
        if *left == 0 {
            self.rows.remove(&number);
            self.gone.push(number);
        }
    }

    /// All rows go, and what is needed of them is to be in new ones. About as much as runs is in them.
    fn leave_all(&mut self) {
        self.gone.extend(self.rows.drain().map(|(number, _)| number));
        for (subtask, (_, row)) in &mut self.running {
            if row.take().is_some() {
                self.fresh.push(*subtask);
            }
        }
    }

    /// Writes what has changed.
    pub(super) fn write(&mut self, connection: &Connection) -> rusqlite::Result<()> {
        if std::mem::take(&mut self.reopened) {
            self.leave_all();
        }
        let fresh = self.take_fresh();
        for row in fresh.chunks(MOST_IN_ROW) {
            let number = self.next_row;
            self.next_row += 1;
            let body = encode(number, row);
            let mut insert =
                connection.prepare_cached("INSERT INTO started (number, body) VALUES (?1, ?2)")?;
            insert.execute(params![number.cast_signed(), body])?;
            self.rows.insert(number, row.len());
            for (subtask, attempt) in row {
                self.running.insert(*subtask, (*attempt, Some(number)));
            }
        }
        for number in self.gone.drain(..) {
            let mut delete = connection.prepare_cached("DELETE FROM started WHERE number = ?1")?;
            delete.execute([number.cast_signed()])?;
        }
        Ok(())
    }

    /// The marks that are needed and in no row, each once.
    fn take_fresh(&mut self) -> Vec<(SubtaskId, u32)> {
        let mut seen = HashSet::with_capacity(self.fresh.len());
        let fresh = std::mem::take(&mut self.fresh).into_iter();
        let needed = fresh.filter_map(|subtask| match self.running.get(&subtask) {
            Some((attempt, None)) if seen.insert(subtask) => Some((subtask, *attempt)),
            _ => None,
        });
        needed.collect()
    }
}

fn encode(row: u64, marks: &[(SubtaskId, u32)]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(marks.len() * 8 + 8);
    leb128::put(&mut bytes, marks.len() as u64);
    for (subtask, attempt) in marks {
        leb128::put(&mut bytes, subtask.job.0);
        leb128::put(&mut bytes, u64::from(subtask.number));
        leb128::put(&mut bytes, u64::from(*attempt));
    }
    seal(&mut bytes, &[row]);
    bytes
}

/// The marks of a row. None if it is not what was written.
pub(super) fn decode(row: u64, sealed: &[u8]) -> Option<Vec<(SubtaskId, u32)>> {
    let mut rest = unseal(sealed, &[row])?;
    let mut marks = Vec::new();
    for _ in 0..leb128::take(&mut rest)? {
        let job = JobNumber(leb128::take(&mut rest)?);
        let number = u32::try_from(leb128::take(&mut rest)?).ok()?;
        let attempt = u32::try_from(leb128::take(&mut rest)?).ok()?;
        marks.push((SubtaskId { job, number }, attempt));
    }
    rest.is_empty().then_some(marks)
}

#[cfg(test)]
mod tests {
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

    proptest! {
        #[test]
        fn a_row_is_read_as_it_was_written(
            marks in prop::collection::vec((0u64..1 << 39, any::<u32>(), any::<u32>()), 1..20),
            row in any::<u64>(), bit in any::<prop::sample::Index>(),
        ) {
            let marks: Vec<_> =
                marks.into_iter().map(|(job, number, attempt)| (subtask(job, number), attempt)).collect();
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
            steps in prop::collection::vec((0u8..6, 0u64..3, 0u32..5), 1..120),
        ) {
            let connection = file();
            let mut marks = Marks::default();
            let mut model = HashMap::new();
            for (attempt, (step, job, number)) in (1..).zip(steps) {
                let one = subtask(job, number);
                match step {
                    0 | 1 => {
                        marks.start(one, attempt);
                        model.insert(one, attempt);
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
                            marks = Marks::load(&connection).unwrap();
                        }
                    }
                }
            }
            marks.write(&connection).unwrap();
            let mut loaded = Marks::load(&connection).unwrap();
            // What has ended besides may still be there, but nothing that runs is missing.
            let attempts = loaded.attempts();
            for (subtask, attempt) in &model {
                prop_assert_eq!(attempts.get(subtask), Some(attempt));
            }
            (0..3).for_each(|job| loaded.end_all(JobNumber(job)));
            loaded.write(&connection).unwrap();
            prop_assert_eq!(rows(&connection), 0);
        }
    }

    #[test]
    fn marks_of_a_job_that_has_ended_go_when_the_file_is_opened() {
        let (connection, mut marks) = (file(), Marks::default());
        marks.start(subtask(1, 1), 1);
        marks.start(subtask(2, 1), 1);
        marks.write(&connection).unwrap();
        connection.execute("UPDATE job SET state = 17 WHERE number = 1", []).unwrap();
        connection.execute("DELETE FROM job WHERE number = 2", []).unwrap();
        let mut marks = Marks::load(&connection).unwrap();
        assert_eq!(marks.attempts().len(), 0);
        marks.write(&connection).unwrap();
        assert_eq!(rows(&connection), 0);
    }

    #[test]
    fn what_begins_and_ends_in_one_transaction_is_not_written() {
        let (connection, mut marks) = (file(), Marks::default());
        marks.start(subtask(1, 1), 1);
        marks.end(subtask(1, 1));
        marks.write(&connection).unwrap();
        assert_eq!(rows(&connection), 0);
    }
}
