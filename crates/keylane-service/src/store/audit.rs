//! The log of what operators have done: an entry for each action, in the order of the commits.
//!
//! An entry is submitted with the changes that it tells of, so it is on the disk with them or not at all. The writer
//! gives the numbers, one more for each entry and none of them twice, and only the oldest entries go. So a number
//! that is missing between two others is damage.

use rusqlite::{Connection, Row, params};

use super::error::{Damage, ReadError};
use super::handle::Store;
use super::seal::seal;

/// How many entries are looked at for a page.
const MOST_LOOKED_AT: u64 = 10_000;

/// How many of those that are no longer kept go in one transaction at most.
const MOST_REMOVED: usize = 1024;

/// What somebody has done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// When, in milliseconds since 1970.
    pub at_ms: u64,
    /// Who has done it.
    pub who: String,
    /// What, in a word.
    pub what: String,
    /// To which job, if it was done to one.
    pub job: Option<String>,
    /// What else is to be known of it. The store does not look into it.
    pub body: Vec<u8>,
}

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRow {
    /// Its number.
    pub number: u64,
    /// As it is there.
    pub record: AuditRecord,
    /// It is what was written.
    pub is_whole: bool,
}

/// Some of the entries, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditPage {
    /// Those that were wanted.
    pub rows: Vec<AuditRow>,
    /// Before which number the next page begins, if there may be more.
    pub next: Option<u64>,
}

/// Which entries are wanted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Those of what was done by them.
    pub who: Option<String>,
    /// Those of this.
    pub what: Option<String>,
    /// Those of what was done to this job.
    pub job: Option<String>,
    /// Those of what was done then or later, in milliseconds since 1970.
    pub since_ms: Option<u64>,
}

/// Which entries are kept, of those that are older than the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditKept {
    /// Those of what was done then or later, in milliseconds since 1970,
    pub since_ms: u64,
    /// and of these so many at most, the newest ones.
    pub most: u64,
}

impl AuditKept {
    fn keeps(self, number: u64, at_ms: u64, last: u64) -> bool {
        at_ms >= self.since_ms && last - number < self.most
    }
}

impl Store {
    /// Entries of the log, the newest first, those before a number if one is given: so many at most, and fewer if
    /// most of what was looked at is not wanted. One that is not what was written is given out as it is there.
    ///
    /// # Errors
    /// If they cannot be read.
    pub fn audit(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        most: usize,
    ) -> Result<AuditPage, ReadError> {
        self.with_reader(|reader| page(reader, filter, before, most))
    }

    /// Whether there is an entry that is no longer to be kept.
    ///
    /// # Errors
    /// If that cannot be read.
    pub fn has_old_audit(&self, kept: AuditKept) -> Result<bool, ReadError> {
        self.with_reader(|reader| Ok(last_old(reader, kept, 1)?.is_some()))
    }
}

pub(super) const COLUMNS: &str = "number, at_ms, who, what, job, body, seal";

fn page(
    connection: &Connection,
    filter: &AuditFilter,
    before: Option<u64>,
    most: usize,
) -> Result<AuditPage, ReadError> {
    let snapshot = connection.unchecked_transaction()?;
    let before = before.unwrap_or(u64::MAX).min(last(&snapshot)? + 1);
    // Numbers go up one by one, so these are as many entries.
    let from = before.saturating_sub(MOST_LOOKED_AT);
    let AuditFilter { who, what, job, since_ms } = filter;
    let mut find = snapshot.prepare_cached(&format!(
        "SELECT {COLUMNS} FROM audit WHERE number >= ?1 AND number < ?2
         AND (?3 IS NULL OR who = ?3) AND (?4 IS NULL OR what = ?4) AND (?5 IS NULL OR job = ?5)
         AND at_ms >= ?6 ORDER BY number DESC LIMIT ?7"
    ))?;
    let since = since_ms.unwrap_or(0).min(i64::MAX as u64).cast_signed();
    let (from_number, before) = (from.cast_signed(), before.cast_signed());
    let parameters = params![from_number, before, who, what, job, since, most as i64];
    let mut found = find.query(parameters)?;
    let mut rows = Vec::new();
    while let Some(row) = found.next()? {
        rows.push(read(row)?);
    }
    let looked_to =
        if rows.len() < most { from } else { rows.last().map_or(from, |row| row.number) };
    let mut more = snapshot.prepare_cached("SELECT 1 FROM audit WHERE number < ?1")?;
    let next = more.exists([looked_to.cast_signed()])?.then_some(looked_to);
    Ok(AuditPage { rows, next })
}

/// The last number that was given, also if its entry has gone: SQLite remembers it. An entry is believed before that.
fn last(connection: &Connection) -> rusqlite::Result<u64> {
    let mut last = connection.prepare_cached(
        "SELECT max(ifnull((SELECT max(number) FROM audit), 0),
                    ifnull((SELECT seq FROM sqlite_sequence WHERE name = 'audit'), 0))",
    )?;
    Ok(last.query_row([], |row| row.get::<_, i64>(0))?.cast_unsigned())
}

pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<AuditRow> {
    // What is no text any more is shown all the same, and has another seal.
    let text = |column| -> rusqlite::Result<String> {
        Ok(String::from_utf8_lossy(row.get_ref(column)?.as_bytes()?).into_owned())
    };
    let number = row.get::<_, i64>(0)?.cast_unsigned();
    let record = AuditRecord {
        at_ms: row.get::<_, i64>(1)?.cast_unsigned(),
        who: text(2)?,
        what: text(3)?,
        job: row.get_ref(4)?.as_bytes_or_null()?.map(|_| text(4)).transpose()?,
        body: row.get(5)?,
    };
    let is_whole = row.get_ref(6)?.as_blob()? == seal_of(number, &record);
    Ok(AuditRow { number, record, is_whole })
}

/// Reads them from the oldest on, and goes on behind one that is not what was written, or is missing.
pub(super) fn for_each(
    connection: &Connection,
    mut then: impl FnMut(Result<AuditRow, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut all = connection.prepare(&format!("SELECT {COLUMNS} FROM audit ORDER BY number"))?;
    let mut rows = all.query([])?;
    let mut expected = None;
    while let Some(row) = rows.next()? {
        let row = read(row)?;
        let number = row.number;
        if let Some(from) = expected.filter(|expected| *expected != number) {
            then(Err(ReadError::Damaged(Damage::MissingAudit { from, until: number })))?;
        }
        expected = Some(number + 1);
        then(match row.is_whole {
            true => Ok(row),
            false => Err(ReadError::Damaged(Damage::Audit { number })),
        })?;
    }
    Ok(())
}

/// Whether no entry was ever written.
pub(super) fn is_unused(connection: &Connection) -> rusqlite::Result<bool> {
    Ok(last(connection)? == 0)
}

/// Writes an entry with the next number, or with this one, which is beyond all that were given.
pub(super) fn put(
    connection: &Connection,
    number: Option<u64>,
    record: &AuditRecord,
) -> rusqlite::Result<()> {
    let number = match number {
        Some(number) => number,
        None => last(connection)? + 1,
    };
    let mut put = connection.prepare_cached(&format!(
        "INSERT INTO audit ({COLUMNS}) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)"
    ))?;
    let AuditRecord { at_ms, who, what, job, body } = record;
    let (row, at, sealed) = (number.cast_signed(), at_ms.cast_signed(), seal_of(number, record));
    put.execute(params![row, at, who, what, job, body, sealed])?;
    Ok(())
}

/// About how many bytes it has.
pub(super) fn bytes(record: &AuditRecord) -> usize {
    let AuditRecord { who, what, job, body, .. } = record;
    who.len() + what.len() + job.as_ref().map_or(0, String::len) + body.len()
}

/// The oldest entries go, up to the first that is kept.
pub(super) fn forget(connection: &Connection, kept: AuditKept) -> rusqlite::Result<()> {
    if let Some(old) = last_old(connection, kept, MOST_REMOVED)? {
        let mut delete = connection.prepare_cached("DELETE FROM audit WHERE number <= ?1")?;
        delete.execute([old])?;
    }
    Ok(())
}

/// The last of the oldest entries that are not kept, looking at so many.
fn last_old(
    connection: &Connection,
    kept: AuditKept,
    most: usize,
) -> rusqlite::Result<Option<i64>> {
    let last = last(connection)?;
    let mut oldest =
        connection.prepare_cached("SELECT number, at_ms FROM audit ORDER BY number LIMIT ?1")?;
    let mut rows = oldest.query([most as i64])?;
    let mut old = None;
    while let Some(row) = rows.next()? {
        let (number, at): (i64, i64) = (row.get(0)?, row.get(1)?);
        if kept.keeps(number.cast_unsigned(), at.cast_unsigned(), last) {
            break;
        }
        old = Some(number);
    }
    Ok(old)
}

fn seal_of(number: u64, record: &AuditRecord) -> Vec<u8> {
    let AuditRecord { at_ms, who, what, job, body } = record;
    let text = job.as_deref().unwrap_or_default();
    let mut bytes = [who.as_bytes(), what.as_bytes(), text.as_bytes(), body].concat();
    let length = bytes.len();
    let lengths = [who.len(), what.len(), text.len()].map(|length| length as u64);
    let has_job = u64::from(job.is_some());
    seal(&mut bytes, &[&[number, *at_ms, has_job], &lengths[..]].concat());
    bytes.split_off(length)
}
