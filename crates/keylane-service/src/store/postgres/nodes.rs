//! Rows of the nodes: how each is reached by the others, and when it was last there.

use super::client::DatabaseError;
use super::connection::{PostgresConnection, failure};
use crate::node::{DrainOutcome, ListedNode, Node, NodeAddress, NodeSecret, Owner};
use crate::store::connection::{StoreConnection, StoredRow};
use crate::store::error::ReadError;

/// Random name of a node, or of a connection of its writer.
pub(super) type Nonce = [u8; 16];

/// Time of the database, in milliseconds. Nodes may have other times.
const NOW_MS: &str = "(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// Time after which the row of a node that has ended without notice is removed, in milliseconds.
const GONE_MS: i64 = 60_000;

/// Time without a sign of a node after which it is not counted on to take the store over, in milliseconds.
const ABSENT_MS: i64 = 10_000;

/// Row of this node.
#[derive(Debug)]
pub(super) struct NodeRow {
    pub(super) name: Nonce,
    pub(super) node: Node,
}

impl NodeRow {
    /// Writes it with the time, and reads whether the node is drained.
    pub(super) fn write(&self, connection: &PostgresConnection) -> Result<(), DatabaseError> {
        let sql = format!(
            "INSERT INTO node (name, address, certificate, secret, version, seen_ms)
             VALUES (?1, ?2, ?3, ?4, ?5, {NOW_MS})
             ON CONFLICT (name) DO UPDATE SET address = excluded.address, certificate = excluded.certificate,
                 secret = excluded.secret, version = excluded.version, seen_ms = excluded.seen_ms
             RETURNING drained"
        );
        let address = self.node.address();
        let parameters = [
            (&self.name).into(),
            (&*address.url).into(),
            address.certificate.as_ref().map(|hash| &hash[..]).into(),
            self.node.secret().as_str().into(),
            env!("CARGO_PKG_VERSION").into(),
        ];
        let tables: &dyn StoreConnection = connection;
        let drained = tables.first(&sql, &parameters, |row| row.is_true(0));
        let drained = drained.map_err(|error| failure(connection, error))?;
        self.node.set_drained(drained == Some(true));
        Ok(())
    }

    /// Removes the rows of nodes that have ended without notice. A drained node is still drained when it starts again.
    pub(super) fn remove_gone(&self, connection: &PostgresConnection) -> Result<(), DatabaseError> {
        let sql = format!(
            "DELETE FROM node WHERE seen_ms < {NOW_MS} - ?1 AND name <> ?2 AND drained = 0"
        );
        connection.change(&sql, &[GONE_MS.into(), (&self.name).into()]).map(drop)
    }

    /// Removes it unless the node is drained. The others then know that this node has ended.
    pub(super) fn remove(&self, connection: &PostgresConnection) -> Result<(), DatabaseError> {
        let sql = "DELETE FROM node WHERE name = ?1 AND drained = 0";
        connection.change(sql, &[(&self.name).into()]).map(drop)
    }

    /// Ends the draining of this node, because there is no other one to own the store.
    pub(super) fn resume(&self, connection: &PostgresConnection) -> Result<(), DatabaseError> {
        let sql = "UPDATE node SET drained = 0 WHERE name = ?1";
        connection.change(sql, &[(&self.name).into()])?;
        self.node.set_drained(false);
        Ok(())
    }
}

/// Returns all nodes, by address.
pub(in crate::store) fn list(
    connection: &dyn StoreConnection,
) -> Result<Vec<ListedNode>, ReadError> {
    let sql = format!(
        "SELECT node.address, node.version, CASE WHEN term.node = node.name THEN 1 ELSE 0 END,
             greatest({NOW_MS} - node.seen_ms, 0), node.drained
         FROM node, term ORDER BY node.address"
    );
    connection.all(&sql, &[], |row| {
        let text =
            |column| row.bytes(column).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        Ok(ListedNode {
            address: text(0)?,
            version: text(1)?,
            is_owner: row.is_true(2)?,
            silent_ms: row.unsigned(3)?,
            is_drained: row.is_true(4)?,
        })
    })
}

/// Drains the node at an address, or ends that. Only the owner calls this, one call at a time.
pub(in crate::store) fn drain(
    connection: &dyn StoreConnection,
    address: &str,
    drained: bool,
) -> Result<DrainOutcome, ReadError> {
    let others = format!(
        "SELECT 1 FROM node WHERE address <> ?1 AND drained = 0 AND seen_ms > {NOW_MS} - ?2"
    );
    if drained && !connection.finds(&others, &[address.into(), ABSENT_MS.into()])? {
        let is_known =
            connection.finds("SELECT 1 FROM node WHERE address = ?1", &[address.into()])?;
        return Ok(if is_known { DrainOutcome::LastNode } else { DrainOutcome::Unknown });
    }
    let sql = "UPDATE node SET drained = ?2 WHERE address = ?1 RETURNING 1";
    // To the last row: the commit comes after it.
    let done = connection.all(sql, &[address.into(), drained.into()], |_| Ok(()))?;
    Ok(if done.is_empty() { DrainOutcome::Unknown } else { DrainOutcome::Done })
}

/// Columns of the owner's row, for [`owner`].
pub(super) const OWNER_COLUMNS: &str = "node.address, node.certificate, node.secret";

/// Reads the owner from [`OWNER_COLUMNS`], which begin at `first`. `None` if it has no row.
pub(super) fn owner(
    row: &dyn StoredRow,
    first: usize,
    epoch: i64,
) -> Result<Option<Owner>, ReadError> {
    let text =
        |bytes: Option<&[u8]>| bytes.map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    let (address, secret) =
        (text(row.optional_bytes(first)?), text(row.optional_bytes(first + 2)?));
    let certificate = row.optional_bytes(first + 1)?.and_then(|hash| hash.try_into().ok());
    let address = address.and_then(|address| address.parse::<NodeAddress>().ok());
    Ok(address.zip(secret).map(|(address, secret)| Owner {
        epoch,
        address: address.with_certificate(certificate),
        secret: NodeSecret::new(&secret),
    }))
}
