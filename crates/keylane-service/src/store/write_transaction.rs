//! One transaction of the writer: checks each request, and applies its changes to the tables. A refused request changes
//! nothing.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::ControlFlow;

use keylane_storage::sqlite::SqliteError;

use super::alias;
use super::audit;
use super::change::{
    Change, CommitReceipt, IdempotencyEntry, JobAcceptance, KeyRecord, WriteRequest,
};
use super::chunk::Chunk;
use super::connection::StoreConnection;
use super::error::{ReadError, WriteError};
use super::inbox;
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
    connection: &'a dyn StoreConnection,
    state: &'a mut WriterState,
    /// Outcomes that are not in a row yet.
    rows: HashMap<JobNumber, OutcomeRow, foldhash::fast::RandomState>,
    loose: Vec<JobNumber>,
    has_removed: bool,
}

impl<'a> WriteTransaction<'a> {
    pub(super) fn new(connection: &'a dyn StoreConnection, state: &'a mut WriterState) -> Self {
        WriteTransaction {
            connection,
            state,
            rows: HashMap::default(),
            loose: Vec::new(),
            has_removed: false,
        }
    }

    /// Applies all requests, and deletes some rows of a deleted job. A refused request
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
            | Change::EndInbox(_)
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
        let sql = "SELECT id, body_hash FROM idempotency
                   WHERE scope = ?1 AND key = ?2 AND expires_ms > ?3";
        let parameters = [scope.into(), key.into(), accept.new.created_ms.into()];
        Ok(self.connection.first(sql, &parameters, |row| {
            Ok(WriteError::Duplicate { job: JobId(row.array(0)?), body_hash: row.array(1)? })
        })?)
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
                Change::EndInbox(end) => inbox::end(self.connection, end)?,
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

    fn put_chunk(&mut self, chunk: &Chunk) -> Result<(), SqliteError> {
        let (job, first) = (chunk.job(), chunk.numbers().start);
        let total = self.state.job(self.connection, job)?.map(|known| known.total);
        if total.is_some_and(|total| first >= total) {
            // Chunks of an earlier, broken extension may begin at other places. Each chunk replaces
            // those in its own range, so that no transaction deletes them all.
            let last = place(job, chunk.numbers().end - 1);
            let left = "DELETE FROM chunk WHERE place BETWEEN ?1 AND ?2";
            self.connection.execute(left, &[place(job, first).into(), last.into()])?;
        } else if first == 0 {
            self.state.use_number(job);
            self.put_loose(job)?;
        }
        let sql = "INSERT INTO chunk (place, count, body) VALUES (?1, ?2, ?3)
                   ON CONFLICT (place) DO UPDATE SET count = excluded.count, body = excluded.body";
        let place = place(job, first);
        let parameters = [place.into(), chunk.count().into(), chunk.sealed().into()];
        self.connection.execute(sql, &parameters)?;
        Ok(())
    }

    /// Notes a job that has rows and no main row.
    fn put_loose(&mut self, job: JobNumber) -> Result<(), SqliteError> {
        let sql = "INSERT INTO loose (job) VALUES (?1) ON CONFLICT (job) DO NOTHING";
        self.connection.execute(sql, &[job.0.into()])?;
        Ok(())
    }

    fn remove_loose(&mut self, job: JobNumber) -> Result<(), SqliteError> {
        self.connection.execute("DELETE FROM loose WHERE job = ?1", &[job.0.into()])?;
        Ok(())
    }

    /// Replaces a chunk. An inline one may have become too large for the row of its job, so it leaves that.
    fn edit(&mut self, chunk: &Chunk) -> Result<(), SqliteError> {
        let (job, first) = (chunk.job(), chunk.numbers().start);
        if first == 0 {
            tables::move_chunk_out(self.connection, job)?;
        }
        let edit = "UPDATE chunk SET body = ?3 WHERE place = ?1 AND count = ?2";
        let place = place(job, first);
        let parameters = [place.into(), chunk.count().into(), chunk.sealed().into()];
        match self.connection.execute_counted(edit, &parameters)? {
            1 => Ok(()),
            _ => {
                Err(SqliteError::Broken(format!("the subtasks of {chunk:?} are not there").into()))
            }
        }
    }

    fn accept(&mut self, accept: &JobAcceptance) -> Result<u64, SqliteError> {
        self.state.use_number(accept.job);
        let entered = self.state.enter();
        tables::put_job(self.connection, accept, entered)?;
        if accept.inline.is_none() {
            self.remove_loose(accept.job)?;
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

    fn put_outcome(&mut self, job: JobNumber, outcome: &SubtaskOutcome) -> Result<(), SqliteError> {
        self.state.marks.end(SubtaskId { job, number: outcome.number });
        if self.rows.get(&job).is_some_and(|row| row.is_full_for(outcome)) {
            self.put_row(job)?;
        }
        self.rows.entry(job).or_default().push(outcome);
        Ok(())
    }

    fn put_log(&mut self, job: JobNumber, log: &AttemptLog) -> Result<(), SqliteError> {
        let known = self.state.job(self.connection, job)?;
        if known.is_some_and(|known| log.number < known.total) {
            logs::put(self.connection, job, log)?;
        }
        Ok(())
    }

    /// Writes the outcomes of a job that are not in a row yet.
    fn put_row(&mut self, job: JobNumber) -> Result<(), SqliteError> {
        let Entry::Occupied(row) = self.rows.entry(job) else { return Ok(()) };
        let row = row.remove();
        let Some(known) = self.state.job(self.connection, job)? else { return Ok(()) };
        let place = place(job, known.next_row);
        known.next_row += 1;
        let (count, numbers, body) = row.sealed(place);
        let sql = "INSERT INTO outcome (place, count, numbers, body) VALUES (?1, ?2, ?3, ?4)";
        let parameters = [place.into(), count.into(), (&numbers).into(), (&body).into()];
        self.connection.execute(sql, &parameters)?;
        Ok(())
    }

    fn put_status(&mut self, job: JobNumber, status: &JobStatus) -> Result<(), SqliteError> {
        let sql = "UPDATE job SET state = ?2, status = ?3 WHERE number = ?1";
        let (code, encoded) = (status.state.code(), status.encode(job));
        self.connection.execute(sql, &[job.0.into(), code.into(), (&encoded).into()])?;
        let Some(known) = self.state.job(self.connection, job)? else { return Ok(()) };
        let before = std::mem::replace(&mut known.state, status.state);
        self.state.count_unfinished(before.is_final(), status.state.is_final());
        if status.state.is_final() {
            self.state.marks.end_all(job);
        }
        Ok(())
    }

    /// Sets the status of a damaged job without trusting its row.
    fn set_aside(&mut self, job: JobNumber, status: &JobStatus) -> Result<(), SqliteError> {
        let was_over = read::is_over(self.connection, job)?;
        // SQLite would not update a row through an index entry that disagrees with it. This reads all
        // jobs on the writer thread, which takes about a second for a million. Damage is rare, and
        // the repair of a single entry would need the state that the index has, which is unknown.
        self.connection.rebuild_state_index()?;
        if let Some(known) = self.state.job(self.connection, job)? {
            // The counters were changed by the state that was believed.
            known.state = if was_over { JobState::Damaged } else { JobState::Waiting };
        }
        self.put_status(job, status)
    }

    fn purge(&mut self, job: JobNumber) -> Result<(), SqliteError> {
        self.has_removed = true;
        self.rows.remove(&job);
        self.state.forget(job);
        alias::forget(self.connection, job)?;
        self.connection.execute("DELETE FROM job WHERE number = ?1", &[job.0.into()])?;
        // Most jobs are small and deleted at once.
        if self.remove_some(job)? {
            self.put_loose(job)?;
            self.loose.push(job);
        }
        Ok(())
    }

    /// Deletes some rows of a deleted job. Returns whether there may be more.
    fn remove_some(&mut self, job: JobNumber) -> Result<bool, SqliteError> {
        let (first, last) = rows_of(job);
        let mut more = false;
        for table in ["chunk", "outcome", "log"] {
            let places = [first.into(), last.into()];
            if let Some(until) = self.last_removed(table, first, last)? {
                let remove = format!("DELETE FROM {table} WHERE place BETWEEN ?1 AND ?2");
                self.connection.execute(&remove, &[first.into(), until.into()])?;
            }
            let rest = format!("SELECT 1 FROM {table} WHERE place BETWEEN ?1 AND ?2 LIMIT 1");
            more |= self.connection.finds(&rest, &places)?;
        }
        if !more {
            self.remove_loose(job)?;
        }
        Ok(more)
    }

    /// Returns the place up to which rows of a deleted job are removed from a table now, of those between two
    /// places; `None` if there are none. These are the first rows, while those before them are together smaller than the
    /// bound.
    fn last_removed(&self, table: &str, first: i64, last: i64) -> Result<Option<i64>, ReadError> {
        let sql = format!(
            "SELECT place, length(body) FROM {table} WHERE place BETWEEN ?1 AND ?2
             ORDER BY place LIMIT ?3"
        );
        let (mut until, mut bytes) = (None, 0);
        let parameters = [first.into(), last.into(), ROWS_REMOVED.into()];
        self.connection.for_each_row(&sql, &parameters, &mut |row| {
            until = Some(row.number(0)?);
            bytes += row.number(1)?;
            let goes_on = bytes < BYTES_REMOVED;
            Ok(if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
        })?;
        Ok(until)
    }

    fn put_key(&mut self, key: &Key, record: Option<&KeyRecord>) -> Result<(), SqliteError> {
        let Some(record) = record else {
            let delete = "DELETE FROM key WHERE name = ?1";
            self.connection.execute(delete, &[key.0.as_ref().into()])?;
            return Ok(());
        };
        let sql =
            "INSERT INTO key (name, state, since_ms, reason, seal) VALUES (?1, ?2, ?3, ?4, ?5)
                   ON CONFLICT (name) DO UPDATE
                   SET state = excluded.state, since_ms = excluded.since_ms,
                       reason = excluded.reason, seal = excluded.seal";
        let sealed = seal_of_key(&key.0, record);
        let (code, since) = (record.state.code().into(), record.since_ms.into());
        let parameters =
            [key.0.as_ref().into(), code, since, (&record.reason).into(), (&sealed).into()];
        self.connection.execute(sql, &parameters)?;
        Ok(())
    }

    fn put_idempotency(&mut self, entry: &IdempotencyEntry, id: JobId) -> Result<(), SqliteError> {
        let sql = "INSERT INTO idempotency (scope, key, expires_ms, body_hash, id, seal)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                   ON CONFLICT (scope, key) DO UPDATE
                   SET expires_ms = excluded.expires_ms, body_hash = excluded.body_hash,
                       id = excluded.id, seal = excluded.seal";
        let IdempotencyEntry { scope, key, body_hash, expires_ms } = entry;
        let sealed = seal_of_idempotency(entry, id);
        let parameters = [
            scope.into(),
            key.into(),
            (*expires_ms).into(),
            body_hash.into(),
            (&id.0).into(),
            (&sealed).into(),
        ];
        self.connection.execute(sql, &parameters)?;
        Ok(())
    }

    fn forget_idempotency(&mut self, now_ms: u64) -> Result<(), SqliteError> {
        let expired = "SELECT scope, key FROM idempotency WHERE expires_ms <= ?1
                       ORDER BY expires_ms LIMIT ?2";
        let parameters = [now_ms.into(), KEYS_REMOVED.into()];
        let expired =
            self.connection.all(expired, &parameters, |row| Ok((row.text(0)?, row.text(1)?)))?;
        let delete = "DELETE FROM idempotency WHERE scope = ?1 AND key = ?2";
        for (scope, key) in expired {
            self.connection.execute(delete, &[(&scope).into(), (&key).into()])?;
        }
        Ok(())
    }
}
