//! Schedules on the disk: one row each, changed by compare-and-swap on its version.
//!
//! A change names the version that it expects, or that no row exists, and is refused otherwise,
//! together with all changes submitted with it. So a job and the record that its due time was
//! served are on the disk together or not at all, and two concurrent decisions about one due time
//! cannot both succeed.

use keylane_storage::checksum::seal;
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::{ReadError, StoreDamage, WriteError};

/// Schedule as stored on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleRecord {
    /// Name of the schedule.
    pub name: String,
    /// Version, which changes with every update.
    pub version: u64,
    /// Service's own record, opaque to the store.
    pub body: Vec<u8>,
}

/// Row of a schedule, damaged or not.
#[derive(Debug)]
pub(crate) struct ScheduleRow {
    /// Content as stored.
    pub(crate) record: ScheduleRecord,
    /// Whether the checksum is correct.
    pub(crate) is_whole: bool,
}

/// Compare-and-swap of a schedule.
#[derive(Clone, Debug)]
pub(super) struct ScheduleChange {
    pub(super) name: String,
    /// Expected version; `None` if the schedule must not exist.
    pub(super) was: Option<u64>,
    /// New version and body; `None` to remove the schedule.
    pub(super) then: Option<(u64, Vec<u8>)>,
}

pub(super) fn all(connection: &Connection) -> Result<Vec<ScheduleRecord>, ReadError> {
    let mut all = Vec::new();
    for_each(connection, |record| {
        all.push(record?);
        Ok(())
    })?;
    Ok(all)
}

/// Reads the rows in order, and continues after a damaged one.
pub(super) fn for_each(
    connection: &Connection,
    mut then: impl FnMut(Result<ScheduleRecord, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    each_row(connection, |ScheduleRow { record, is_whole }| match is_whole {
        true => then(Ok(record)),
        false => then(Err(ReadError::Damaged(StoreDamage::Schedule { name: record.name }))),
    })
}

pub(super) const COLUMNS: &str = "name, version, body, seal";

pub(super) fn each_row(
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
    // A damaged name may be invalid UTF-8. It is shown with replacements; its checksum fails
    // anyway.
    let name = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned();
    let record = ScheduleRecord { name, version, body: row.get(2)? };
    let is_whole = row.get_ref(3)?.as_blob()? == seal_of(&record.name, version, &record.body);
    Ok(ScheduleRow { record, is_whole })
}

/// Returns the error of a change that cannot be made.
pub(super) fn refusal(
    connection: &Connection,
    change: &ScheduleChange,
) -> rusqlite::Result<Option<WriteError>> {
    let mut find = connection.prepare_cached("SELECT version FROM schedule WHERE name = ?1")?;
    let found = find.query_row([&change.name], |row| row.get::<_, i64>(0)).optional()?;
    let is_so = found.map(i64::cast_unsigned) == change.was;
    Ok((!is_so).then(|| WriteError::OtherVersion { schedule: change.name.clone() }))
}

/// Writes a change.
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
