//! Client-assigned job identifiers: one row each, unique, and deleted with the job.
//!
//! An alias is written in its job's transaction; if the identifier is taken, the job is refused.

use keylane_storage::checksum::seal;
use keylane_storage::sqlite::SqliteError;

use super::connection::{StoreConnection, StoredRow};
use super::error::{ReadError, StoreDamage, WriteError};
use crate::ids::{JobId, JobNumber};

/// Client's identifier of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobAlias {
    /// Identifier.
    pub name: String,
    /// Job.
    pub job: JobId,
    /// Hash of the request, to detect another request with this identifier.
    pub body_hash: [u8; 32],
}

pub(super) const COLUMNS: &str = "name, job, id, body_hash, seal";

pub(super) fn find(
    connection: &dyn StoreConnection,
    name: &str,
) -> Result<Option<JobAlias>, ReadError> {
    let sql = format!("SELECT {COLUMNS} FROM alias WHERE name = ?1");
    connection.first(&sql, &[name.into()], read)
}

/// Reads the rows in order, and continues after a damaged one.
pub(super) fn for_each(
    connection: &dyn StoreConnection,
    mut then: impl FnMut(Result<JobAlias, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    connection.each(&format!("SELECT {COLUMNS} FROM alias"), &[], |row| then(read(row)))
}

pub(super) fn read(row: &dyn StoredRow) -> Result<JobAlias, ReadError> {
    let number = JobNumber(row.unsigned(1)?);
    let (job, body_hash) = (JobId(row.array(2)?), row.array(3)?);
    let alias = JobAlias { name: row.text(0)?, job, body_hash };
    match number == alias.job.number() && row.bytes(4)? == seal_of(&alias) {
        true => Ok(alias),
        false => Err(ReadError::Damaged(StoreDamage::Alias { name: alias.name })),
    }
}

/// Returns the error of an alias that cannot be assigned.
pub(super) fn refusal(
    connection: &dyn StoreConnection,
    alias: &JobAlias,
) -> Result<Option<WriteError>, ReadError> {
    let sql = "SELECT id, body_hash FROM alias WHERE name = ?1";
    connection.first(sql, &[(&alias.name).into()], |row| {
        Ok(WriteError::Duplicate { job: JobId(row.array(0)?), body_hash: row.array(1)? })
    })
}

pub(super) fn put(connection: &dyn StoreConnection, alias: &JobAlias) -> Result<(), SqliteError> {
    let sql = "INSERT INTO alias (name, job, id, body_hash, seal) VALUES (?1, ?2, ?3, ?4, ?5)";
    let JobAlias { name, job, body_hash } = alias;
    let (number, sealed) = (job.number().0, seal_of(alias));
    let parameters =
        [name.into(), number.into(), (&job.0).into(), body_hash.into(), (&sealed).into()];
    connection.execute(sql, &parameters)?;
    Ok(())
}

/// Deletes the alias of a deleted job.
pub(super) fn forget(connection: &dyn StoreConnection, job: JobNumber) -> Result<(), SqliteError> {
    connection.execute("DELETE FROM alias WHERE job = ?1", &[job.0.into()])?;
    Ok(())
}

fn seal_of(alias: &JobAlias) -> Vec<u8> {
    let JobAlias { name, job, body_hash } = alias;
    let mut bytes = [name.as_bytes(), &job.0, body_hash].concat();
    let length = bytes.len();
    seal(&mut bytes, &[name.len() as u64]);
    bytes.split_off(length)
}
