//! Inbox: jobs that applications have submitted by SQL, each in a transaction of its own. Only stores in databases have one.
//!
//! A row is visible when the transaction of the application has committed. The transaction that accepts its job, or refuses it, removes it.

use keylane_storage::sqlite::SqliteError;

use super::connection::StoreConnection;
use super::error::ReadError;

/// Job in the inbox.
#[derive(Clone, Debug)]
pub(crate) struct InboxRow {
    /// Place among all jobs that were submitted by SQL.
    pub(crate) id: u64,
    /// Name that the application got, by which it finds the job.
    pub(crate) name: String,
    /// The job, as `POST /v1/jobs` takes it.
    pub(crate) request: Vec<u8>,
}

/// End of a row of the inbox.
#[derive(Clone, Debug)]
pub(super) struct InboxEnd {
    pub(super) id: u64,
    /// Reason and time, in milliseconds since 1970, if its job was refused.
    pub(super) refusal: Option<(String, u64)>,
}

/// Returns the first rows, at most this many.
pub(super) fn read(
    connection: &dyn StoreConnection,
    most: u64,
) -> Result<Vec<InboxRow>, ReadError> {
    let sql = "SELECT id, name, request FROM inbox ORDER BY id LIMIT ?1";
    connection.all(sql, &[most.into()], |row| {
        Ok(InboxRow { id: row.unsigned(0)?, name: row.text(1)?, request: row.bytes(2)?.to_vec() })
    })
}

/// Removes a row. A refused one is kept among the refused ones.
pub(super) fn end(connection: &dyn StoreConnection, end: &InboxEnd) -> Result<(), SqliteError> {
    if let Some((why, at_ms)) = &end.refusal {
        let sql = "INSERT INTO inbox_refused (id, name, request, why, refused_ms)
                   SELECT id, name, request, ?2, ?3 FROM inbox WHERE id = ?1";
        connection.execute(sql, &[end.id.into(), why.into(), (*at_ms).into()])?;
    }
    connection.execute("DELETE FROM inbox WHERE id = ?1", &[end.id.into()])
}
