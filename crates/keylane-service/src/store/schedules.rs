//! Schedules on the disk: one row each, changed by compare-and-swap on its version.
//!
//! A change names the version that it expects, or that no row exists, and is refused otherwise,
//! together with all changes submitted with it. So a job and the record that its due time was
//! served are on the disk together or not at all, and two concurrent decisions about one due time
//! cannot both succeed.

use keylane_storage::checksum::seal;
use keylane_storage::sqlite::SqliteError;

use super::connection::{StoreConnection, StoredRow};
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

pub(super) fn all(connection: &dyn StoreConnection) -> Result<Vec<ScheduleRecord>, ReadError> {
    let mut all = Vec::new();
    for_each(connection, |record| {
        all.push(record?);
        Ok(())
    })?;
    Ok(all)
}

/// Reads the rows in order, and continues after a damaged one.
pub(super) fn for_each(
    connection: &dyn StoreConnection,
    mut then: impl FnMut(Result<ScheduleRecord, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    each_row(connection, |ScheduleRow { record, is_whole }| match is_whole {
        true => then(Ok(record)),
        false => then(Err(ReadError::Damaged(StoreDamage::Schedule { name: record.name }))),
    })
}

pub(super) const COLUMNS: &str = "name, version, body, seal";

pub(super) fn each_row(
    connection: &dyn StoreConnection,
    mut then: impl FnMut(ScheduleRow) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    connection.each(&format!("SELECT {COLUMNS} FROM schedule"), &[], |row| then(read(row)?))
}

pub(super) fn read(row: &dyn StoredRow) -> Result<ScheduleRow, ReadError> {
    let (name, version) = (row.text_or_replaced(0)?, row.unsigned(1)?);
    let record = ScheduleRecord { name, version, body: row.bytes(2)?.to_vec() };
    let is_whole = row.bytes(3)? == seal_of(&record.name, version, &record.body);
    Ok(ScheduleRow { record, is_whole })
}

/// Returns the error of a change that cannot be made.
pub(super) fn refusal(
    connection: &dyn StoreConnection,
    change: &ScheduleChange,
) -> Result<Option<WriteError>, ReadError> {
    let sql = "SELECT version FROM schedule WHERE name = ?1";
    let found = connection.first(sql, &[(&change.name).into()], |row| row.unsigned(0))?;
    let is_so = found == change.was;
    Ok((!is_so).then(|| WriteError::OtherVersion { schedule: change.name.clone() }))
}

/// Writes a change.
pub(super) fn put(
    connection: &dyn StoreConnection,
    change: &ScheduleChange,
) -> Result<(), SqliteError> {
    let ScheduleChange { name, then, .. } = change;
    let Some((version, body)) = then else {
        connection.execute("DELETE FROM schedule WHERE name = ?1", &[name.into()])?;
        return Ok(());
    };
    let sql = "INSERT INTO schedule (name, version, body, seal) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (name) DO UPDATE
               SET version = excluded.version, body = excluded.body, seal = excluded.seal";
    let sealed = seal_of(name, *version, body);
    let parameters = [name.into(), (*version).into(), body.into(), (&sealed).into()];
    connection.execute(sql, &parameters)?;
    Ok(())
}

fn seal_of(name: &str, version: u64, body: &[u8]) -> Vec<u8> {
    let mut bytes = [name.as_bytes(), body].concat();
    let length = bytes.len();
    seal(&mut bytes, &[name.len() as u64, version]);
    bytes.split_off(length)
}
