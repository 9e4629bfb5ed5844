//! Import of an export into an empty store, with the original numbers and identifiers. An
//! incomplete export is detected.

use std::io::BufRead;

use super::alias::JobAlias;
use super::audit::AuditRecord;
use super::boot_number;
use super::change::{Change, Changes, IdempotencyEntry, NewJob};
use super::copy_error::ImportError;
use super::handle::Store;
use super::job_status::JobStatus;
use super::line::{self, ExportLine, StatusLine};
use super::logs::AttemptLog;
use super::outcome::SubtaskOutcome;
use super::read;
use super::upload::JobUpload;
use crate::KeyClaim;
use crate::ids::{JobId, JobNumber, SubtaskId};

/// Number of outcomes or logs submitted together.
const OUTCOMES_AT_ONCE: usize = 1024;

/// Number of audit entries submitted together.
const ENTRIES_AT_ONCE: usize = 1024;

/// Maximum length of a line, in bytes: that of the largest subtask or result.
const MAX_LINE_BYTES: u64 = 256 * 1024 * 1024;

impl Store {
    /// Imports the output of [`export`](Self::export) into an empty store, with the same numbers
    /// and identifiers. Returns the number of jobs.
    ///
    /// # Errors
    /// If the store has jobs or audit entries, if a line is invalid, if the end of the export is
    /// missing, or if a job cannot be written. The jobs before the failure stay: import into a new
    /// file, and delete it after a failure.
    pub fn import(&self, from: &mut dyn BufRead) -> Result<u64, ImportError> {
        if !self.with_reader(read::is_empty)? {
            return Err(ImportError::NotEmpty);
        }
        let mut import = ImportRun {
            store: self,
            at: ImportPosition::Begin,
            jobs: 0,
            log: Changes::new(),
            entry: None,
        };
        let mut lines = ExportReader { from, number: 0 };
        while let Some(parsed) = lines.next()? {
            match import.take(parsed).map_err(|error| error.at(lines.number))? {
                None => {}
                Some(jobs) => return lines.ends_after(jobs),
            }
        }
        Err(ImportError::Truncated { line: lines.number })
    }
}

struct ExportReader<'a> {
    from: &'a mut dyn BufRead,
    number: u64,
}

impl ExportReader<'_> {
    fn next(&mut self) -> Result<Option<ExportLine>, ImportError> {
        let mut text = Vec::new();
        let mut bounded = std::io::Read::take(&mut *self.from, MAX_LINE_BYTES);
        bounded.read_until(b'\n', &mut text)?;
        if text.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if text.last() != Some(&b'\n') {
            return Err(ImportError::Truncated { line: self.number - 1 });
        }
        let parsed = serde_json::from_slice(&text);
        parsed.map(Some).map_err(|error| LineError::Why(error.to_string()).at(self.number))
    }

    /// Checks that no line follows the last one.
    fn ends_after(&mut self, jobs: u64) -> Result<u64, ImportError> {
        match self.next()? {
            None => Ok(jobs),
            Some(_) => Err(LineError::Why("it follows the end".into()).at(self.number)),
        }
    }
}

/// Error of a line.
enum LineError {
    Why(String),
    Import(ImportError),
}

impl LineError {
    fn at(self, line: u64) -> ImportError {
        match self {
            LineError::Why(why) => ImportError::Line { line, why },
            LineError::Import(error) => error,
        }
    }
}

impl From<String> for LineError {
    fn from(why: String) -> Self {
        LineError::Why(why)
    }
}

impl<E: Into<ImportError>> From<E> for LineError {
    fn from(error: E) -> Self {
        LineError::Import(error.into())
    }
}

/// Error of a line at a place where its type is not allowed.
const MISPLACED: &str = "it does not belong here";

/// Position in the export, which determines the valid next lines.
enum ImportPosition {
    /// Before the first line.
    Begin,
    /// Before a job, or a line that belongs to no job.
    Between,
    /// Among the `total` subtasks of a job.
    Subtasks { upload: Box<JobUpload>, new: Box<NewJob>, total: u32 },
    /// Among the outcomes and logs of a job, before its end.
    Outcomes { job: JobNumber, changes: Changes },
}

struct ImportRun<'a> {
    store: &'a Store,
    at: ImportPosition,
    jobs: u64,
    /// Audit entries that are not written yet.
    log: Changes,
    /// Number of the last audit entry.
    entry: Option<u64>,
}

impl ImportRun<'_> {
    /// Handles a line. Returns the number of jobs if it was the last line.
    fn take(&mut self, line: ExportLine) -> Result<Option<u64>, LineError> {
        if !matches!(line, ExportLine::Audit { .. }) {
            self.write_log()?;
        }
        let at = std::mem::replace(&mut self.at, ImportPosition::Between);
        self.at = match (at, line) {
            (ImportPosition::Begin, ExportLine::Store { version: 1..=line::VERSION, boot }) => {
                // This store's fences must be higher than those of the exported store, which may
                // have continued.
                let is_behind = boot >= self.store.boot();
                let mut changes = Changes::new();
                changes.raise_boot(if is_behind {
                    boot_number::beyond(boot, self.store.outside().random())
                } else {
                    boot
                });
                self.write(changes)?;
                ImportPosition::Between
            }
            (ImportPosition::Begin, _) => {
                return Err("it is not the begin of an export".to_owned().into());
            }
            (ImportPosition::Between, ExportLine::End { jobs }) if jobs == self.jobs => {
                return Ok(Some(jobs));
            }
            (ImportPosition::Between, ExportLine::End { jobs }) => {
                return Err(format!("{jobs} jobs were exported, and {} are here", self.jobs).into());
            }
            (ImportPosition::Between, line) => self.take_between(line)?,
            (
                ImportPosition::Subtasks { upload, new, total },
                ExportLine::Subtask { keys, shared_keys, payload },
            ) => self.add(upload, new, total, [&keys, &shared_keys], &payload)?,
            (ImportPosition::Outcomes { job, changes }, line) => {
                self.take_outcome(job, changes, line)?
            }
            _ => return Err(MISPLACED.to_owned().into()),
        };
        Ok(None)
    }

    /// Takes a line behind a complete job.
    fn take_between(&mut self, line: ExportLine) -> Result<ImportPosition, LineError> {
        Ok(match line {
            ExportLine::Key { key, state, since_ms, reason } => {
                let (key, record) = line::key(&key, &state, since_ms, reason)?;
                let mut changes = Changes::new();
                changes.key(key, Some(record));
                self.write(changes)?;
                ImportPosition::Between
            }
            ExportLine::Idempotency { scope, key, body_hash, id, expires_ms } => {
                let (body_hash, id) = (line::hash(&body_hash)?, line::id(&id)?);
                self.put(IdempotencyEntry { scope, key, body_hash, expires_ms }, id)?;
                ImportPosition::Between
            }
            ExportLine::Alias { name, id, body_hash } => {
                let (job, body_hash) = (line::id(&id)?, line::hash(&body_hash)?);
                let mut changes = Changes::new();
                changes.alias(JobAlias { name, job, body_hash });
                self.write(changes)?;
                ImportPosition::Between
            }
            ExportLine::Schedule { name, version, body } => {
                let mut changes = Changes::new();
                changes.schedule(&name, None, Some((version, line::decode(&body)?)));
                self.write(changes)?;
                ImportPosition::Between
            }
            ExportLine::Setting { name, body } => {
                let mut changes = Changes::new();
                changes.setting(&name, Some(line::decode(&body)?));
                self.write(changes)?;
                ImportPosition::Between
            }
            ExportLine::Audit { number, at_ms, who, what, job, body } => {
                let record = AuditRecord { at_ms, who, what, job, body: line::decode(&body)? };
                self.log(number, record)?;
                ImportPosition::Between
            }
            ExportLine::Job { id, kind, created_ms, total, head, status } => {
                let new = line::new_job(kind, created_ms, &head, &status)?;
                self.begin(line::id(&id)?, new, total)?
            }
            _ => return Err(MISPLACED.to_owned().into()),
        })
    }

    /// Takes a line behind the subtasks of a job.
    fn take_outcome(
        &mut self,
        job: JobNumber,
        mut changes: Changes,
        line: ExportLine,
    ) -> Result<ImportPosition, LineError> {
        match line {
            ExportLine::Outcome { number, attempt, kind, started_ms, ended_ms, result } => {
                let (kind, result) = (line::kind(&kind)?, line::decode(&result)?);
                let outcome =
                    SubtaskOutcome { number, attempt, kind, started_ms, ended_ms, result };
                changes.ended(job, outcome);
                self.record(job, changes)
            }
            ExportLine::Log {
                number,
                fence,
                attempt,
                kind,
                started_ms,
                ended_ms,
                left_out,
                text,
            } => {
                let (kind, text) = (line::kind(&kind)?, line::decode(&text)?.into());
                let log = AttemptLog {
                    number,
                    fence,
                    attempt,
                    kind,
                    started_ms,
                    ended_ms,
                    left_out,
                    text,
                };
                changes.said(job, log);
                self.record(job, changes)
            }
            ExportLine::Mark(mark) => {
                let (number, mark) = mark.read();
                changes.mark(SubtaskId { job, number }, mark);
                self.record(job, changes)
            }
            ExportLine::Status(status) => self.end(job, changes, &status),
            _ => Err(MISPLACED.to_owned().into()),
        }
    }

    fn write(&self, changes: Changes) -> Result<(), LineError> {
        self.store.submit(changes).wait()?;
        Ok(())
    }

    /// Adds an audit entry, which must follow its predecessor directly or be the first.
    fn log(&mut self, number: u64, record: AuditRecord) -> Result<(), LineError> {
        let follows = self.entry.map_or(number >= 1, |last| number == last + 1);
        // No real log has this many entries, and SQLite's numbers end soon above.
        if !follows || number >= 1 << 53 {
            return Err(format!("{number} does not follow in the audit log").into());
        }
        self.entry = Some(number);
        self.log.push(Change::Audit { number: Some(number), record: Box::new(record) });
        if self.log.len() == ENTRIES_AT_ONCE { self.write_log() } else { Ok(()) }
    }

    fn write_log(&mut self) -> Result<(), LineError> {
        let log = std::mem::take(&mut self.log);
        if log.is_empty() { Ok(()) } else { self.write(log) }
    }

    fn put(&self, entry: IdempotencyEntry, id: JobId) -> Result<(), LineError> {
        let mut changes = Changes::new();
        changes.push(Change::Idempotency { entry, id });
        self.write(changes)
    }

    fn begin(&mut self, id: JobId, new: NewJob, total: u32) -> Result<ImportPosition, LineError> {
        self.jobs += 1;
        if id.number().0 >= super::row_numbers::JOBS {
            return Err(format!("{id} has no number that a store can have").into());
        }
        let upload = self.store.upload_as(id);
        if total == 0 {
            return Ok(self.accepted(upload, new)?);
        }
        Ok(ImportPosition::Subtasks { upload: Box::new(upload), new: Box::new(new), total })
    }

    fn add(
        &mut self,
        mut upload: Box<JobUpload>,
        new: Box<NewJob>,
        total: u32,
        [keys, shared_keys]: [&[String]; 2],
        payload: &str,
    ) -> Result<ImportPosition, LineError> {
        let decoded = |keys: &[String]| {
            keys.iter().map(|key| line::decode(key)).collect::<Result<Vec<_>, _>>()
        };
        let (keys, shared) = (decoded(keys)?, decoded(shared_keys)?);
        let exclusive = keys.iter().map(|key| KeyClaim::exclusive(key));
        let shared = shared.iter().map(|key| KeyClaim::shared(key));
        let claims: Vec<_> = exclusive.chain(shared).collect();
        upload.push_claims(&claims, &line::decode(payload)?)?;
        upload.flush()?;
        match upload.total() == total {
            true => Ok(self.accepted(*upload, *new)?),
            false => Ok(ImportPosition::Subtasks { upload, new, total }),
        }
    }

    fn accepted(&self, upload: JobUpload, new: NewJob) -> Result<ImportPosition, ImportError> {
        let job = upload.job();
        upload.finish(new).wait()?;
        Ok(ImportPosition::Outcomes { job, changes: Changes::new() })
    }

    /// Submits the collected changes of a job if they are many.
    fn record(&self, job: JobNumber, mut changes: Changes) -> Result<ImportPosition, LineError> {
        if changes.len() == OUTCOMES_AT_ONCE {
            self.write(std::mem::take(&mut changes))?;
        }
        Ok(ImportPosition::Outcomes { job, changes })
    }

    fn end(
        &self,
        job: JobNumber,
        mut changes: Changes,
        status: &StatusLine,
    ) -> Result<ImportPosition, LineError> {
        let status: JobStatus = status.read()?;
        changes.status(job, status);
        self.write(changes)?;
        Ok(ImportPosition::Between)
    }
}
