//! Writer's cached state. All of it follows from the file: after a rollback it is read again, so
//! that nothing of the transaction remains.

use std::collections::HashMap;

use super::connection::StoreConnection;
use super::error::ReadError;
use super::job_status::JobState;
use super::row_numbers::{self, at};
use super::started_attempts::AttemptTable;
use super::tables::MetaRow;
use crate::ids::JobNumber;

/// Number of job numbers reserved at once, so that the recorded bound stays correct for many jobs.
/// A crash skips the unused ones.
const NUMBERS_AT_ONCE: u64 = 4096;

/// Values to record at the opening.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpeningValues {
    pub(super) boot: u64,
    /// Number of unfinished jobs.
    pub(super) unfinished: u64,
}

#[derive(Debug)]
pub(super) struct WriterState {
    pub(super) meta: MetaRow,
    /// One past the last position in the order.
    pub(super) next_entered: u64,
    pub(super) marks: AttemptTable,
    /// Recently changed jobs.
    jobs: HashMap<JobNumber, JobMeta, foldhash::fast::RandomState>,
}

/// Cached state of a job.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobMeta {
    pub(super) state: JobState,
    pub(super) total: u32,
    /// Number of the next row of outcomes.
    pub(super) next_row: u32,
}

/// Maximum number of cached jobs, above which those that can be read again are dropped.
const MAX_KNOWN: usize = 1 << 20;

impl WriterState {
    pub(super) fn load(
        connection: &dyn StoreConnection,
        opened: OpeningValues,
    ) -> Result<WriterState, ReadError> {
        let meta = MetaRow::load(connection)?;
        let mut meta = meta.ok_or(ReadError::Damaged(super::StoreDamage::Meta))?;
        if meta.boot < opened.boot {
            // The disk was full at the opening, so the next transaction records it.
            meta.boot = opened.boot;
            meta.clean = false;
            meta.unfinished = Some(opened.unfinished);
        }
        let marks = AttemptTable::load(connection)?;
        Ok(WriterState { next_entered: meta.entered, meta, marks, jobs: HashMap::default() })
    }

    /// Reserves a number before it is written.
    pub(super) fn use_number(&mut self, job: JobNumber) {
        if job.0 >= self.meta.numbers {
            self.meta.numbers = job.0 + NUMBERS_AT_ONCE;
        }
    }

    /// Assigns the next position in the order.
    pub(super) fn enter(&mut self) -> u64 {
        let entered = self.next_entered;
        self.next_entered += 1;
        if entered >= self.meta.entered {
            self.meta.entered = entered + NUMBERS_AT_ONCE;
        }
        entered
    }

    pub(super) fn learn(&mut self, job: JobNumber, state: JobState, total: u32) {
        if self.jobs.len() >= MAX_KNOWN {
            self.jobs.clear();
        }
        let known = JobMeta { state, total, next_row: 0 };
        self.jobs.insert(job, known);
    }

    /// Updates the number of unfinished jobs.
    pub(super) fn count_unfinished(&mut self, was_over: bool, is_over: bool) {
        if let Some(count) = &mut self.meta.unfinished {
            match (was_over, is_over) {
                (true, false) => *count += 1,
                (false, true) => *count = count.saturating_sub(1),
                _ => {}
            }
        }
    }

    pub(super) fn forget(&mut self, job: JobNumber) {
        self.jobs.remove(&job);
    }

    /// Returns a job, if it exists.
    pub(super) fn job(
        &mut self,
        connection: &dyn StoreConnection,
        job: JobNumber,
    ) -> Result<Option<&mut JobMeta>, ReadError> {
        if !self.jobs.contains_key(&job) {
            let Some(known) = look_up(connection, job)? else { return Ok(None) };
            if self.jobs.len() >= MAX_KNOWN {
                self.jobs.clear();
            }
            self.jobs.insert(job, known);
        }
        Ok(self.jobs.get_mut(&job))
    }
}

fn look_up(connection: &dyn StoreConnection, job: JobNumber) -> Result<Option<JobMeta>, ReadError> {
    if job.0 >= row_numbers::JOBS {
        return Ok(None);
    }
    let row = "SELECT state, total FROM job WHERE number = ?1";
    let row = connection.first(row, &[job.0.into()], |row| Ok((row.number(0)?, row.small(1)?)))?;
    let Some((code, total)) = row else { return Ok(None) };
    // An invalid state is damage of the row, which makes all its other fields irrelevant.
    let state = JobState::of_code(code).unwrap_or(JobState::Damaged);
    let last = "SELECT max(place) FROM outcome WHERE place BETWEEN ?1 AND ?2";
    let (first, until) = row_numbers::rows_of(job);
    let last =
        connection.first(last, &[first.into(), until.into()], |row| row.optional_number(0))?;
    let next_row = last.flatten().map_or(0, |place| at(place.cast_unsigned()).1 + 1);
    Ok(Some(JobMeta { state, total, next_row }))
}
