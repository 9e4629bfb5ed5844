//! PostgreSQL as the database of a store's writer.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use keylane_storage::sqlite::SqliteError;

use super::client::{Clients, DatabaseError, ServerHistory};
use super::connection::{PostgresConnection, failure};
use super::heartbeat::Heartbeats;
use super::node_file::NodeFile;
use super::nodes::Nonce;
use super::ownership::NOTIFY_FREE;
use crate::store::connection::StoreConnection;
use crate::store::store_dependencies::Outside;
use crate::store::writer_database::WriterDatabase;

/// Interval between two attempts to find out whether a transaction was committed.
const RETRY: Duration = Duration::from_millis(250);

/// Database of a store that this node owns.
pub(super) struct PostgresDatabase {
    /// Ends before the node gives the store up.
    pub(super) heartbeats: Option<Heartbeats>,
    /// Keeps another process from using the name of the node.
    pub(super) _node_file: Arc<NodeFile>,
    pub(super) clients: Arc<Clients>,
    pub(super) connection: PostgresConnection,
    /// Server that the store was opened on. On another one, or after a promotion, transactions may be missing.
    pub(super) history: ServerHistory,
    pub(super) node: Nonce,
    /// Number of the takeover by which this node owns the store. Statements that an earlier process of the node has sent, and that
    /// arrive late, have another one.
    pub(super) epoch: i64,
    /// Name of this connection. A new one gets another name, so that what is left of the transactions of an earlier
    /// connection is refused.
    pub(super) writer: Nonce,
    /// Number of the last transaction that was committed.
    pub(super) commits: u64,
    pub(super) outside: Outside,
    /// Whether the last attempt to reach the server has failed.
    pub(super) is_away: bool,
}

impl PostgresDatabase {
    /// Connects again after the connection has ended, and reads which transaction was the last one.
    fn reconnect(&mut self) -> Result<u64, DatabaseError> {
        let (connection, history) = PostgresConnection::open(&self.clients)?;
        if history != self.history {
            return Err(DatabaseError::Other(
                "the database was promoted or replaced, and may lack acknowledged transactions; \
                 the server must be started again"
                    .into(),
            ));
        }
        let writer = nonce(&self.outside);
        connection.end_session_of(&self.connection)?;
        // Waits for the end of a transaction of the earlier connection.
        connection.run("SET lock_timeout TO '10s'")?;
        let parameters = [(&self.node).into(), self.epoch.into(), (&writer).into()];
        let tables: &dyn StoreConnection = &connection;
        let renamed = "SELECT rename_writer(?1, ?2, ?3)";
        let commits = tables.first(renamed, &parameters, |row| row.unsigned(0));
        let commits = commits.map_err(|error| failure(&connection, error))?;
        connection.run("SET lock_timeout TO 0")?;
        (self.connection, self.writer) = (connection, writer);
        commits.ok_or_else(|| DatabaseError::Other("the table `meta` has no row".into()))
    }

    /// Connects again if that is needed.
    fn stay_connected(&mut self) -> Result<(), DatabaseError> {
        if !self.connection.is_closed() {
            return Ok(());
        }
        match self.reconnect()? {
            commits if commits == self.commits => Ok(()),
            _ => Err(lost_track()),
        }
    }

    /// Finds out whether the transaction was committed whose answer is missing.
    fn settle(&mut self) -> Result<(), DatabaseError> {
        loop {
            match self.reconnect() {
                Ok(found) if was_committed(self.commits, found)? => return Ok(()),
                Ok(_) => {
                    let why = "the connection to the database has ended before the commit";
                    return Err(DatabaseError::Unavailable(why.into()));
                }
                Err(DatabaseError::Unavailable(_)) => thread::sleep(RETRY),
                Err(error) => return Err(error),
            }
        }
    }

    /// Logs when the server can no longer be reached, and when it can again.
    fn tell<T>(&mut self, result: Result<T, DatabaseError>) -> Result<T, SqliteError> {
        match &result {
            Ok(_) => self.is_away = false,
            Err(DatabaseError::Unavailable(why)) if !self.is_away => {
                self.is_away = true;
                tracing::error!(%why, "nothing can be written; it is tried again");
            }
            Err(_) => {}
        }
        result.map_err(SqliteError::from)
    }
}

/// Returns whether the transaction after number `last` was committed, when the database has the number `found` and no earlier
/// connection can write any more.
///
/// # Errors
/// If the database has neither number.
pub(super) fn was_committed(last: u64, found: u64) -> Result<bool, DatabaseError> {
    match found.checked_sub(last) {
        Some(0) => Ok(false),
        Some(1) => Ok(true),
        _ => Err(lost_track()),
    }
}

fn lost_track() -> DatabaseError {
    let why = "the database has other transactions than this node has written";
    DatabaseError::Other(why.into())
}

/// Returns a random name.
pub(super) fn nonce(outside: &Outside) -> Nonce {
    let mut nonce = [0; 16];
    nonce[..8].copy_from_slice(&outside.random().to_be_bytes());
    nonce[8..].copy_from_slice(&outside.random().to_be_bytes());
    nonce
}

impl WriterDatabase for PostgresDatabase {
    fn connection(&self) -> &dyn StoreConnection {
        &self.connection
    }

    fn begin(&mut self) -> Result<(), SqliteError> {
        let connected = self.stay_connected();
        self.tell(connected)?;
        self.connection.take_error();
        let check = "SELECT check_writer(?1, ?2)";
        let begun = self.connection.add("BEGIN", &[]).and_then(|()| {
            self.connection.add(check, &[(&self.writer).into(), self.commits.into()])
        });
        self.tell(begun)
    }

    fn commit(&mut self) -> Result<(), SqliteError> {
        let sent = self.connection.add("COMMIT", &[]).and_then(|()| self.connection.send());
        let committed = match sent {
            // On a connection that goes on, the answer to `COMMIT` has come, and the transaction has failed before it.
            Err(DatabaseError::Unavailable(_)) if self.connection.run("ROLLBACK").is_err() => {
                let settled = self.settle();
                // Its cause is the result, and not that of the connection, after which nothing was written.
                self.connection.take_error();
                settled
            }
            sent => sent,
        };
        self.tell(committed)?;
        self.commits += 1;
        Ok(())
    }

    fn commit_last(&mut self) -> Result<(), SqliteError> {
        let sent = self.connection.add("COMMIT", &[]).and_then(|()| self.connection.send());
        self.tell(sent)
    }

    fn roll_back(&mut self) -> Result<(), SqliteError> {
        self.connection.forget();
        // A connection that has ended has no transaction either, and is replaced before the next one.
        if !self.connection.is_closed() {
            let _ = self.connection.run("ROLLBACK");
        }
        Ok(())
    }

    fn cause(&mut self, error: SqliteError) -> SqliteError {
        match self.connection.take_error() {
            Some(cause) => match self.tell::<()>(Err(cause)) {
                Err(cause) => cause,
                Ok(()) => error,
            },
            None => error,
        }
    }

    fn note_commit(&mut self, _commits: u64) -> Result<(), Arc<str>> {
        Ok(())
    }

    fn raise_boot(&mut self, _boot: u64) -> io::Result<()> {
        Ok(())
    }

    fn close(&mut self, is_written: bool) {
        self.heartbeats = None;
        if is_written {
            let sql = "UPDATE term SET node = NULL, writer = NULL WHERE node = ?1 AND epoch = ?2";
            let _ = self.connection.change(sql, &[(&self.node).into(), self.epoch.into()]);
            let _ = self.connection.run(NOTIFY_FREE);
        }
    }
}
