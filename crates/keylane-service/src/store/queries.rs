//! Queries of the store. Each runs on a connection of the pool, in a snapshot of the commits before
//! it began.

use std::ops::Range;
use std::sync::Arc;

use super::alias::{self, JobAlias};
use super::audit::{self, AuditFilter, AuditPage, AuditRetention};
use super::change::{IdempotencyEntry, KeyRecord};
use super::chunk::Chunk;
use super::connection::StoreConnection;
use super::ended::{EndedCache, PinnedIndex, SharedIndex};
use super::error::{ReadError, StoreDamage};
use super::handle::Store;
use super::live_settings::{self, LiveSetting};
use super::logs::{self, AttemptLog};
use super::outcome::{OutcomePosition, RecordedOutcome, SubtaskOutcome};
use super::read::{self, EndedJob, JobFilter, JobPage, StoredJob};
use super::row_numbers::place;
use super::schedules::{self, ScheduleRecord, ScheduleRow};
use crate::ids::{JobId, JobNumber, Key, SubtaskNumber};

/// Returns the number of subtasks of a job.
fn total_of(reader: &dyn StoreConnection, job: JobNumber) -> Result<u32, ReadError> {
    let found = read::find_job(reader, job)?.ok_or(ReadError::NoSuchJob { job })?;
    Ok(found.0.total)
}

impl Store {
    /// Returns a job, or `None` if it does not exist.
    ///
    /// # Errors
    /// If the job's row is damaged.
    pub fn job(&self, job: JobNumber) -> Result<Option<StoredJob>, ReadError> {
        self.with_reader(|reader| Ok(read::find_job(reader, job)?.map(|(job, _)| job)))
    }

    /// Returns jobs with numbers below `before`, or from the last one on, in descending order. A
    /// damaged job is reported by number and does not fail the page.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn jobs(
        &self,
        filter: &JobFilter,
        before: Option<JobNumber>,
        most: usize,
    ) -> Result<JobPage, ReadError> {
        self.with_reader(|reader| read::jobs(reader, filter, before, most))
    }

    /// Returns the identifier of a job with a damaged row, or `None` if the identifier cannot be
    /// read.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn damaged_id(&self, job: JobNumber) -> Result<Option<JobId>, ReadError> {
        match self.with_reader(|reader| read::stored_id(reader, job)) {
            Ok(found) => Ok(found.filter(|id| id.number() == job)),
            Err(ReadError::Damaged(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns the ended jobs in a range of numbers. Damaged jobs are left out.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn ends(&self, numbers: Range<u64>) -> Result<Vec<EndedJob>, ReadError> {
        self.with_reader(|reader| read::ends(reader, numbers))
    }

    /// Returns the first job with this number or a higher one.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn first_job_from(&self, from: JobNumber) -> Result<Option<JobNumber>, ReadError> {
        self.with_reader(|reader| {
            let sql = "SELECT min(number) FROM job WHERE number >= ?1";
            let first = reader.first(sql, &[from.0.into()], |row| row.optional_number(0))?;
            Ok(first.flatten().map(|number| JobNumber(number.cast_unsigned())))
        })
    }

    /// Returns whether idempotency keys expired at `time_ms` or before.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn has_expired(&self, time_ms: u64) -> Result<bool, ReadError> {
        self.with_reader(|reader| {
            let any = "SELECT 1 FROM idempotency WHERE expires_ms <= ?1 LIMIT 1";
            reader.finds(any, &[time_ms.into()])
        })
    }

    /// Returns the chunk that contains a subtask. The chunk stays in the cache for its other
    /// subtasks.
    ///
    /// # Errors
    /// If the job or the subtask does not exist, or the chunk is damaged.
    pub fn chunk(&self, job: JobNumber, number: SubtaskNumber) -> Result<Arc<Chunk>, ReadError> {
        if let Some(chunk) = self.cache().get(job, number) {
            return Ok(chunk);
        }
        let edits = self.cache().edits();
        let chunk = Arc::new(self.with_reader(|reader| read::find_chunk(reader, job, number))?);
        self.cache().put_read(&chunk, edits);
        Ok(chunk)
    }

    /// Returns an iterator over the chunks with these subtasks, each read on demand.
    pub fn chunks(
        &self,
        job: JobNumber,
        numbers: Range<SubtaskNumber>,
    ) -> impl Iterator<Item = Result<Arc<Chunk>, ReadError>> {
        let mut numbers = numbers;
        std::iter::from_fn(move || {
            let number = (!numbers.is_empty()).then_some(numbers.start)?;
            let chunk = self.chunk(job, number);
            numbers.start = chunk.as_ref().map_or(numbers.end, |chunk| chunk.numbers().end);
            Some(chunk)
        })
    }

    /// Returns outcomes of a job in the order of their commits, from behind `after` if given. A
    /// reopened subtask has a [`Reopened`](super::OutcomeKind::Reopened) entry, which invalidates
    /// its earlier outcomes.
    ///
    /// # Errors
    /// If one of the rows is damaged.
    pub fn outcomes(
        &self,
        job: JobNumber,
        after: Option<OutcomePosition>,
        most: usize,
    ) -> Result<Vec<RecordedOutcome>, ReadError> {
        self.with_reader(|reader| read::outcomes(reader, job, after, most))
    }

    /// Returns the final outcomes of these subtasks, in the order of the request; `None` for a
    /// subtask that has not ended.
    ///
    /// # Errors
    /// If the job does not exist, or a row that was read is damaged.
    pub fn outcomes_of(
        &self,
        job: JobNumber,
        numbers: impl IntoIterator<Item = SubtaskNumber>,
    ) -> Result<Vec<Option<SubtaskOutcome>>, ReadError> {
        let index = self.ended_index(job)?;
        self.with_reader(|reader| {
            let _snapshot = reader.snapshot()?;
            let total = total_of(reader, job)?;
            let places: Vec<_> = EndedCache::with(&index, reader, total, |ended| {
                numbers.into_iter().map(|number| ended.place(number)).collect()
            })?;
            // Subtasks that ended in one transaction share a row, which is read once.
            let mut by_row: Vec<usize> = (0..places.len()).collect();
            by_row.sort_unstable_by_key(|index| places[*index]);
            let mut row: Option<(u64, Vec<SubtaskOutcome>)> = None;
            let mut found = vec![None; places.len()];
            for index in by_row {
                let Some(place) = places[index] else { continue };
                let (wanted, within) = place.row();
                if row.as_ref().is_none_or(|(number, _)| *number != wanted) {
                    row = Some((wanted, read::read_row(reader, job, wanted as u32)?));
                }
                let (_, outcomes) = row.as_ref().expect("it was read just now");
                found[index] = outcomes.get(within as usize).cloned();
            }
            Ok(found)
        })
    }

    /// Returns the index of a job's ended subtasks, read up to about the current commit in short
    /// steps: between two of them the log can restart.
    fn ended_index(&self, job: JobNumber) -> Result<Arc<SharedIndex>, ReadError> {
        let total = self.with_reader(|reader| total_of(reader, job))?;
        let index = self.ended().keep(job, total);
        while self.with_reader(|reader| EndedCache::read_slice(&index, reader, total))? {}
        Ok(index)
    }

    /// Keeps in memory which subtasks of a job have ended until the result is dropped, so that a
    /// stream of pages does not read it again for each page. Returns `None` if the job does not
    /// exist, or too much is kept by others.
    ///
    /// # Errors
    /// If the job's row is damaged.
    pub fn pin_ended(&self, job: JobNumber) -> Result<Option<PinnedIndex>, ReadError> {
        let found = self.with_reader(|reader| read::find_job(reader, job))?;
        Ok(found.and_then(|(found, _)| self.ended().pin(job, found.total)))
    }

    /// Returns the current outcomes among these: those of subtasks that were not reopened since.
    ///
    /// # Errors
    /// As [`outcomes_of`](Self::outcomes_of).
    pub fn that_count(
        &self,
        job: JobNumber,
        mut outcomes: Vec<RecordedOutcome>,
    ) -> Result<Vec<RecordedOutcome>, ReadError> {
        let index = self.ended_index(job)?;
        self.with_reader(|reader| {
            let _snapshot = reader.snapshot()?;
            let total = total_of(reader, job)?;
            EndedCache::with(&index, reader, total, |ended| {
                outcomes.retain(|one| ended.place(one.outcome.number) == Some(one.place));
            })?;
            Ok(outcomes)
        })
    }

    /// Returns the keys that are paused or stopped.
    ///
    /// # Errors
    /// If one of the rows is damaged.
    pub fn keys(&self) -> Result<Vec<(Key, KeyRecord)>, ReadError> {
        self.with_reader(read::keys)
    }

    /// Returns the request and the job of an idempotency key.
    ///
    /// # Errors
    /// If the row is damaged.
    pub fn idempotent(
        &self,
        scope: &str,
        key: &str,
    ) -> Result<Option<(IdempotencyEntry, JobId)>, ReadError> {
        self.with_reader(|reader| {
            let sql = "SELECT scope, key, expires_ms, body_hash, id, seal FROM idempotency
                       WHERE scope = ?1 AND key = ?2";
            reader.first(sql, &[scope.into(), key.into()], read::idempotency_of)
        })
    }

    /// Returns the job with this identifier.
    ///
    /// # Errors
    /// If the row is damaged.
    pub fn alias(&self, name: &str) -> Result<Option<JobAlias>, ReadError> {
        self.with_reader(|reader| alias::find(reader, name))
    }

    /// Returns at most `most` matching entries with numbers below `before`, or from the newest on.
    /// A page can be shorter than that, with others behind it. A damaged entry is returned as
    /// stored.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn audit(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<AuditPage, ReadError> {
        self.with_reader(|reader| audit::page(reader, filter, before, most))
    }

    /// Returns whether an entry is beyond the retention.
    ///
    /// # Errors
    /// If the log cannot be read.
    pub fn has_old_audit(&self, kept: AuditRetention) -> Result<bool, ReadError> {
        self.with_reader(|reader| Ok(audit::last_old(reader, kept, 1)?.is_some()))
    }

    /// Returns the logs of the ended attempts at a subtask, in order: the last 32 with output.
    ///
    /// # Errors
    /// If one of the logs is damaged.
    pub fn logs(
        &self,
        job: JobNumber,
        number: SubtaskNumber,
    ) -> Result<Vec<AttemptLog>, ReadError> {
        let place = place(job, number).cast_signed();
        self.with_reader(|reader| {
            let mut logs = Vec::new();
            logs::between(reader, place, place, |log| {
                logs.push(log?);
                Ok(())
            })?;
            Ok(logs)
        })
    }

    /// Returns all schedules, by name.
    ///
    /// # Errors
    /// If one of the rows is damaged.
    pub fn schedules(&self) -> Result<Vec<ScheduleRecord>, ReadError> {
        self.with_reader(schedules::all)
    }

    /// Returns all settings that operators have changed, by name, with the damaged ones.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub fn settings(&self) -> Result<Vec<Result<LiveSetting, StoreDamage>>, ReadError> {
        self.with_reader(live_settings::all)
    }

    /// Returns a setting, if there is one of this name.
    ///
    /// # Errors
    /// If the store cannot be read, or the row is damaged.
    pub fn setting(&self, name: &str) -> Result<Option<LiveSetting>, ReadError> {
        self.with_reader(|connection| live_settings::one(connection, name))
    }

    /// Returns all schedules, damaged ones included.
    pub(crate) fn schedule_rows(&self) -> Result<Vec<ScheduleRow>, ReadError> {
        self.with_reader(|connection| {
            let mut rows = Vec::new();
            schedules::each_row(connection, |row| {
                rows.push(row);
                Ok(())
            })?;
            Ok(rows)
        })
    }
}
