//! Ownership of a store: which node schedules it, and when another one may take it over.
//!
//! `term.node` is the owner. Its heartbeats are apart from it, so that they do not wait for its own transactions. A node that
//! wants the store takes it at once if no node owns it or an earlier process of its own name does (`node_file.rs`), and otherwise
//! when it has seen the same heartbeat of the same owner for [`SILENCE`]. Both sides measure durations by their own clocks, which
//! count the sleep of the machine, so no two clocks need agree: an owner starts nothing more than [`LEASE`] after it began to send
//! its last successful heartbeat (`heartbeat.rs`).

use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::client::{Clients, DatabaseError};
use super::connection::{PostgresConnection, failure};
use super::nodes::{self, NodeRow, Nonce, OWNER_COLUMNS};
use super::settings::PostgresSettings;
use crate::store::connection::StoreConnection;
use crate::store::store_dependencies::Outside;

/// Time without a heartbeat after which another node takes over.
pub(super) const SILENCE: Duration = Duration::from_secs(5);

/// Time after a heartbeat for which the owner starts work: shorter, so that it has stopped before another node begins.
pub(super) const LEASE: Duration = Duration::from_secs(4);

/// Further time for which a drained node leaves a store without an owner to the others.
const DEFERENCE: Duration = Duration::from_secs(30);

/// Tells the nodes that wait that the store has no owner.
pub(super) const NOTIFY_FREE: &str = "NOTIFY keylane_free";

/// Maximum interval between two looks at the owner.
const LOOK: Duration = Duration::from_millis(250);

/// Number of looks after which a node writes again that it is there.
const LOOKS_PER_ROW: u32 = 8;

/// Time for which a takeover waits for a transaction of the former owner before it ends that.
const PATIENCE: &str = "200ms";

/// Returns the time since the machine started, its sleep included.
pub(super) fn boot_time() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let nanos = u32::try_from(now.tv_nsec).unwrap_or(0);
    Duration::new(now.tv_sec.try_into().unwrap_or(0), nanos)
}

/// Owner of the store and its last heartbeat, as a node has seen them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    epoch: i64,
    node: Option<Vec<u8>>,
    beat: Option<i64>,
}

/// Waits until this node may own the store, and makes it the owner. Its writer has the name `writer`. With settings that do not
/// wait, an owner that sends heartbeats is an error.
///
/// # Errors
/// If the database cannot be read or written.
pub(super) fn acquire(
    clients: &Arc<Clients>,
    connection: &PostgresConnection,
    node: &Nonce,
    writer: &Nonce,
    settings: &PostgresSettings,
    outside: &Outside,
) -> Result<(), DatabaseError> {
    let row = settings.node.clone().map(|of_name| NodeRow { name: *node, node: of_name });
    connection.run("LISTEN keylane_free")?;
    // At once, so that the others find it as soon as it is the owner.
    row.as_ref().map_or(Ok(()), |row| row.write(connection))?;
    let mut last = look(connection, row.as_ref())?;
    // When it was first seen, at the latest, and last seen, at the earliest: the answer to a look can be old when it is read.
    let (mut since, mut asked) = (boot_time(), Duration::ZERO);
    let mut is_told = false;
    for round in 1_u32.. {
        let is_drained = row.as_ref().is_some_and(|row| row.node.is_drained());
        if asked.saturating_sub(since) >= wait_before_takeover(&last, node, is_drained) {
            if take(clients, connection, &last, node, writer)? {
                break;
            }
        } else if !std::mem::replace(&mut is_told, true) {
            match is_drained {
                false => tracing::info!(
                    "another node owns the store; this one takes over when that has ended"
                ),
                true => tracing::warn!("this server is drained; `keylane nodes resume` ends that"),
            }
        }
        connection.wait_for_notification(LOOK);
        if outside.given_up.is_cancelled() {
            return Err(DatabaseError::Other("the start was given up".into()));
        }
        if let Some(row) = row.as_ref().filter(|_| round % LOOKS_PER_ROW == 0) {
            row.write(connection)?;
        }
        asked = boot_time();
        let now = look(connection, row.as_ref())?;
        if now != last {
            if !settings.waits && now.node.is_some() {
                return Err(DatabaseError::Other("a server works with it; stop that first".into()));
            }
            (last, since) = (now, boot_time());
        }
    }
    connection.run("UNLISTEN keylane_free")?;
    if let Some(row) = row {
        // The requests that were forwarded to the former owner end.
        row.node.set_owner(None);
        if row.node.is_drained() {
            tracing::warn!(
                "no other server takes the store over, so this one is not drained any more"
            );
            row.resume(connection)?;
        }
    }
    Ok(())
}

/// Returns for how long the owner and its heartbeat must be as they were seen before this node takes the store.
fn wait_before_takeover(seen: &Seen, node: &Nonce, is_drained: bool) -> Duration {
    // This node is the only process with its name, so an owner of that name has ended.
    let was_it = seen.node.as_deref() == Some(node.as_slice());
    let silence = if was_it || seen.node.is_none() { Duration::ZERO } else { SILENCE };
    silence + if is_drained { DEFERENCE } else { Duration::ZERO }
}

/// Looks at the owner, and tells the node how to reach it.
fn look(connection: &PostgresConnection, row: Option<&NodeRow>) -> Result<Seen, DatabaseError> {
    let sql = format!(
        "SELECT term.epoch, term.node, heartbeat.number, {OWNER_COLUMNS},
             (SELECT drained FROM node WHERE name = ?1)
         FROM term LEFT JOIN heartbeat ON heartbeat.node = term.node LEFT JOIN node ON node.name = term.node"
    );
    let tables: &dyn StoreConnection = connection;
    let own = row.map(|row| &row.name[..]);
    let seen = tables.first(&sql, &[own.into()], |row| {
        let node = row.optional_bytes(1)?.map(<[u8]>::to_vec);
        let epoch = row.number(0)?;
        let seen = Seen { epoch, node, beat: row.optional_number(2)? };
        let is_drained = row.optional_number(6)? == Some(1);
        Ok((seen, nodes::owner(row, 3, epoch)?, is_drained))
    });
    let (seen, owner, is_drained) = seen
        .map_err(|error| failure(connection, error))?
        .ok_or_else(|| DatabaseError::Other("the table `term` has no row".into()))?;
    if let Some(row) = row {
        // An earlier process of this node forwards nothing and answers nothing.
        let is_other = seen.node.as_deref() != own;
        row.node.set_owner(owner.filter(|_| is_other));
        row.node.set_drained(is_drained);
    }
    Ok(seen)
}

/// Becomes the owner unless the owner or its heartbeat has changed since `last`.
fn take(
    clients: &Arc<Clients>,
    connection: &PostgresConnection,
    last: &Seen,
    node: &Nonce,
    writer: &Nonce,
) -> Result<bool, DatabaseError> {
    let sql =
        "UPDATE term SET epoch = epoch + 1, node = ?1, writer = ?2 WHERE epoch = ?3 AND coalesce(
               (SELECT number FROM heartbeat WHERE heartbeat.node = term.node), 0) = ?4";
    let beat = last.beat.unwrap_or(0);
    let parameters = [node.into(), writer.into(), last.epoch.into(), beat.into()];
    connection.run(&format!("SET lock_timeout TO '{PATIENCE}'"))?;
    let tables: &dyn StoreConnection = connection;
    let taken = tables.execute_counted(sql, &parameters);
    let error = connection.take_error();
    connection.run("SET lock_timeout TO 0")?;
    match (taken, error) {
        (Ok(0), _) => Ok(false),
        (Ok(_), _) => {
            // Of nodes that have ended without notice. A former owner that has not finds that it owns nothing.
            connection.run("DELETE FROM heartbeat")?;
            Ok(true)
        }
        // A transaction of the former owner holds the row, perhaps without its node: the next try finds it gone.
        (Err(_), Some(DatabaseError::Unavailable(_))) => {
            if let Err(error) = end_transactions(clients) {
                tracing::warn!(%error, "a transaction of the former owner cannot be ended");
            }
            Ok(false)
        }
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(DatabaseError::Other(format!("{error:?}").into())),
    }
}

/// Ends connections that hold the row of the owner.
fn end_transactions(clients: &Arc<Clients>) -> Result<(), DatabaseError> {
    let (connection, _) = PostgresConnection::open(clients)?;
    connection.run(
        "SELECT pg_terminate_backend(pid) FROM pg_locks
         WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
         AND relation = 'keylane.term'::regclass AND mode IN ('RowShareLock', 'RowExclusiveLock')
         AND granted AND pid NOT IN (SELECT pid FROM pg_locks WHERE NOT granted) AND pid <> pg_backend_pid()",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drained_node_takes_a_store_only_when_no_other_one_has_taken_it_for_half_a_minute() {
        let own = [1; 16];
        let of = |node: Option<u8>| Seen {
            epoch: 7,
            node: node.map(|byte| vec![byte; 16]),
            beat: Some(3),
        };
        for (owner, silence) in [(None, 0), (Some(1), 0), (Some(2), 5)] {
            let wait = |is_drained| wait_before_takeover(&of(owner), &own, is_drained).as_secs();
            assert_eq!((wait(false), wait(true)), (silence, silence + 30), "{owner:?}");
        }
    }
}
