//! What the service keeps of schedules: a row for each, changed only by those who know how it is.
//!
//! A change names the version that the row has, or says that there is none, and is refused otherwise, with all
//! that was submitted with it. So a job and the word that its time has had its job are on the disk together or
//! not at all, and a time that was decided is not decided again, whoever tries.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::{Damage, ReadError, WriteError};
use super::handle::Store;
use super::seal::seal;

/// A schedule as it is on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// What users call it.
    pub name: String,
    /// Another one after each change.
    pub version: u64,
    /// What is to be known of it. The store does not look into it.
    pub body: Vec<u8>,
}

/// A schedule's row, damaged or not.
#[derive(Debug)]
pub(crate) struct ScheduleRow {
    /// As it is there.
    pub(crate) record: ScheduleRecord,
    /// It is what was written.
    pub(crate) is_whole: bool,
}

/// What becomes of a schedule.
#[derive(Clone, Debug)]
pub(super) struct ScheduleChange {
    pub(super) name: String,
    /// The version that it has before; none if it is not there.
    pub(super) was: Option<u64>,
    /// As it is then: its version and its body; none if it goes.
    pub(super) then: Option<(u64, Vec<u8>)>,
}

impl Store {
    /// All schedules, by name.
    ///
    /// # Errors
    /// If one of them is not what was written.
    pub fn schedules(&self) -> Result<Vec<ScheduleRecord>, ReadError> {
        self.with_reader(all)
    }

    /// All schedules, also those that are not what was written.
    pub(crate) fn schedule_rows(&self) -> Result<Vec<ScheduleRow>, ReadError> {
        self.with_reader(|connection| {
            let mut rows = Vec::new();
            each_row(connection, |row| {
                rows.push(row);
                Ok(())
            })?;
            Ok(rows)
        })
    }
}

pub(super) fn all(connection: &Connection) -> Result<Vec<ScheduleRecord>, ReadError> {
    let mut all = Vec::new();
    for_each(connection, |record| {
        all.push(record?);
        Ok(())
    })?;
    Ok(all)
}

/// Reads them one after another, and goes on behind one that is not what was written.
pub(super) fn for_each(
    connection: &Connection,
    mut then: impl FnMut(Result<ScheduleRecord, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    each_row(connection, |ScheduleRow { record, is_whole }| match is_whole {
        true => then(Ok(record)),
        false => then(Err(ReadError::Damaged(Damage::Schedule { name: record.name }))),
    })
}

pub(super) const COLUMNS: &str = "name, version, body, seal";

fn each_row(
    connection: &Connection,
    mut then: impl FnMut(ScheduleRow) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut all = connection.prepare(&format!("SELECT {COLUMNS} FROM schedule"))?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        then(read(row)?)?;
    }
    Ok(())
}

pub(super) fn read(row: &Row<'_>) -> Result<ScheduleRow, ReadError> {
    let version = row.get::<_, i64>(1)?.cast_unsigned();
    // A name that is no text any more is shown all the same, and has another seal.
    let name = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned();
    let record = ScheduleRecord { name, version, body: row.get(2)? };
    let is_whole = row.get_ref(3)?.as_blob()? == seal_of(&record.name, version, &record.body);
    Ok(ScheduleRow { record, is_whole })
}

/// Why a change cannot be made, if so.
pub(super) fn refusal(
    connection: &Connection,
    change: &ScheduleChange,
) -> rusqlite::Result<Option<WriteError>> {
    let mut find = connection.prepare_cached("SELECT version FROM schedule WHERE name = ?1")?;
    let found = find.query_row([&change.name], |row| row.get::<_, i64>(0)).optional()?;
    let is_so = found.map(i64::cast_unsigned) == change.was;
    Ok((!is_so).then(|| WriteError::OtherVersion { schedule: change.name.clone() }))
}

/// Makes a change.
pub(super) fn put(connection: &Connection, change: &ScheduleChange) -> rusqlite::Result<()> {
    let ScheduleChange { name, then, .. } = change;
    let Some((version, body)) = then else {
        let mut delete = connection.prepare_cached("DELETE FROM schedule WHERE name = ?1")?;
        delete.execute([name])?;
        return Ok(());
    };
    let mut put = connection.prepare_cached(
        "INSERT OR REPLACE INTO schedule (name, version, body, seal) VALUES (?1, ?2, ?3, ?4)",
    )?;
    let sealed = seal_of(name, *version, body);
    put.execute(params![name, version.cast_signed(), body, sealed])?;
    Ok(())
}

fn seal_of(name: &str, version: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = [name.as_bytes(), body].concat();
    let length = bytes.len();
    seal(&mut bytes, &[name.len() as u64, version]);
    bytes.split_off(length)
}
