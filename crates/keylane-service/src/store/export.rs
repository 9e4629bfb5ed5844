//! Export of a store as lines of JSON: a consistent snapshot, refused if it contains damage.

use std::collections::HashMap;
use std::io::{self, BufWriter, Seek, Write};
use std::ops::ControlFlow;
use std::path::Path;

use keylane_storage::files::NewFile;

use super::alias;
use super::audit;
use super::connection::StoreConnection;
use super::copy_error::ExportError;
use super::ended::EndedSubtasks;
use super::error::{ReadError, StoreDamage};
use super::handle::Store;
use super::line::{self, ExportLine, StatusLine};
use super::live_settings;
use super::logs;
use super::read;
use super::row_numbers::rows_of;
use super::schedules;
use super::started_attempts::{AttemptTable, LatestAttempt};
use super::tables::MetaRow;
use crate::ids::{JobNumber, SubtaskNumber};

impl Store {
    /// Writes a snapshot of the store as lines of JSON, while readers and the writer continue. See
    /// [`import`](Self::import). Unfinished attempts are included if they are on the disk.
    ///
    /// The lines are gathered in a temporary file beside the store first, so that a slow `to` does not
    /// hold the snapshot.
    ///
    /// # Errors
    /// If a row is damaged, the output cannot be written, or the write-ahead log has reached its bound
    /// meanwhile. A job that was set aside must be purged before.
    pub fn export(&self, to: &mut dyn Write) -> Result<u64, ExportError> {
        let beside = self.path().parent().unwrap_or(Path::new("."));
        let mut gathered = tempfile::tempfile_in(beside)?;
        let lines = self.export_to(&mut BufWriter::new(&mut gathered))?;
        gathered.rewind()?;
        io::copy(&mut gathered, to)?;
        to.flush()?;
        Ok(lines)
    }

    /// Writes an export while the snapshot is held.
    fn export_to(&self, to: &mut dyn Write) -> Result<u64, ExportError> {
        let mut exported = Ok(0);
        self.with_reader(|reader| {
            exported = export(reader, to);
            Ok(())
        })?;
        exported
    }

    /// Writes an [`export`](Self::export) into a new file. On return the file is complete and on the
    /// disk. Until then, no file has its name.
    ///
    /// # Errors
    /// If the file exists or cannot be written, or a row is damaged. A partial file is removed.
    pub fn export_file(&self, to: impl AsRef<Path>) -> Result<u64, ExportError> {
        let mut new = NewFile::create(to.as_ref())?;
        let mut file = BufWriter::new(new.file());
        let lines = self.export_to(&mut file)?;
        file.flush()?;
        drop(file);
        new.publish()?;
        Ok(lines)
    }
}

fn export(connection: &dyn StoreConnection, to: &mut dyn Write) -> Result<u64, ExportError> {
    let _snapshot = connection.snapshot()?;
    let meta = MetaRow::load(connection)?.ok_or(ReadError::Damaged(StoreDamage::Meta))?;
    put(to, &ExportLine::Store { version: line::VERSION, boot: meta.boot })?;
    for (key, record) in read::keys(connection)? {
        put(to, &ExportLine::of_key(&key, &record))?;
    }
    let mut entries = Vec::new();
    read::for_each_idempotency(connection, |entry| {
        entries.push(entry?);
        Ok(())
    })?;
    for (entry, id) in entries {
        put(to, &ExportLine::of_idempotency(&entry, id))?;
    }
    let mut aliases = Vec::new();
    alias::for_each(connection, |alias| {
        aliases.push(alias?);
        Ok(())
    })?;
    for alias in aliases {
        put(to, &ExportLine::of_alias(&alias))?;
    }
    for record in schedules::all(connection)? {
        put(to, &ExportLine::of_schedule(&record))?;
    }
    for setting in live_settings::all(connection)? {
        put(to, &ExportLine::of_setting(&setting.map_err(ReadError::Damaged)?))?;
    }
    // There may be many keys, so each is written as it is read.
    let mut written = Ok(());
    audit::for_each(connection, |row| {
        let row = row?;
        if written.is_ok() {
            written = put(to, &ExportLine::of_audit(&row));
        }
        Ok(())
    })?;
    written?;
    let jobs = in_order(connection)?;
    let marks = by_job(AttemptTable::load(connection)?);
    for job in &jobs {
        put_job(connection, *job, marks.get(job).map_or(&[], Vec::as_slice), to)?;
    }
    put(to, &ExportLine::End { jobs: jobs.len() as u64 })?;
    to.flush()?;
    Ok(jobs.len() as u64)
}

fn put(to: &mut dyn Write, line: &ExportLine) -> Result<(), ExportError> {
    serde_json::to_writer(&mut *to, line).map_err(std::io::Error::from)?;
    to.write_all(b"\n")?;
    Ok(())
}

/// Returns all jobs, in the order in which they entered.
fn in_order(connection: &dyn StoreConnection) -> Result<Vec<JobNumber>, ReadError> {
    let mut jobs = connection.all("SELECT entered, number FROM job", &[], |row| {
        Ok((row.unsigned(0)?, JobNumber(row.unsigned(1)?)))
    })?;
    jobs.sort_unstable();
    Ok(jobs.into_iter().map(|(_, job)| job).collect())
}

/// Groups the marks by job, sorted by subtask.
fn by_job(marks: AttemptTable) -> HashMap<JobNumber, Vec<(SubtaskNumber, LatestAttempt)>> {
    let mut by_job: HashMap<_, Vec<_>> = HashMap::new();
    for (subtask, mark) in marks.all() {
        by_job.entry(subtask.job).or_default().push((subtask.number, mark));
    }
    by_job.values_mut().for_each(|marks| marks.sort_unstable_by_key(|(number, _)| *number));
    by_job
}

fn put_job(
    connection: &dyn StoreConnection,
    number: JobNumber,
    marks: &[(SubtaskNumber, LatestAttempt)],
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    let found = read::find_job(connection, number)?;
    let (job, _) = found.ok_or(ReadError::NoSuchJob { job: number })?;
    let status = || StatusLine::of(&job.status);
    put(
        to,
        &ExportLine::Job {
            id: job.id.to_string(),
            kind: job.kind.clone(),
            created_ms: job.created_ms,
            total: job.total,
            head: line::encode(&job.head),
            status: status(),
        },
    )?;
    let mut next = 0;
    while next < job.total {
        let chunk = read::find_chunk(connection, number, next)?;
        for subtask in chunk.subtasks() {
            let (shared, exclusive): (Vec<_>, Vec<_>) =
                subtask.keys().partition(|claim| claim.is_shared);
            let [keys, shared_keys] = [exclusive, shared]
                .map(|claims| claims.iter().map(|claim| line::encode(claim.key)).collect());
            let payload = line::encode(subtask.payload());
            put(to, &ExportLine::Subtask { keys, shared_keys, payload })?;
        }
        next = chunk.numbers().end;
    }
    put_outcomes(connection, number, to)?;
    put_logs(connection, number, to)?;
    // An obsolete mark of an ended subtask would make the import start it again.
    if !marks.is_empty() {
        let mut ended = EndedSubtasks::new(number, job.total);
        ended.read_on(connection)?;
        for (number, mark) in marks.iter().filter(|(number, _)| !ended.has(*number)) {
            put(to, &ExportLine::Mark(line::AttemptLine::of(*number, mark)))?;
        }
    }
    put(to, &ExportLine::Status(status()))
}

fn put_outcomes(
    connection: &dyn StoreConnection,
    job: JobNumber,
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    let (first, last) = rows_of(job);
    let sql = "SELECT place, count, numbers, body FROM outcome
               WHERE place BETWEEN ?1 AND ?2 ORDER BY place";
    let mut written = Ok(());
    connection.for_each_row(sql, &[first.into(), last.into()], &mut |row| {
        let outcomes = read::row_of(row)?.1;
        written = outcomes.iter().try_for_each(|one| put(to, &ExportLine::of_outcome(one)));
        Ok(if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) })
    })?;
    written
}

fn put_logs(
    connection: &dyn StoreConnection,
    job: JobNumber,
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    let mut put_all = Ok(());
    logs::for_each_of(connection, job, |log| {
        let log = log?;
        // Stop after the first failed write.
        if put_all.is_ok() {
            put_all = put(to, &ExportLine::of_log(&log));
        }
        Ok(())
    })?;
    put_all
}
