//! Salvage: copies all readable rows of a damaged store into a new one, and reports every loss.
//!
//! Rows are copied unchanged if their checksums are correct. Around unreadable pages, rows are read
//! from both sides, and the range between is reported. An incomplete job is copied with its
//! remaining rows, in the state [`Damaged`](super::JobState::Damaged): it can be read, it does not
//! run, and its keys continue. A job without a valid main row is not copied at all.

use std::collections::BTreeSet;
use std::path::Path;

use keylane_storage::files::NewFile;
use keylane_storage::sqlite::{self, Lock};
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};

use super::alias;
use super::audit;
use super::boot_number;
use super::check::agree;
use super::copy_error::SalvageError;
use super::ended::EndedSubtasks;
use super::error::{ReadError, StoreDamage, StoreOpenError};
use super::handle::Store;
use super::job_status::JobState;
use super::job_status::set_aside;
use super::live_settings;
use super::logs;
use super::open::examine;
use super::outcome::OutcomePosition;
use super::read;
use super::recover::check_chunks;
use super::row_numbers::at;
use super::schedules;
use super::started_attempts::{self, AttemptStage};
use super::tables::{JOB, LAYOUT, MetaRow, fixed_of, job_of};
use crate::ids::JobNumber;

/// Maximum number of readable ranges of a table between unreadable pages.
const MAX_RANGES: u32 = 512;

/// Maximum number of reported losses of a kind.
const MAX_NAMED: usize = 10_000;

/// Result of a salvage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SalvageReport {
    /// Number of copied jobs.
    pub jobs: u64,
    /// Number of copied jobs that are incomplete.
    pub damaged_jobs: u64,
    /// Rows that could not be copied unchanged.
    pub losses: Vec<StoreDamage>,
}

impl Store {
    /// Copies all readable rows of a store that is not open into a new file. `now_ms` is the
    /// current time.
    ///
    /// # Errors
    /// If the destination exists or cannot be written, or if the source is open or is not a store.
    /// A partial destination is removed.
    pub fn salvage(
        from: impl AsRef<Path>,
        to: impl AsRef<Path>,
        now_ms: u64,
    ) -> Result<SalvageReport, SalvageError> {
        let from = from.as_ref();
        let from = from.canonicalize().map_err(StoreOpenError::io("find the store", from))?;
        let _lock = Lock::take(&from).map_err(StoreOpenError::locked(&from))?;
        let reading = StoreOpenError::reading(&from);
        let source = sqlite::reader(&from).map_err(|error| reading(error.into()))?;
        LAYOUT.preview(&source).map_err(|error| reading(error.into()))?;
        examine(&source, &from)?;
        let new = NewFile::create(to.as_ref())?;
        let salvaged = {
            let target = new_store(new.part())?;
            SalvageRun::new(&source, &target).all(now_ms)?
        };
        new.publish()?;
        Ok(salvaged)
    }
}

/// A copy that fails is deleted, so it needs no journal.
fn new_store(path: &Path) -> Result<Connection, SalvageError> {
    let mut target = Connection::open(path)?;
    target.pragma_update_and_check(None, "journal_mode", "OFF", |_| Ok(()))?;
    target.pragma_update(None, "synchronous", "OFF")?;
    LAYOUT.prepare(&mut target)?;
    Ok(target)
}

struct SalvageRun<'a> {
    from: &'a Connection,
    to: &'a Connection,
    /// Jobs with a copied main row.
    jobs: BTreeSet<JobNumber>,
    /// Jobs that were being deleted or uploaded.
    loose: BTreeSet<JobNumber>,
    /// Incomplete jobs.
    damaged: BTreeSet<JobNumber>,
    /// Lower bound of the store's last boot number, from the rows that were read.
    boot_seen: u64,
    losses: Vec<StoreDamage>,
}

/// Decision about a row.
enum RowVerdict {
    Copied,
    /// The row belongs to something deleted, which is no loss.
    LeftOut,
    Lost(StoreDamage),
}

/// Turns damage into a loss; other errors end the salvage.
fn verdict<T>(read: Result<T, ReadError>) -> Result<RowVerdict, ReadError> {
    match read {
        Ok(_) => Ok(RowVerdict::Copied),
        Err(ReadError::Damaged(damage)) => Ok(RowVerdict::Lost(damage)),
        Err(error) => Err(error),
    }
}

impl<'a> SalvageRun<'a> {
    fn new(from: &'a Connection, to: &'a Connection) -> Self {
        let (jobs, loose, damaged) = Default::default();
        SalvageRun {
            from,
            to,
            jobs,
            loose,
            damaged,
            boot_seen: boot_number::LEAST,
            losses: Vec::new(),
        }
    }

    fn all(mut self, now_ms: u64) -> Result<SalvageReport, SalvageError> {
        self.to.execute_batch("BEGIN")?;
        self.small_tables()?;
        self.jobs()?;
        self.parts()?;
        self.other_tables()?;
        self.look_at_jobs()?;
        self.set_damaged_aside(now_ms)?;
        self.meta()?;
        self.to.execute_batch("COMMIT")?;
        Ok(SalvageReport {
            jobs: self.jobs.len() as u64,
            damaged_jobs: self.damaged.len() as u64,
            losses: self.losses,
        })
    }

    fn small_tables(&mut self) -> Result<(), SalvageError> {
        let key = "name, state, since_ms, reason, seal";
        self.copy("key", key, |_, row| verdict(read::key_of(row)))?;
        let idempotency = "scope, key, expires_ms, body_hash, id, seal";
        self.copy("idempotency", idempotency, |_, row| verdict(read::idempotency_of(row)))?;
        self.copy("alias", alias::COLUMNS, |_, row| verdict(alias::read(row)))?;
        self.copy("schedule", schedules::COLUMNS, |_, row| {
            let row = schedules::read(row)?;
            let name = row.record.name;
            Ok(if row.is_whole {
                RowVerdict::Copied
            } else {
                RowVerdict::Lost(StoreDamage::Schedule { name })
            })
        })?;
        self.copy("setting", live_settings::COLUMNS, |_, row| verdict(live_settings::read(row)))?;
        self.copy("audit", audit::COLUMNS, |_, row| {
            let row = audit::read(row)?;
            let number = row.number;
            Ok(if row.is_whole {
                RowVerdict::Copied
            } else {
                RowVerdict::Lost(StoreDamage::Audit { number })
            })
        })?;
        self.copy("started", "number, body", |salvage, row| {
            let number = row.get::<_, i64>(0)?.cast_unsigned();
            let marks = started_attempts::decode(number, row.get_ref(1)?.as_blob()?);
            let Some(marks) = marks else {
                return Ok(RowVerdict::Lost(StoreDamage::Marks { row: number }));
            };
            for (_, mark) in marks {
                if let AttemptStage::Leased { fence, .. } = mark.stage {
                    salvage.see_fence(fence);
                }
            }
            Ok(RowVerdict::Copied)
        })?;
        // Loose jobs are being deleted, and are not copied.
        self.each("loose", "job", |salvage, row, _| {
            salvage.loose.insert(JobNumber(row.get::<_, i64>(0)?.cast_unsigned()));
            Ok(())
        })
    }

    fn jobs(&mut self) -> Result<(), SalvageError> {
        self.copy("job", JOB, |salvage, row| {
            let job = JobNumber(row.get::<_, i64>(0)?.cast_unsigned());
            let fixed = fixed_of(row);
            let Ok((fixed, has_chunk)) = fixed else { return verdict(fixed) };
            let is_whole = job_of(row).is_ok_and(|(_, _, status, _)| {
                status.state == JobState::Damaged
                    || !has_chunk
                    || read::find_chunk(salvage.from, job, 0).is_ok()
            });
            if !is_whole {
                salvage.lose(StoreDamage::Job { job });
                salvage.damaged.insert(job);
            }
            if fixed.id.number() == job {
                salvage.see_boot(fixed.created_ms / 1000);
                salvage.jobs.insert(job);
                return Ok(RowVerdict::Copied);
            }
            Ok(RowVerdict::Lost(StoreDamage::Job { job }))
        })
    }

    /// Copies the tables with data of jobs.
    fn parts(&mut self) -> Result<(), SalvageError> {
        self.copy("chunk", "place, count, body", |salvage, row| {
            let (job, number) = place_of(row)?;
            let chunk =
                read::chunk_of(row)?.ok_or(ReadError::Damaged(StoreDamage::Chunk { job, number }));
            salvage.part_of(job, chunk)
        })?;
        self.copy("outcome", "place, count, numbers, body", |salvage, row| {
            let (job, number) = place_of(row)?;
            let from = OutcomePosition::at(number, 0);
            let outcomes = read::row_of(row);
            let outcomes =
                outcomes.map_err(|_| ReadError::Damaged(StoreDamage::Outcomes { job, from }));
            salvage.part_of(job, outcomes)
        })?;
        self.copy("log", "place, nth, body", |salvage, row| {
            let (job, _) = place_of(row)?;
            let log = logs::read(row);
            if let Ok(log) = &log {
                salvage.see_fence(log.fence);
            }
            // A job is complete without its logs.
            match salvage.jobs.contains(&job) {
                true => verdict(log),
                false => salvage.part_of(job, log),
            }
        })
    }

    /// Decides about a row that belongs to a job.
    fn part_of<T>(
        &mut self,
        job: JobNumber,
        read: Result<T, ReadError>,
    ) -> Result<RowVerdict, ReadError> {
        if self.jobs.contains(&job) {
            if matches!(read, Err(ReadError::Damaged(_))) {
                self.damaged.insert(job);
            }
            return verdict(read);
        }
        let is_news = !self.loose.contains(&job) && self.damaged.insert(job);
        Ok(if is_news {
            RowVerdict::Lost(StoreDamage::Orphans { job })
        } else {
            RowVerdict::LeftOut
        })
    }

    /// Copies tables of a later version, which checks their rows itself.
    fn other_tables(&mut self) -> Result<(), SalvageError> {
        const KNOWN: [&str; 12] = [
            "meta",
            "job",
            "chunk",
            "outcome",
            "log",
            "started",
            "loose",
            "key",
            "idempotency",
            "alias",
            "schedule",
            "setting",
        ];
        let mut all = self.to.prepare(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'",
        )?;
        let names: Vec<String> = all.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
        for name in names {
            if !KNOWN.contains(&&*name) && name != "audit" {
                self.copy(&name, "1", |_, _| Ok(RowVerdict::Copied))?;
            }
        }
        // Keeps audit numbers unique: no number of the old log is assigned again.
        let seq: Option<i64> = self
            .from
            .query_row("SELECT seq FROM sqlite_sequence WHERE name = 'audit'", [], |row| row.get(0))
            .ok();
        if let Some(seq) = seq.filter(|seq| (0..1 << 53).contains(seq)) {
            self.to.execute("DELETE FROM sqlite_sequence WHERE name = 'audit'", [])?;
            let sql = "INSERT INTO sqlite_sequence (name, seq)
                       SELECT 'audit', max(?1, ifnull((SELECT max(number) FROM audit), 0))";
            self.to.execute(sql, [seq])?;
        }
        Ok(())
    }

    /// Finds jobs with missing rows.
    fn look_at_jobs(&mut self) -> Result<(), SalvageError> {
        for job in self.jobs.clone() {
            let Ok(Some((stored, has_chunk))) = read::find_job(self.to, job) else { continue };
            if stored.status.state == JobState::Damaged {
                continue;
            }
            let mut found = Vec::new();
            if !has_chunk {
                found.push(check_chunks(self.to, job, stored.total));
            }
            let mut ended = EndedSubtasks::new(job, stored.total);
            let outcomes = ended.read_on(self.to);
            let is_over = stored.status.state.is_final();
            if outcomes.is_ok() && is_over && !agree(&stored, &ended.counts) {
                found.push(Err(ReadError::Damaged(StoreDamage::Counts { job })));
            }
            found.push(outcomes);
            for damage in found {
                match damage {
                    Ok(()) => {}
                    Err(ReadError::Damaged(damage)) => {
                        self.damaged.insert(job);
                        if !self.losses.contains(&damage) {
                            self.lose(damage);
                        }
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    fn set_damaged_aside(&mut self, now_ms: u64) -> Result<(), SalvageError> {
        self.damaged.retain(|job| self.jobs.contains(job));
        for job in &self.damaged {
            let status = set_aside(now_ms);
            self.to.execute(
                "UPDATE job SET state = ?2, status = ?3 WHERE number = ?1",
                rusqlite::params![job.0.cast_signed(), status.state.code(), status.encode(*job)],
            )?;
        }
        Ok(())
    }

    /// Writes the new store's own counters, from the old ones where they are valid.
    fn meta(&mut self) -> Result<(), SalvageError> {
        const NUMBERS_LEFT_OUT: i64 = 4096;
        let known = match MetaRow::load(self.from) {
            Ok(Some(meta)) => Some(meta),
            Ok(None) | Err(_) => {
                self.lose(StoreDamage::Meta);
                None
            }
        };
        let highest = |sql: &str| -> rusqlite::Result<u64> {
            let highest: Option<i64> = self.to.query_row(sql, [], |row| row.get(0))?;
            Ok((highest.unwrap_or(0) + NUMBERS_LEFT_OUT).cast_unsigned())
        };
        let numbers = highest("SELECT max(number) FROM job")?;
        let entered = highest("SELECT max(entered) FROM job")?;
        let unfinished: i64 =
            self.to.query_row("SELECT count(*) FROM job WHERE state < 16", [], |row| row.get(0))?;
        let id = self.to.query_row("SELECT randomblob(16)", [], |row| row.get(0))?;
        let meta = MetaRow {
            id,
            boot: known.as_ref().map_or(self.boot_seen, |known| known.boot),
            // Treats attempts as after a crash, because one of them may have caused it.
            clean: false,
            commits: known.as_ref().map_or(0, |known| known.commits),
            numbers: known.as_ref().map_or(numbers, |known| known.numbers.max(numbers)),
            entered: known.as_ref().map_or(entered, |known| known.entered.max(entered)),
            unfinished: Some(unfinished.cast_unsigned()),
        };
        meta.put(self.to)?;
        Ok(())
    }

    fn see_fence(&mut self, fence: u64) {
        self.see_boot(fence >> boot_number::FENCE_BITS);
    }

    /// Raises the lower bound of the last boot number: by a fence, or by a write time in seconds.
    fn see_boot(&mut self, boot: u64) {
        self.boot_seen = self.boot_seen.max(boot.min(boot_number::MAX_SECONDS));
    }

    /// Reports a loss, up to the maximum.
    fn lose(&mut self, damage: StoreDamage) {
        if self.losses.len() < MAX_NAMED {
            self.losses.push(damage);
        }
    }

    /// Copies the rows of a table that `look` finds valid. `look` receives the columns `seen`.
    fn copy(
        &mut self,
        table: &str,
        seen: &str,
        mut look: impl FnMut(&mut Self, &Row<'_>) -> Result<RowVerdict, ReadError>,
    ) -> Result<(), SalvageError> {
        let columns = self.columns(table)?;
        let places: Vec<_> = (1..=columns.len()).map(|place| format!("?{place}")).collect();
        let put =
            format!("INSERT INTO {table} ({}) VALUES ({})", columns.join(", "), places.join(", "));
        self.each(table, &format!("{seen}, {}", columns.join(", ")), |salvage, row, all| {
            // The examined columns come first.
            let copied = all - columns.len();
            match look(salvage, row) {
                Ok(RowVerdict::Copied) => {}
                Ok(RowVerdict::LeftOut) => return Ok(()),
                Ok(RowVerdict::Lost(damage)) | Err(ReadError::Damaged(damage)) => {
                    salvage.lose(damage);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            let values = (copied..all).map(|column| row.get(column));
            let values: Vec<Value> = values.collect::<Result<_, _>>()?;
            salvage.to.prepare_cached(&put)?.execute(params_from_iter(values))?;
            Ok(())
        })
    }

    fn columns(&self, table: &str) -> rusqlite::Result<Vec<String>> {
        let mut all = self.to.prepare("SELECT name FROM pragma_table_info(?1)")?;
        let names =
            all.query_map([table], |row| Ok(format!("\"{}\"", row.get::<_, String>(0)?)))?;
        names.collect()
    }

    /// Reads all readable rows of a table. `then` receives each with its number of columns.
    fn each(
        &mut self,
        table: &str,
        columns: &str,
        mut then: impl FnMut(&mut Self, &Row<'_>, usize) -> Result<(), SalvageError>,
    ) -> Result<(), SalvageError> {
        let is_numbered: bool = self.to.query_row(
            "SELECT NOT wr FROM pragma_table_list WHERE name = ?1",
            [table],
            |row| row.get(0),
        )?;
        if !is_numbered {
            return self.each_of_unnumbered(table, columns, then);
        }
        let mut ranges = vec![(i64::MIN, i64::MAX)];
        let (mut looked_at, mut unread) = (0, Vec::new());
        while let Some((first, last)) = ranges.pop() {
            looked_at += 1;
            let hole = self.read_range(table, columns, (first, last), &mut then)?;
            let Some((first, last, why)) = hole else { continue };
            let middle = first + (last.saturating_sub(first)) / 2;
            if looked_at >= MAX_RANGES || first >= last {
                unread.push((first, last, why));
            } else {
                ranges.push((middle + 1, last));
                ranges.push((first, middle));
            }
        }
        unread.sort_by_key(|(first, ..)| *first);
        for (first, last, why) in joined(unread) {
            if table == "outcome" {
                self.doubt_between(first, last)?;
            }
            let table = table.to_owned();
            self.lose(StoreDamage::Rows { table, first, last, why });
        }
        Ok(())
    }

    /// Reports outcomes that may be lost between two places. An unfinished job could run such a
    /// subtask again, behind its successors, and nothing else in the job shows that its last
    /// outcomes are missing.
    fn doubt_between(&mut self, first: i64, last: i64) -> Result<(), SalvageError> {
        let [first, last] = [first, last].map(|place| place.max(0) >> 24);
        let mut doubtful = self
            .to
            .prepare("SELECT number FROM job WHERE number BETWEEN ?1 AND ?2 AND state < 16")?;
        let numbers = doubtful.query_map([first, last], |row| row.get::<_, i64>(0))?;
        for number in numbers {
            self.damaged.insert(JobNumber(number?.cast_unsigned()));
        }
        Ok(())
    }

    /// Reads a range of a table from both ends, and reports the unreadable part between.
    fn read_range(
        &mut self,
        table: &str,
        columns: &str,
        (first, last): (i64, i64),
        then: &mut impl FnMut(&mut Self, &Row<'_>, usize) -> Result<(), SalvageError>,
    ) -> Result<Option<(i64, i64, String)>, SalvageError> {
        let (mut first, mut last) = (first, last);
        let from = self.from;
        for order in ["ASC", "DESC"] {
            let mut rows = match from.prepare(&format!(
                "SELECT {columns}, rowid FROM {table} NOT INDEXED WHERE rowid BETWEEN ?1 AND ?2
                 ORDER BY rowid {order}"
            )) {
                Ok(rows) => rows,
                Err(error) => return Ok(Some((first, last, error.to_string()))),
            };
            let count = rows.column_count() - 1;
            let mut rows = rows.query([first, last])?;
            let why = loop {
                match rows.next() {
                    Ok(Some(row)) => {
                        let number: i64 = row.get(count)?;
                        then(self, row, count)?;
                        if order == "ASC" {
                            first = number.saturating_add(1);
                        } else {
                            last = number.saturating_sub(1);
                        }
                    }
                    Ok(None) => return Ok(None),
                    Err(error) => break error.to_string(),
                }
            };
            if first > last || order == "DESC" {
                return Ok((first <= last).then_some((first, last, why)));
            }
        }
        Ok(None)
    }

    /// Reads a table without row numbers from both ends.
    fn each_of_unnumbered(
        &mut self,
        table: &str,
        columns: &str,
        mut then: impl FnMut(&mut Self, &Row<'_>, usize) -> Result<(), SalvageError>,
    ) -> Result<(), SalvageError> {
        let mut key =
            self.to.prepare("SELECT name FROM pragma_table_info(?1) WHERE pk > 0 ORDER BY pk")?;
        let key: Vec<String> =
            key.query_map([table], |row| row.get(0))?.collect::<Result<_, _>>()?;
        let mut seen = BTreeSet::new();
        let from = self.from;
        for order in ["ASC", "DESC"] {
            let by: Vec<_> = key.iter().map(|column| format!("{column} {order}")).collect();
            let names = key.join(", ");
            let mut rows = from.prepare(&format!(
                "SELECT {columns}, {names} FROM {table} ORDER BY {}",
                by.join(", ")
            ))?;
            let count = rows.column_count() - key.len();
            let mut rows = rows.query([])?;
            let why = loop {
                match rows.next() {
                    Ok(Some(row)) => {
                        let name = (count..count + key.len())
                            .map(|column| {
                                Ok(row.get_ref(column)?.as_bytes().unwrap_or(&[]).to_vec())
                            })
                            .collect::<rusqlite::Result<Vec<_>>>()?;
                        if seen.insert(name) {
                            then(self, row, count)?;
                        }
                    }
                    Ok(None) => return Ok(()),
                    Err(error) => break error.to_string(),
                }
            };
            if order == "DESC" {
                let table = table.to_owned();
                self.lose(StoreDamage::Rows { table, first: i64::MIN, last: i64::MAX, why });
            }
        }
        Ok(())
    }
}

/// Merges adjacent ranges.
fn joined(ranges: Vec<(i64, i64, String)>) -> Vec<(i64, i64, String)> {
    let mut joined: Vec<(i64, i64, String)> = Vec::new();
    for (first, last, why) in ranges {
        match joined.last_mut() {
            Some((_, end, _)) if end.checked_add(1) == Some(first) => *end = last,
            _ => joined.push((first, last, why)),
        }
    }
    joined
}

fn place_of(row: &Row<'_>) -> rusqlite::Result<(JobNumber, u32)> {
    Ok(at(row.get::<_, i64>(0)?.cast_unsigned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_follow_each_other_are_one() {
        let range = |first, last| (first, last, String::new());
        let all = vec![range(1, 4), range(5, 5), range(7, 9)];
        assert_eq!(joined(all), [range(1, 5), range(7, 9)]);
    }
}
