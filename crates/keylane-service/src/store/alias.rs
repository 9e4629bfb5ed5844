//! Client-assigned job identifiers: one row each, unique, and deleted with the job.
//!
//! An alias is written in its job's transaction; if the identifier is taken, the job is refused.

use keylane_storage::checksum::seal;
use rusqlite::{Connection, OptionalExtension, Row, params};

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

pub(super) fn find(connection: &Connection, name: &str) -> Result<Option<JobAlias>, ReadError> {
    let sql = format!("SELECT {COLUMNS} FROM alias WHERE name = ?1");
    let mut find = connection.prepare_cached(&sql)?;
    let mut rows = find.query([name])?;
    rows.next()?.map(read).transpose()
}

/// Reads the rows in order, and continues after a damaged one.
pub(super) fn for_each(
    connection: &Connection,
    mut then: impl FnMut(Result<JobAlias, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut all = connection.prepare(&format!("SELECT {COLUMNS} FROM alias"))?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        then(read(row))?;
    }
    Ok(())
}

pub(super) fn read(row: &Row<'_>) -> Result<JobAlias, ReadError> {
    let number = JobNumber(row.get::<_, i64>(1)?.cast_unsigned());
    let alias = JobAlias { name: row.get(0)?, job: JobId(row.get(2)?), body_hash: row.get(3)? };
    match number == alias.job.number() && row.get_ref(4)?.as_blob()? == seal_of(&alias) {
        true => Ok(alias),
        false => Err(ReadError::Damaged(StoreDamage::Alias { name: alias.name })),
    }
}

/// Returns the error of an alias that cannot be assigned.
pub(super) fn refusal(
    connection: &Connection,
    alias: &JobAlias,
) -> rusqlite::Result<Option<WriteError>> {
    let mut find = connection.prepare_cached("SELECT id, body_hash FROM alias WHERE name = ?1")?;
    let found = find.query_row([&alias.name], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(found.map(|(id, body_hash)| WriteError::Duplicate { job: JobId(id), body_hash }))
}

pub(super) fn put(connection: &Connection, alias: &JobAlias) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached(
        "INSERT INTO alias (name, job, id, body_hash, seal) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let JobAlias { name, job, body_hash } = alias;
    put.execute(params![name, job.number().0.cast_signed(), job.0, body_hash, seal_of(alias)])?;
    Ok(())
}

/// Deletes the alias of a deleted job.
pub(super) fn forget(connection: &Connection, job: JobNumber) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM alias WHERE job = ?1")?;
    delete.execute([job.0.cast_signed()])?;
    Ok(())
}

fn seal_of(alias: &JobAlias) -> Vec<u8> {
    let JobAlias { name, job, body_hash } = alias;
    let mut bytes = [name.as_bytes(), &job.0, body_hash].concat();
    let length = bytes.len();
    seal(&mut bytes, &[name.len() as u64]);
    bytes.split_off(length)
}
