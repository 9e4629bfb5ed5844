//! The service's own records beside its jobs, one row each and opaque to the store: settings that operators have changed
//! while it runs, and webhooks that are not delivered.

use keylane_storage::checksum::seal;
use keylane_storage::sqlite::SqliteError;

use super::connection::{StoreConnection, StoredRow};
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
    connection: &dyn StoreConnection,
) -> Result<Vec<Result<LiveSetting, StoreDamage>>, ReadError> {
    let sql = format!("SELECT {COLUMNS} FROM setting ORDER BY name");
    connection.all(&sql, &[], |row| match read(row) {
        Ok(setting) => Ok(Ok(setting)),
        Err(ReadError::Damaged(damage)) => Ok(Err(damage)),
        Err(error) => Err(error),
    })
}

/// Reads the row of this name.
pub(super) fn one(
    connection: &dyn StoreConnection,
    name: &str,
) -> Result<Option<LiveSetting>, ReadError> {
    let sql = format!("SELECT {COLUMNS} FROM setting WHERE name = ?1");
    connection.first(&sql, &[name.into()], read)
}

pub(super) fn read(row: &dyn StoredRow) -> Result<LiveSetting, ReadError> {
    let (name, body) = (row.text_or_replaced(0)?, row.bytes(1)?.to_vec());
    match row.bytes(2)? == seal_of(&name, &body) {
        true => Ok(LiveSetting { name, body }),
        false => Err(ReadError::Damaged(StoreDamage::Setting { name })),
    }
}

/// Writes or removes a setting.
pub(super) fn put(
    connection: &dyn StoreConnection,
    name: &str,
    body: Option<&[u8]>,
) -> Result<(), SqliteError> {
    let Some(body) = body else {
        connection.execute("DELETE FROM setting WHERE name = ?1", &[name.into()])?;
        return Ok(());
    };
    let sql = "INSERT INTO setting (name, body, seal) VALUES (?1, ?2, ?3)
               ON CONFLICT (name) DO UPDATE SET body = excluded.body, seal = excluded.seal";
    connection.execute(sql, &[name.into(), body.into(), (&seal_of(name, body)).into()])?;
    Ok(())
}

fn seal_of(name: &str, body: &[u8]) -> Vec<u8> {
    let mut bytes = [name.as_bytes(), body].concat();
    let length = bytes.len();
    seal(&mut bytes, &[name.len() as u64]);
    bytes.split_off(length)
}
