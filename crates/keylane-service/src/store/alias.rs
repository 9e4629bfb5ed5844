//! What clients call jobs themselves: a row for each such name, as long as the job is there.
//!
//! It is written together with its job, and refused together with it if the name is taken.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::{Damage, ReadError, WriteError};
use super::handle::Store;
use super::seal::seal;
use crate::ids::{JobId, JobNumber};

/// A job's name that its client has given it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alias {
    /// The name.
    pub name: String,
    /// The job.
    pub job: JobId,
    /// Of what was asked for, so that another request for this name is noticed.
    pub body_hash: [u8; 32],
}

impl Store {
    /// Whose name this is.
    ///
    /// # Errors
    /// If what is said of it is not what was written.
    pub fn alias(&self, name: &str) -> Result<Option<Alias>, ReadError> {
        self.with_reader(|reader| find(reader, name))
    }
}

pub(super) const COLUMNS: &str = "name, job, id, body_hash, seal";

fn find(connection: &Connection, name: &str) -> Result<Option<Alias>, ReadError> {
    let sql = format!("SELECT {COLUMNS} FROM alias WHERE name = ?1");
    let mut find = connection.prepare_cached(&sql)?;
    let mut rows = find.query([name])?;
    rows.next()?.map(read).transpose()
}

/// Reads them one after another, and goes on behind one that is not what was written.
pub(super) fn for_each(
    connection: &Connection,
    mut then: impl FnMut(Result<Alias, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let mut all = connection.prepare(&format!("SELECT {COLUMNS} FROM alias"))?;
    let mut rows = all.query([])?;
    while let Some(row) = rows.next()? {
        then(read(row))?;
    }
    Ok(())
}

pub(super) fn read(row: &Row<'_>) -> Result<Alias, ReadError> {
    let number = JobNumber(row.get::<_, i64>(1)?.cast_unsigned());
    let alias = Alias { name: row.get(0)?, job: JobId(row.get(2)?), body_hash: row.get(3)? };
    match number == alias.job.number() && row.get_ref(4)?.as_blob()? == seal_of(&alias) {
        true => Ok(alias),
        false => Err(ReadError::Damaged(Damage::Alias { name: alias.name })),
    }
}

/// Why it cannot be given, if so.
pub(super) fn refusal(
    connection: &Connection,
    alias: &Alias,
) -> rusqlite::Result<Option<WriteError>> {
    let mut find = connection.prepare_cached("SELECT id, body_hash FROM alias WHERE name = ?1")?;
    let found = find.query_row([&alias.name], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    Ok(found.map(|(id, body_hash)| WriteError::Duplicate { job: JobId(id), body_hash }))
}

pub(super) fn put(connection: &Connection, alias: &Alias) -> rusqlite::Result<()> {
    let mut put = connection.prepare_cached(
        "INSERT INTO alias (name, job, id, body_hash, seal) VALUES (?1, ?2, ?3, ?4, ?5)",
    )?;
    let Alias { name, job, body_hash } = alias;
    put.execute(params![name, job.number().0.cast_signed(), job.0, body_hash, seal_of(alias)])?;
    Ok(())
}

/// A job goes, and what it was called.
pub(super) fn forget(connection: &Connection, job: JobNumber) -> rusqlite::Result<()> {
    let mut delete = connection.prepare_cached("DELETE FROM alias WHERE job = ?1")?;
    delete.execute([job.0.cast_signed()])?;
    Ok(())
}

fn seal_of(alias: &Alias) -> Vec<u8> {
    let Alias { name, job, body_hash } = alias;
    let mut bytes = [name.as_bytes(), &job.0, body_hash].concat();
    let length = bytes.len();
    seal(&mut bytes, &[name.len() as u64]);
    bytes.split_off(length)
}
