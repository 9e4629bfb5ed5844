//! One transaction of the writer: checks each request, applies its changes to the tables, and
//! commits. A refused request changes nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use keylane_storage::sqlite::SqliteError;
use rusqlite::{Connection, OptionalExtension, params};

use super::alias;
use super::audit;
use super::change::{
    Change, CommitReceipt, IdempotencyEntry, JobAcceptance, KeyRecord, WriteRequest,
};
use super::chunk::Chunk;
use super::error::WriteError;
use super::job_status::{JobState, JobStatus};
use super::key_rows::{seal_of_idempotency, seal_of_key};
use super::live_settings;
use super::logs::{self, AttemptLog};
use super::outcome::{OutcomeRow, SubtaskOutcome};
use super::read;
use super::row_numbers::{self, place, rows_of};
use super::schedules;
use super::tables;
use super::writer_state::{JobMeta, WriterState};
use crate::ids::{JobId, JobNumber, Key, SubtaskId};

/// Size of the rows of a deleted job that are removed from a table in one transaction, in bytes, so
/// that other writes come between. Removed rows are overwritten, which writes as many bytes.
const BYTES_REMOVED: i64 = 1024 * 1024;

/// Maximum number of rows of a deleted job that are removed from a table in one transaction.
const ROWS_REMOVED: i64 = 512;

/// Maximum number of idempotency keys removed in one transaction.
const KEYS_REMOVED: usize = 1024;

/// Result of each request, and jobs to delete in later transactions.
pub(super) struct TransactionResults {
    pub(super) answers: Vec<Result<CommitReceipt, WriteError>>,
    /// Jobs whose deletion has begun.
    pub(super) loose: Vec<JobNumber>,
    /// Job whose deletion is complete.
    pub(super) swept: Option<JobNumber>,
    /// Whether data of users, or results, were deleted.
    pub(super) has_removed: bool,
}

/// Transaction that is being written.
pub(super) struct WriteTransaction<'a> {
    connection: &'a Connection,
    state: &'a mut WriterState,
    /// Outcomes that are not in a row yet.
    rows: HashMap<JobNumber, OutcomeRow, foldhash::fast::RandomState>,
    loose: Vec<JobNumber>,
    has_removed: bool,
}

impl<'a> WriteTransaction<'a> {
    pub(super) fn new(connection: &'a Connection, state: &'a mut WriterState) -> Self {
        WriteTransaction {
            connection,
            state,
            rows: HashMap::default(),
            loose: Vec::new(),
            has_removed: false,
        }
    }

    /// Applies all requests, deletes some rows of a deleted job, and commits. A refused request
    /// changes nothing and does not affect the others.
    pub(super) fn write_all(
        mut self,
        requests: &[WriteRequest],
        sweep: Option<JobNumber>,
    ) -> Result<TransactionResults, SqliteError> {
        let mut answers = Vec::with_capacity(requests.len());
        let commit = self.state.meta.commits + 1;
        for request in requests {
            let answer = match self.refusal(&request.changes)? {
                Some(refused) => Err(refused),
                None => Ok(CommitReceipt { commit, entered: self.do_all(&request.changes)? }),
            };
            answers.push(answer);
        }
        let jobs: Vec<_> = self.rows.keys().copied().collect();
        for job in jobs {
            self.put_row(job)?;
        }
        self.state.marks.write(self.connection)?;
        let swept = match sweep {
            Some(job) if !self.remove_some(job)? => Some(job),
            _ => None,
        };
        self.state.meta.commits = commit;
        self.state.meta.put(self.connection)?;
        self.connection.execute_batch("COMMIT")?;
        let has_removed = self.has_removed || sweep.is_some();
        Ok(TransactionResults { answers, loose: self.loose, swept, has_removed })
    }

    /// Returns the error of a request that cannot be applied. All changes are checked before the
    /// first one is applied.
    fn refusal(&mut self, changes: &[Change]) -> Result<Option<WriteError>, SqliteError> {
        // A job reopened by this request takes outcomes, even if it had ended before.
        let mut reopened = None;
        let aside = changes.iter().find_map(|change| match change {
            Change::SetAside { job, .. } => Some(*job),
            _ => None,
        });
        for change in changes {
            let refused = self.refusal_of(change, aside, &mut reopened)?;
            if refused.is_some() {
                return Ok(refused);
            }
        }
        Ok(None)
    }

    /// Returns the error of a change that cannot be applied. `aside` is the job that its request
    /// sets aside, and `reopened` the one that it has reopened so far.
    fn refusal_of(
        &mut self,
        change: &Change,
        aside: Option<JobNumber>,
        reopened: &mut Option<JobNumber>,
    ) -> Result<Option<WriteError>, SqliteError> {
        Ok(match change {
            Change::Chunk { upload, .. } if upload.failure().is_some() => upload.failure(),
            Change::Chunk { chunk, upload } if upload.is_extension => {
                self.takes(chunk.job(), None, true)?
            }
            Change::Chunk { .. } => None,
            Change::Accept(accept) => self.refuses(accept)?,
            Change::Mark { subtask: SubtaskId { job, number }, .. } => {
                self.takes(*job, Some(*number), false)?
            }
            Change::Outcome { job, outcome } => {
                self.takes(*job, Some(outcome.number), *reopened == Some(*job))?
            }
            Change::Status { job, .. } => self.takes(*job, None, *reopened == Some(*job))?,
            Change::Edit(chunk) => {
                let (job, last) = (chunk.job(), chunk.numbers().end - 1);
                self.takes(job, Some(last), *reopened == Some(job))?
            }
            Change::Reopen { job, status } => {
                *reopened = Some(*job);
                let known = self.state.job(self.connection, *job)?;
                let goes_on = known.is_some_and(|known| !known.state.is_final());
                let refused = self.takes(*job, None, true)?;
                let refused = refused.or(goes_on.then_some(WriteError::NotEnded { job: *job }));
                let is_over = status.state.is_final();
                refused.or(is_over.then_some(WriteError::Ended { job: *job }))
            }
            Change::Enter { job, .. } => self.takes(*job, None, false)?,
            // A damaged row's state is not trusted either.
            Change::SetAside { job, .. } => self.takes(*job, None, true)?,
            Change::Reform { job, upload, .. } => {
                let failed = upload.as_ref().and_then(|upload| upload.failure());
                failed.or(self.takes(*job, None, true)?)
            }
            // The preceding change has set it aside, so it has ended.
            Change::Purge(job) if aside == Some(*job) => None,
            Change::Settle(job) => {
                *reopened = Some(*job);
                self.takes(*job, None, true)?
            }
            Change::Purge(job) => match self.state.job(self.connection, *job)? {
                None => Some(WriteError::NoSuchJob { job: *job }),
                Some(known) if !known.state.is_final() => Some(WriteError::NotEnded { job: *job }),
                Some(_) => None,
            },
            Change::Schedule(change) => schedules::refusal(self.connection, change)?,
            Change::Alias(alias) => alias::refusal(self.connection, alias)?,
            Change::Abandon(_)
            | Change::RaiseBoot(_)
            | Change::Log { .. }
            | Change::Key { .. }
            | Change::Idempotency { .. }
            | Change::ForgetIdempotency { .. }
            | Change::Setting { .. }
            | Change::Audit { .. }
            | Change::ForgetAudit(_) => None,
        })
    }

    /// Returns the error of a change to a job, or to one of its subtasks, that cannot be made.
    fn takes(
        &mut self,
        job: JobNumber,
        number: Option<u32>,
        even_if_over: bool,
    ) -> Result<Option<WriteError>, SqliteError> {
        Ok(match self.state.job(self.connection, job)? {
            None => Some(WriteError::NoSuchJob { job }),
            Some(JobMeta { state, .. }) if state.is_final() && !even_if_over => {
                Some(WriteError::Ended { job })
            }
            Some(JobMeta { next_row, .. }) if u64::from(*next_row) + 2 >= row_numbers::PLACES => {
                let most = row_numbers::PLACES;
                Some(WriteError::TooLarge { what: "a job's transactions with outcomes", most })
            }
            Some(JobMeta { total, .. }) => number
                .filter(|number| number >= total)
                .map(|number| WriteError::NoSuchSubtask { job, number, total: *total }),
        })
    }

    fn refuses(&mut self, accept: &JobAcceptance) -> Result<Option<WriteError>, SqliteError> {
        if let Some(failed) = accept.upload.failure() {
            return Ok(Some(failed));
        }
        if accept.new.status.state.is_final() {
            return Ok(Some(WriteError::Ended { job: accept.job }));
        }
        let Some(IdempotencyEntry { scope, key, .. }) = &accept.new.idempotency else {
            return Ok(None);
        };
        // An expired entry does not count, even if it is not deleted yet.
        let mut find = self.connection.prepare_cached(
            "SELECT id, body_hash FROM idempotency WHERE scope = ?1 AND key = ?2 AND expires_ms > ?3",
        )?;
        let now = accept.new.created_ms.cast_signed();
        let found = find.query_row(params![scope, key, now], |row| Ok((row.get(0)?, row.get(1)?)));
        let found = found.optional()?;
        Ok(found.map(|(id, body_hash)| WriteError::Duplicate { job: JobId(id), body_hash }))
    }

    /// Applies the changes. Returns the position of a job that enters the order.
    fn do_all(&mut self, changes: &[Change]) -> Result<Option<u64>, SqliteError> {
        let mut entered = None;
        for change in changes {
            match change {
                Change::Chunk { chunk, .. } => self.put_chunk(chunk)?,
                Change::Accept(accept) => entered = Some(self.accept(accept)?),
                Change::Abandon(job) => self.loose.push(*job),
                Change::Edit(chunk) => self.edit(chunk)?,
                Change::Settle(_) => {}
                Change::Mark { subtask, mark } => self.state.marks.put(*subtask, mark.clone()),
                Change::RaiseBoot(boot) => {
                    self.state.meta.boot = self.state.meta.boot.max(*boot);
                }
                Change::Outcome { job, outcome } => self.put_outcome(*job, outcome)?,
                Change::Log { job, log } => self.put_log(*job, log)?,
                Change::Status { job, status } => self.put_status(*job, status)?,
                Change::SetAside { job, status } => self.set_aside(*job, status)?,
                Change::Enter { job, status } => {
                    self.put_status(*job, status)?;
                    entered = Some(self.enter(*job, None)?);
                }
                Change::Reopen { job, status } => {
                    self.state.marks.reopen();
                    self.put_status(*job, status)?;
                    entered = Some(self.enter(*job, None)?);
                }
                Change::Reform { job, head: Some(head), .. } => {
                    tables::reform(self.connection, *job, |fixed| {
                        fixed.head.clone_from(head);
                    })?;
                }
                Change::Reform { job, total, .. } => entered = Some(self.enter(*job, *total)?),
                Change::Purge(job) => self.purge(*job)?,
                Change::Key { key, record } => self.put_key(key, record.as_ref())?,
                Change::Idempotency { entry, id } => self.put_idempotency(entry, *id)?,
                Change::ForgetIdempotency { now_ms } => self.forget_idempotency(*now_ms)?,
                Change::Schedule(change) => {
                    schedules::put(self.connection, change)?;
                }
                Change::Setting { name, body } => {
                    live_settings::put(self.connection, name, body.as_deref())?;
                }
                Change::Alias(alias) => alias::put(self.connection, alias)?,
                Change::Audit { number, record } => {
                    audit::put(self.connection, *number, record)?;
                }
                Change::ForgetAudit(kept) => audit::forget(self.connection, *kept)?,
            }
        }
        Ok(entered)
    }

    fn put_chunk(&mut self, chunk: &Chunk) -> rusqlite::Result<()> {
        let (job, first) = (chunk.job(), chunk.numbers().start);
        let total = self.state.job(self.connection, job)?.map(|known| known.total);
        if total.is_some_and(|total| first >= total) {
            // Chunks of an earlier, broken extension may begin at other places. Each chunk replaces
            // those in its own range, so that no transaction deletes them all.
            let mut left = self
                .connection
                .prepare_cached("DELETE FROM chunk WHERE place BETWEEN ?1 AND ?2")?;
            let last = place(job, chunk.numbers().end - 1);
            left.execute([place(job, first).cast_signed(), last.cast_signed()])?;
        } else if first == 0 {
            self.state.use_number(job);
            let mut loose =
                self.connection.prepare_cached("INSERT OR IGNORE INTO loose (job) VALUES (?1)")?;
            loose.execute([job.0.cast_signed()])?;
        }
        let mut insert = self.connection.prepare_cached(
            "INSERT OR REPLACE INTO chunk (place, count, body) VALUES (?1, ?2, ?3)",
        )?;
        let place = place(job, first).cast_signed();
        insert.execute(params![place, chunk.count(), chunk.sealed()])?;
        Ok(())
    }

    /// Replaces a chunk. An inline one may have become too large for the row of its job, so it leaves that.
    fn edit(&mut self, chunk: &Chunk) -> Result<(), SqliteError> {
        let (job, first) = (chunk.job(), chunk.numbers().start);
        if first == 0 {
            tables::move_chunk_out(self.connection, job)?;
        }
        let mut edit = self
            .connection
            .prepare_cached("UPDATE chunk SET body = ?3 WHERE place = ?1 AND count = ?2")?;
        let place = place(job, first).cast_signed();
        match edit.execute(params![place, chunk.count(), chunk.sealed()])? {
            1 => Ok(()),
            _ => {
                Err(SqliteError::Broken(format!("the subtasks of {chunk:?} are not there").into()))
            }
        }
    }

    fn accept(&mut self, accept: &JobAcceptance) -> rusqlite::Result<u64> {
        self.state.use_number(accept.job);
        let entered = self.state.enter();
        tables::put_job(self.connection, accept, entered)?;
        if accept.inline.is_none() {
            let mut owned = self.connection.prepare_cached("DELETE FROM loose WHERE job = ?1")?;
            owned.execute([accept.job.0.cast_signed()])?;
        }
        if let Some(entry) = &accept.new.idempotency {
            self.put_idempotency(entry, accept.id)?;
        }
        self.state.learn(accept.job, accept.new.status.state, accept.total);
        self.state.count_unfinished(true, false);
        Ok(entered)
    }

    /// Gives an accepted job, perhaps with additional subtasks, a new position in the order.
    fn enter(&mut self, job: JobNumber, total: Option<u32>) -> Result<u64, SqliteError> {
        let entered = self.state.enter();
        tables::reform(self.connection, job, |fixed| {
            fixed.entered = entered;
            fixed.total = total.unwrap_or(fixed.total);
        })?;
        if let (Some(total), Some(known)) = (total, self.state.job(self.connection, job)?) {
            known.total = total;
        }
        Ok(entered)
    }

    fn put_outcome(&mut self, job: JobNumber, outcome: &SubtaskOutcome) -> rusqlite::Result<()> {
        self.state.marks.end(SubtaskId { job, number: outcome.number });
        if self.rows.get(&job).is_some_and(|row| row.is_full_for(outcome)) {
            self.put_row(job)?;
        }
        self.rows.entry(job).or_default().push(outcome);
        Ok(())
    }

    fn put_log(&mut self, job: JobNumber, log: &AttemptLog) -> rusqlite::Result<()> {
        let known = self.state.job(self.connection, job)?;
        if known.is_some_and(|known| log.number < known.total) {
            logs::put(self.connection, job, log)?;
        }
        Ok(())
    }

    /// Writes the outcomes of a job that are not in a row yet.
    fn put_row(&mut self, job: JobNumber) -> rusqlite::Result<()> {
        let Entry::Occupied(row) = self.rows.entry(job) else { return Ok(()) };
        let row = row.remove();
        let Some(known) = self.state.job(self.connection, job)? else { return Ok(()) };
        let place = place(job, known.next_row);
        known.next_row += 1;
        let (count, numbers, body) = row.sealed(place);
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO outcome (place, count, numbers, body) VALUES (?1, ?2, ?3, ?4)",
        )?;
        insert.execute(params![place.cast_signed(), count, numbers, body])?;
        Ok(())
    }

    fn put_status(&mut self, job: JobNumber, status: &JobStatus) -> rusqlite::Result<()> {
        let mut update = self
            .connection
            .prepare_cached("UPDATE job SET state = ?2, status = ?3 WHERE number = ?1")?;
        let code = status.state.code();
        update.execute(params![job.0.cast_signed(), code, status.encode(job)])?;
        let Some(known) = self.state.job(self.connection, job)? else { return Ok(()) };
        let before = std::mem::replace(&mut known.state, status.state);
        self.state.count_unfinished(before.is_final(), status.state.is_final());
        if status.state.is_final() {
            self.state.marks.end_all(job);
        }
        Ok(())
    }

    /// Sets the status of a damaged job without trusting its row.
    fn set_aside(&mut self, job: JobNumber, status: &JobStatus) -> rusqlite::Result<()> {
        let was_over = read::is_over(self.connection, job)?;
        // SQLite would not update a row through an index entry that disagrees with it. This reads all
        // jobs on the writer thread, which takes about a second for a million. Damage is rare, and
        // the repair of a single entry would need the state that the index has, which is unknown.
        self.connection.execute_batch("REINDEX job_by_state")?;
        if let Some(known) = self.state.job(self.connection, job)? {
            // The counters were changed by the state that was believed.
            known.state = if was_over { JobState::Damaged } else { JobState::Waiting };
        }
        self.put_status(job, status)
    }

    fn purge(&mut self, job: JobNumber) -> rusqlite::Result<()> {
        self.has_removed = true;
        self.rows.remove(&job);
        self.state.forget(job);
        alias::forget(self.connection, job)?;
        let mut delete = self.connection.prepare_cached("DELETE FROM job WHERE number = ?1")?;
        delete.execute([job.0.cast_signed()])?;
        // Most jobs are small and deleted at once.
        if self.remove_some(job)? {
            let mut loose =
                self.connection.prepare_cached("INSERT OR IGNORE INTO loose (job) VALUES (?1)")?;
            loose.execute([job.0.cast_signed()])?;
            self.loose.push(job);
        }
        Ok(())
    }

    /// Deletes some rows of a deleted job. Returns whether there may be more.
    fn remove_some(&mut self, job: JobNumber) -> rusqlite::Result<bool> {
        let (first, last) = rows_of(job);
        let mut more = false;
        for table in ["chunk", "outcome", "log"] {
            // The first rows, while those before them are together smaller than the bound.
            let remove = format!(
                "DELETE FROM {table} WHERE rowid IN
                 (SELECT row FROM
                  (SELECT row, sum(bytes) OVER (ORDER BY place, row) - bytes AS before FROM
                   (SELECT rowid AS row, place, length(body) AS bytes FROM {table}
                    WHERE place BETWEEN ?1 AND ?2 ORDER BY place LIMIT ?3))
                  WHERE before < ?4)"
            );
            let mut remove = self.connection.prepare_cached(&remove)?;
            remove.execute(params![first, last, ROWS_REMOVED, BYTES_REMOVED])?;
            let rest =
                format!("SELECT EXISTS (SELECT 1 FROM {table} WHERE place BETWEEN ?1 AND ?2)");
            let mut rest = self.connection.prepare_cached(&rest)?;
            more |= rest.query_row(params![first, last], |row| row.get::<_, bool>(0))?;
        }
        if !more {
            let mut loose = self.connection.prepare_cached("DELETE FROM loose WHERE job = ?1")?;
            loose.execute([job.0.cast_signed()])?;
        }
        Ok(more)
    }

    fn put_key(&mut self, key: &Key, record: Option<&KeyRecord>) -> rusqlite::Result<()> {
        let Some(record) = record else {
            let mut delete = self.connection.prepare_cached("DELETE FROM key WHERE name = ?1")?;
            delete.execute([&key.0[..]])?;
            return Ok(());
        };
        let mut put = self.connection.prepare_cached(
            "INSERT OR REPLACE INTO key (name, state, since_ms, reason, seal)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let since = record.since_ms.cast_signed();
        let sealed = seal_of_key(&key.0, record);
        put.execute(params![&key.0[..], record.state.code(), since, record.reason, sealed])?;
        Ok(())
    }

    fn put_idempotency(&mut self, entry: &IdempotencyEntry, id: JobId) -> rusqlite::Result<()> {
        let mut put = self.connection.prepare_cached(
            "INSERT OR REPLACE INTO idempotency (scope, key, expires_ms, body_hash, id, seal)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?;
        let IdempotencyEntry { scope, key, body_hash, expires_ms } = entry;
        let sealed = seal_of_idempotency(entry, id);
        put.execute(params![scope, key, expires_ms.cast_signed(), body_hash, id.0, sealed])?;
        Ok(())
    }

    fn forget_idempotency(&mut self, now_ms: u64) -> rusqlite::Result<()> {
        let mut expired = self.connection.prepare_cached(
            "SELECT scope, key FROM idempotency WHERE expires_ms <= ?1 ORDER BY expires_ms LIMIT ?2",
        )?;
        let parameters = params![now_ms.cast_signed(), KEYS_REMOVED as i64];
        let expired = expired.query_map(parameters, |row| Ok((row.get(0)?, row.get(1)?)))?;
        let expired: Vec<(String, String)> = expired.collect::<Result<_, _>>()?;
        let mut delete = self
            .connection
            .prepare_cached("DELETE FROM idempotency WHERE scope = ?1 AND key = ?2")?;
        for (scope, key) in expired {
            delete.execute([scope, key])?;
        }
        Ok(())
    }
}
