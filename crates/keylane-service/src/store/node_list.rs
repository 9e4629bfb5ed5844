//! List of the servers that share a store in a database, from the rows that they write.

use super::connection::StoreConnection;
use super::error::ReadError;

/// Server that shares the store.
#[derive(Clone, Debug)]
pub(crate) struct ListedNode {
    /// Address at which the others reach it.
    pub(crate) address: String,
    /// Version of the program.
    pub(crate) version: String,
    /// Whether it owns the store.
    pub(crate) is_owner: bool,
    /// Time since it wrote its row, by the clock of the database, in milliseconds.
    pub(crate) silent_ms: u64,
}

/// Returns all servers, by address.
pub(super) fn read(connection: &dyn StoreConnection) -> Result<Vec<ListedNode>, ReadError> {
    let sql = "SELECT node.address, node.version, CASE WHEN term.node = node.name THEN 1 ELSE 0 END,
                   greatest((extract(epoch FROM clock_timestamp()) * 1000)::bigint - node.seen_ms, 0)
               FROM node, term WHERE term.one = 1 ORDER BY node.address";
    connection.all(sql, &[], |row| {
        let text =
            |column| row.bytes(column).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Ok(ListedNode {
            address: text(0)?,
            version: text(1)?,
            is_owner: row.is_true(2)?,
            silent_ms: row.unsigned(3)?,
        })
    })
}
