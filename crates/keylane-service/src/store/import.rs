use std::io::BufRead;

use super::alias::Alias;
use super::audit::AuditRecord;
use super::boot;
use super::change::{Change, Changes, Idempotency, NewJob};
use super::error::ImportError;
use super::handle::Store;
use super::line::{self, Line, Status};
use super::logs::AttemptLog;
use super::outcome::Outcome;
use super::read;
use super::status::JobStatus;
use super::upload::Upload;
use crate::ids::{JobId, JobNumber, SubtaskId};

/// How many outcomes or logs are handed over at once.
const OUTCOMES_AT_ONCE: usize = 1024;

/// How many entries of the audit log are.
const ENTRIES_AT_ONCE: usize = 1024;

/// How long a line can be: that of the largest subtask or result.
const MOST_LINE_BYTES: u64 = 256 * 1024 * 1024;

impl Store {
    /// Reads what [`export`](Self::export) has written into a store that has no jobs and no log, with the same
    /// numbers and ids. Returns how many jobs there were.
    ///
    /// # Errors
    /// If there are jobs or entries of the log in the store, if a line is not what an export has there, if the end of the
    /// export is missing, or if it cannot be written. What was read until then stays: import into a new
    /// file, and remove that if it fails.
    pub fn import(&self, from: &mut dyn BufRead) -> Result<u64, ImportError> {
        if !self.with_reader(|reader| Ok(read::is_empty(reader)?))? {
            return Err(ImportError::NotEmpty);
        }
        let mut import =
            Import { store: self, at: At::Begin, jobs: 0, log: Changes::new(), entry: None };
        let mut lines = Lines { from, number: 0 };
        while let Some(parsed) = lines.next()? {
            match import.take(parsed).map_err(|error| error.at(lines.number))? {
                None => {}
                Some(jobs) => return lines.ends_after(jobs),
            }
        }
        Err(ImportError::Truncated { line: lines.number })
    }
}

struct Lines<'a> {
    from: &'a mut dyn BufRead,
    number: u64,
}

impl Lines<'_> {
    fn next(&mut self) -> Result<Option<Line>, ImportError> {
        let mut text = Vec::new();
        let mut bounded = std::io::Read::take(&mut *self.from, MOST_LINE_BYTES);
        bounded.read_until(b'\n', &mut text)?;
        if text.is_empty() {
            return Ok(None);
        }
        self.number += 1;
        if text.last() != Some(&b'\n') {
            return Err(ImportError::Truncated { line: self.number - 1 });
        }
        let parsed = serde_json::from_slice(&text);
        parsed.map(Some).map_err(|error| Trouble::Why(error.to_string()).at(self.number))
    }

    /// Nothing may follow the last line.
    fn ends_after(&mut self, jobs: u64) -> Result<u64, ImportError> {
        match self.next()? {
            None => Ok(jobs),
            Some(_) => Err(Trouble::Why("it follows the end".into()).at(self.number)),
        }
    }
}

/// What is wrong with a line.
enum Trouble {
    Why(String),
    Import(ImportError),
}

impl Trouble {
    fn at(self, line: u64) -> ImportError {
        match self {
            Trouble::Why(why) => ImportError::Line { line, why },
            Trouble::Import(error) => error,
        }
    }
}

impl From<String> for Trouble {
    fn from(why: String) -> Self {
        Trouble::Why(why)
    }
}

impl<E: Into<ImportError>> From<E> for Trouble {
    fn from(error: E) -> Self {
        Trouble::Import(error.into())
    }
}

/// Which lines can come next.
enum At {
    /// The first one.
    Begin,
    /// A job, or what belongs to none.
    Between,
    /// The subtasks of a job, `total` in all.
    Subtasks { upload: Box<Upload>, new: Box<NewJob>, total: u32 },
    /// The outcomes of a job, its logs, and its end.
    Outcomes { job: JobNumber, changes: Changes },
}

struct Import<'a> {
    store: &'a Store,
    at: At,
    jobs: u64,
    /// Entries of the audit log that are not written yet.
    log: Changes,
    /// The number of the last one.
    entry: Option<u64>,
}

impl Import<'_> {
    /// Takes a line. How many jobs there were, if it was the last.
    fn take(&mut self, line: Line) -> Result<Option<u64>, Trouble> {
        if !matches!(line, Line::Audit { .. }) {
            self.write_log()?;
        }
        let at = std::mem::replace(&mut self.at, At::Between);
        self.at = match (at, line) {
            (At::Begin, Line::Store { version: 1..=line::VERSION, boot }) => {
                // Fences of this store are to be higher than those of the exported one, which may have gone on.
                let is_behind = boot >= self.store.boot();
                let mut changes = Changes::new();
                changes.raise_boot(if is_behind { boot::beyond(boot) } else { boot });
                self.write(changes)?;
                At::Between
            }
            (At::Begin, _) => return Err("it is not the begin of an export".to_owned().into()),
            (At::Between, Line::Key { key, state, since_ms, reason }) => {
                let (key, record) = line::key(&key, &state, since_ms, reason)?;
                let mut changes = Changes::new();
                changes.key(key, Some(record));
                self.write(changes)?;
                At::Between
            }
            (At::Between, Line::Idempotency { scope, key, body_hash, id, expires_ms }) => {
                let (body_hash, id) = (line::hash(&body_hash)?, line::id(&id)?);
                self.put(Idempotency { scope, key, body_hash, expires_ms }, id)?;
                At::Between
            }
            (At::Between, Line::Alias { name, id, body_hash }) => {
                let (job, body_hash) = (line::id(&id)?, line::hash(&body_hash)?);
                let mut changes = Changes::new();
                changes.alias(Alias { name, job, body_hash });
                self.write(changes)?;
                At::Between
            }
            (At::Between, Line::Schedule { name, version, body }) => {
                let mut changes = Changes::new();
                changes.schedule(&name, None, Some((version, line::decode(&body)?)));
                self.write(changes)?;
                At::Between
            }
            (At::Between, Line::Audit { number, at_ms, who, what, job, body }) => {
                let record = AuditRecord { at_ms, who, what, job, body: line::decode(&body)? };
                self.log(number, record)?;
                At::Between
            }
            (At::Between, Line::Job { id, kind, created_ms, total, head, status }) => {
                let new = line::new_job(kind, created_ms, &head, &status)?;
                self.begin(line::id(&id)?, new, total)?
            }
            (At::Between, Line::End { jobs }) if jobs == self.jobs => return Ok(Some(jobs)),
            (At::Between, Line::End { jobs }) => {
                return Err(format!("{jobs} jobs were exported, and {} are here", self.jobs).into());
            }
            (At::Subtasks { upload, new, total }, Line::Subtask { keys, payload }) => {
                self.add(upload, new, total, &keys, &payload)?
            }
            (
                At::Outcomes { job, mut changes },
                Line::Outcome { number, attempt, kind, started_ms, ended_ms, result },
            ) => {
                let (kind, result) = (line::kind(&kind)?, line::decode(&result)?);
                let outcome = Outcome { number, attempt, kind, started_ms, ended_ms, result };
                changes.ended(job, outcome);
                self.record(job, changes)?
            }
            (
                At::Outcomes { job, mut changes },
                Line::Log { number, fence, attempt, kind, started_ms, ended_ms, left_out, text },
            ) => {
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
                self.record(job, changes)?
            }
            (At::Outcomes { job, mut changes }, Line::Mark(mark)) => {
                let (number, mark) = mark.read();
                changes.mark(SubtaskId { job, number }, mark);
                self.record(job, changes)?
            }
            (At::Outcomes { job, changes }, Line::Status(status)) => {
                self.end(job, changes, &status)?
            }
            _ => return Err("it does not belong here".to_owned().into()),
        };
        Ok(None)
    }

    fn write(&self, changes: Changes) -> Result<(), Trouble> {
        self.store.submit(changes).wait()?;
        Ok(())
    }

    /// An entry of the log comes right behind the one before, or is the first.
    fn log(&mut self, number: u64, record: AuditRecord) -> Result<(), Trouble> {
        let follows = self.entry.map_or(number >= 1, |last| number == last + 1);
        // So many nobody has written, and above are numbers that SQLite does not have.
        if !follows || number >= 1 << 53 {
            return Err(format!("{number} does not follow in the audit log").into());
        }
        self.entry = Some(number);
        self.log.push(Change::Audit { number: Some(number), record: Box::new(record) });
        if self.log.len() == ENTRIES_AT_ONCE { self.write_log() } else { Ok(()) }
    }

    fn write_log(&mut self) -> Result<(), Trouble> {
        let log = std::mem::take(&mut self.log);
        if log.is_empty() { Ok(()) } else { self.write(log) }
    }

    fn put(&self, entry: Idempotency, id: JobId) -> Result<(), Trouble> {
        let mut changes = Changes::new();
        changes.push(Change::Idempotency { entry, id });
        self.write(changes)
    }

    fn begin(&mut self, id: JobId, new: NewJob, total: u32) -> Result<At, Trouble> {
        self.jobs += 1;
        if id.number().0 >= super::seal::JOBS {
            return Err(format!("{id} has no number that a store can have").into());
        }
        let upload = self.store.upload_as(id);
        if total == 0 {
            return Ok(self.accepted(upload, new)?);
        }
        Ok(At::Subtasks { upload: Box::new(upload), new: Box::new(new), total })
    }

    fn add(
        &mut self,
        mut upload: Box<Upload>,
        new: Box<NewJob>,
        total: u32,
        keys: &[String],
        payload: &str,
    ) -> Result<At, Trouble> {
        let keys = keys.iter().map(|key| line::decode(key)).collect::<Result<Vec<_>, _>>()?;
        upload.push(&keys, &line::decode(payload)?)?;
        upload.flush()?;
        match upload.total() == total {
            true => Ok(self.accepted(*upload, *new)?),
            false => Ok(At::Subtasks { upload, new, total }),
        }
    }

    fn accepted(&self, upload: Upload, new: NewJob) -> Result<At, ImportError> {
        let job = upload.job();
        upload.finish(new).wait()?;
        Ok(At::Outcomes { job, changes: Changes::new() })
    }

    /// Hands over what there is of a job, if it is much.
    fn record(&self, job: JobNumber, mut changes: Changes) -> Result<At, Trouble> {
        if changes.len() == OUTCOMES_AT_ONCE {
            self.write(std::mem::take(&mut changes))?;
        }
        Ok(At::Outcomes { job, changes })
    }

    fn end(&self, job: JobNumber, mut changes: Changes, status: &Status) -> Result<At, Trouble> {
        let status: JobStatus = status.read()?;
        changes.status(job, status);
        self.write(changes)?;
        Ok(At::Between)
    }
}
