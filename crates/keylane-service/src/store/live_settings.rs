//! The service's own records beside its jobs, one row each and opaque to the store: settings that operators have changed
//! while it runs, and webhooks that are not delivered.

use keylane_storage::checksum::seal;
use rusqlite::{Connection, Row, params};

use super::error::{ReadError, StoreDamage};

/// Setting as stored on the disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveSetting {
    /// Name of the setting.
    pub name: String,
    /// Service's own record, opaque to the store.
    pub body: Vec<u8>,
}

pub(super) const COLUMNS: &str = "name, body, seal";

/// Reads all rows in order of their names, damaged ones included.
pub(super) fn all(
    connection: &Connection,
) -> Result<Vec<Result<LiveSetting, StoreDamage>>, ReadError> {
    let mut all = Vec::new();
    let mut read_all =
        connection.prepare(&format!("SELECT {COLUMNS} FROM setting ORDER BY name"))?;
    let mut rows = read_all.query([])?;
    while let Some(row) = rows.next()? {
        all.push(match read(row) {
            Ok(setting) => Ok(setting),
            Err(ReadError::Damaged(damage)) => Err(damage),
            Err(error) => return Err(error),
        });
    }
    Ok(all)
}

/// Reads the row of this name.
pub(super) fn one(connection: &Connection, name: &str) -> Result<Option<LiveSetting>, ReadError> {
    let mut find =
        connection.prepare_cached(&format!("SELECT {COLUMNS} FROM setting WHERE name = ?1"))?;
    let mut rows = find.query([name])?;
    rows.next()?.map(read).transpose()
}

pub(super) fn read(row: &Row<'_>) -> Result<LiveSetting, ReadError> {
    // A damaged name may be invalid UTF-8. It is shown with replacements; its checksum fails
    // anyway.
    let name = String::from_utf8_lossy(row.get_ref(0)?.as_bytes()?).into_owned();
    let body: Vec<u8> = row.get(1)?;
    let is_whole = row.get_ref(2)?.as_blob()? == seal_of(&name, &body);
    match is_whole {
        true => Ok(LiveSetting { name, body }),
        false => Err(ReadError::Damaged(StoreDamage::Setting { name })),
    }
}

/// Writes or removes a setting.
pub(super) fn put(
    connection: &Connection,
    name: &str,
    body: Option<&[u8]>,
) -> rusqlite::Result<()> {
    let Some(body) = body else {
        connection.prepare_cached("DELETE FROM setting WHERE name = ?1")?.execute([name])?;
        return Ok(());
    };
    let mut put = connection
        .prepare_cached("INSERT OR REPLACE INTO setting (name, body, seal) VALUES (?1, ?2, ?3)")?;
    put.execute(params![name, body, seal_of(name, body)])?;
    Ok(())
}

fn seal_of(name: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = [name.as_bytes(), body].concat();
    let length = bytes.len();
    seal(&mut bytes, &[name.len() as u64]);
    bytes.split_off(length)
}
