//! Ownership of a store: which node schedules it, and how another one takes it over.
//!
//! `term.node` is the owner. Its heartbeats are apart from it, so that they do not wait for its own transactions. When a node may take the
//! store is decided in `candidate.rs`, and for how long an owner may start work in `lease.rs`: both by their own clocks, which count the
//! sleep of the machine, so no two clocks need agree.

use std::sync::Arc;
use std::time::Duration;

use super::candidate::{Candidate, Seen};
use super::client::{Clients, DatabaseError, ServerHistory};
use super::connection::{PostgresConnection, failure};
use super::lease::boot_time;
use super::nodes::{self, NodeRow, Nonce, OWNER_COLUMNS};
use super::settings::PostgresSettings;
use crate::store::connection::StoreConnection;
use crate::store::store_dependencies::Outside;

/// Tells the nodes that wait that the store has no owner.
pub(super) const NOTIFY_FREE: &str = "NOTIFY keylane_free";

/// Maximum interval between two looks at the owner.
const LOOK: Duration = Duration::from_millis(250);

/// Number of looks after which a node writes again that it is there.
const LOOKS_PER_ROW: u32 = 8;

/// Time for which a takeover waits for a transaction of the former owner before it ends that.
const PATIENCE: &str = "200ms";

/// Waits until this node may own the store, and makes it the owner. Its writer has the name `writer`. With settings that do not
/// wait, an owner that sends heartbeats is an error. Returns the epoch, the number of this takeover.
///
/// # Errors
/// If the database cannot be read or written.
pub(super) fn acquire(
    clients: &Arc<Clients>,
    (connection, history): (&PostgresConnection, &ServerHistory),
    node: &Nonce,
    writer: &Nonce,
    settings: &PostgresSettings,
    outside: &Outside,
) -> Result<i64, DatabaseError> {
    let row = settings.node.clone().map(|of_name| NodeRow { name: *node, node: of_name });
    connection.run("LISTEN keylane_free")?;
    // At once, so that the others find it as soon as it is the owner.
    row.as_ref().map_or(Ok(()), |row| row.write(connection))?;
    let seen = look(connection, history, row.as_ref())?;
    let mut candidate = Candidate::new(*node, seen, boot_time());
    let mut is_told = false;
    for round in 1_u32.. {
        let is_drained = row.as_ref().is_some_and(|row| row.node.is_drained());
        if candidate.may_take(boot_time(), is_drained) {
            if take(clients, connection, candidate.seen(), node, writer)? {
                break;
            }
        } else if !std::mem::replace(&mut is_told, true) {
            tell_of_wait(candidate.seen(), is_drained);
        }
        connection.wait_for_notification(LOOK);
        if outside.given_up.is_cancelled() {
            return Err(DatabaseError::Other("the start was given up".into()));
        }
        if let Some(row) = row.as_ref().filter(|_| round % LOOKS_PER_ROW == 0) {
            row.write(connection)?;
        }
        let seen = look(connection, history, row.as_ref())?;
        if candidate.record(seen, boot_time()) {
            let is_owned = candidate.seen().node.is_some();
            if is_owned && !settings.waits {
                return Err(DatabaseError::Other("a server works with it; stop that first".into()));
            }
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
    Ok(candidate.seen().epoch + 1)
}

fn tell_of_wait(seen: &Seen, is_drained: bool) {
    match (is_drained, seen.node) {
        (true, _) => tracing::warn!("this server is drained; `keylane nodes resume` ends that"),
        (false, Some(_)) => {
            tracing::info!("another node owns the store; this one takes over when that has ended");
        }
        (false, None) => {}
    }
}

/// Looks at the owner, and tells the node how to reach it.
fn look(
    connection: &PostgresConnection,
    history: &ServerHistory,
    row: Option<&NodeRow>,
) -> Result<Seen, DatabaseError> {
    let sql = format!(
        "SELECT term.epoch, term.node, coalesce(heartbeat.number, 0), term.history, {OWNER_COLUMNS},
             (SELECT drained FROM node WHERE name = ?1)
         FROM term LEFT JOIN heartbeat ON heartbeat.node = term.node LEFT JOIN node ON node.name = term.node"
    );
    let tables: &dyn StoreConnection = connection;
    let own = row.map(|row| &row.name[..]);
    let current = history.to_string();
    let seen = tables.first(&sql, &[own.into()], |row| {
        let node = row.optional_bytes(1)?.and_then(|name| name.try_into().ok());
        let epoch = row.number(0)?;
        let is_moved = row.optional_bytes(3)?.is_some_and(|last| last != current.as_bytes());
        let seen = Seen { epoch, node, heartbeat: row.number(2)?, is_moved };
        let is_drained = row.optional_number(7)? == Some(1);
        Ok((seen, nodes::owner(row, 4, epoch)?, is_drained))
    });
    let (seen, owner, is_drained) = seen
        .map_err(|error| failure(connection, error))?
        .ok_or_else(|| DatabaseError::Other("the table `term` has no row".into()))?;
    if let Some(row) = row {
        // An earlier process of this node forwards nothing and answers nothing.
        let is_other = seen.node != Some(row.name);
        row.node.set_owner(owner.filter(|_| is_other));
        row.node.set_drained(is_drained);
    }
    Ok(seen)
}

/// Becomes the owner, with the next epoch, unless the owner or its heartbeat has changed since it was seen.
fn take(
    clients: &Arc<Clients>,
    connection: &PostgresConnection,
    seen: &Seen,
    node: &Nonce,
    writer: &Nonce,
) -> Result<bool, DatabaseError> {
    let parameters = [node.into(), writer.into(), seen.epoch.into(), seen.heartbeat.into()];
    connection.run(&format!("SET lock_timeout TO '{PATIENCE}'"))?;
    let tables: &dyn StoreConnection = connection;
    let taken = tables.first("SELECT take_over(?1, ?2, ?3, ?4)", &parameters, |row| row.number(0));
    let error = connection.take_error();
    connection.run("SET lock_timeout TO 0")?;
    match (taken, error) {
        (Ok(taken), _) => Ok(taken == Some(1)),
        // A transaction of the former owner holds a row, perhaps without its node: the next try finds it gone.
        (Err(_), Some(DatabaseError::Unavailable(_))) => {
            if let Err(error) = end_transactions(clients) {
                tracing::warn!(%error, "a transaction of the former owner cannot be ended");
            }
            Ok(false)
        }
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(DatabaseError::Other(error.to_string().into())),
    }
}

/// Ends connections that hold the row of the owner, or that of its heartbeat.
fn end_transactions(clients: &Arc<Clients>) -> Result<(), DatabaseError> {
    let (connection, _) = PostgresConnection::open(clients)?;
    connection.run(
        "SELECT pg_terminate_backend(pid) FROM pg_locks
         WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
         AND relation IN ('keylane.term'::regclass, 'keylane.heartbeat'::regclass) AND mode IN ('RowShareLock', 'RowExclusiveLock')
         AND granted AND pid NOT IN (SELECT pid FROM pg_locks WHERE NOT granted) AND pid <> pg_backend_pid()",
    )
}

#[cfg(test)]
mod tests {
    use std::thread;

    use keylane_testkit::{PostgresServer, or_skip};

    use super::*;
    use crate::store::postgres::heartbeat::Beats;
    use crate::store::postgres::layout;

    const WAITING: &str = "SELECT count(*) FROM pg_locks WHERE NOT granted";

    /// Otherwise a former owner would start work beside its successor.
    #[test]
    fn of_a_heartbeat_and_a_takeover_at_the_same_time_one_succeeds() {
        let Some(server) = or_skip(PostgresServer::start()) else { return };
        let settings = server.address().parse().unwrap();
        let clients = &Arc::new(Clients::new(&settings, &Outside::system()).unwrap());
        let (connection, history) = PostgresConnection::open(clients).unwrap();
        layout::prepare(&connection, &history).unwrap();
        let (owner, other) = ([1; 16], [2; 16]);
        let first = look(&connection, &history, None).unwrap();
        assert!(take(clients, &connection, &first, &owner, &[11; 16]).unwrap());
        let mut beats = Beats::of_owner(Arc::clone(clients), owner, first.epoch + 1, &history);
        beats.send().unwrap();
        let lease = Arc::clone(&beats.lease);
        let seen = look(&connection, &history, None).unwrap();
        let (holder, _) = PostgresConnection::open(clients).unwrap();
        holder.run("BEGIN; SELECT 1 FROM term FOR SHARE").unwrap();
        let (taken, beaten) = thread::scope(|scope| {
            let taking =
                scope.spawn(move || take(clients, &connection, &seen, &other, &[12; 16]).unwrap());
            while server.query(WAITING) == "0" {}
            let beating = scope.spawn(move || beats.send().is_ok());
            while !beating.is_finished() && server.query(WAITING) == "1" {}
            holder.run("COMMIT").unwrap();
            (taking.join().unwrap(), beating.join().unwrap())
        });
        assert_ne!(taken, beaten);
        assert_eq!(lease.lost().is_some(), taken);
    }
}
