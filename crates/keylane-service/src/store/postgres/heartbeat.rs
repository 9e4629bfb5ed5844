//! Heartbeats of the owner of a store, which extend its lease.

use std::fmt;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::client::{Clients, DatabaseError, ServerHistory};
use super::connection::{PostgresConnection, failure};
use super::lease::{Lease, boot_time};
use super::nodes::{NodeRow, Nonce};
use crate::store::connection::StoreConnection;
use crate::store::store_dependencies::{JoinWriter, Outside};

/// Interval between two heartbeats.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time without an answer to a heartbeat after which the server is asked whether it executes it: a lost answer should not end the lease.
const PATIENCE: Duration = Duration::from_secs(1);

/// Number of heartbeats after which the owner writes its row again, with its address and certificate.
const BEATS_PER_ROW: u64 = 5;

/// Thread that sends heartbeats until it is dropped.
pub(super) struct Heartbeats {
    end: Option<Sender<()>>,
    join: Option<JoinWriter>,
}

impl Heartbeats {
    /// Starts the heartbeats of a node that owns the store.
    ///
    /// # Errors
    /// If the first one fails.
    pub(super) fn start(mut beats: Beats, outside: &Outside) -> Result<Self, DatabaseError> {
        beats.send()?;
        let (end, ended) = channel();
        let body = Box::new(move || beats.run(&ended));
        let join = outside.writers.thread("keylane-heartbeat", body);
        let join = join.map_err(|error| DatabaseError::Other(error.to_string().into()))?;
        Ok(Heartbeats { end: Some(end), join: Some(join) })
    }
}

impl Drop for Heartbeats {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(join) = self.join.take() {
            join();
        }
    }
}

impl fmt::Debug for Heartbeats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Heartbeats").finish_non_exhaustive()
    }
}

/// Heartbeats of one term of an owner.
pub(super) struct Beats {
    clients: Arc<Clients>,
    node: Nonce,
    /// Number of the takeover by which the node owns the store.
    epoch: i64,
    /// Server that the store was taken on. Another one, or a promoted one, may lack the takeover of a later owner.
    history: ServerHistory,
    /// Row by which the other nodes reach this one.
    pub(super) row: Option<NodeRow>,
    pub(super) lease: Arc<Lease>,
    connection: Option<PostgresConnection>,
}

impl Beats {
    /// Creates those of a node that has taken the store with this epoch.
    pub(super) fn of_owner(
        clients: Arc<Clients>,
        node: Nonce,
        epoch: i64,
        history: &ServerHistory,
    ) -> Self {
        let (history, lease) = (history.clone(), Arc::default());
        Beats { clients, node, epoch, history, row: None, lease, connection: None }
    }

    fn run(mut self, ended: &Receiver<()>) {
        let (mut fails, mut number) = (false, 0_u64);
        while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            number += 1;
            // After the heartbeat, which is more urgent.
            match self.send().and_then(|()| self.write_row(number)) {
                Ok(()) if std::mem::take(&mut fails) => {
                    tracing::info!("the database answers again");
                }
                Ok(()) => {}
                Err(error) => {
                    if !std::mem::replace(&mut fails, true) && error != DatabaseError::NotOwner {
                        tracing::error!(
                            %error,
                            "the database does not answer; nothing starts until it does"
                        );
                    }
                    self.connection = None;
                }
            }
        }
        self.lease.end();
        if let (Some(row), Some(connection)) = (&self.row, &self.connection) {
            let _ = row.remove(connection);
        }
    }

    fn write_row(&self, number: u64) -> Result<(), DatabaseError> {
        let (Some(row), Some(connection)) = (&self.row, &self.connection) else { return Ok(()) };
        match number % BEATS_PER_ROW {
            0 => row.write(connection).and_then(|()| row.remove_gone(connection)),
            _ => Ok(()),
        }
    }

    /// Sends one, and extends the lease.
    ///
    /// # Errors
    /// If it cannot be sent. Also if another node owns the store, or may own it: then the lease is lost.
    pub(super) fn send(&mut self) -> Result<(), DatabaseError> {
        let connection = match &self.connection {
            Some(connection) if !connection.is_closed() => connection,
            _ => {
                let (connection, history) = PostgresConnection::open(&self.clients)?;
                if history != self.history {
                    self.lease.lose("its database was promoted or replaced");
                    return Err(DatabaseError::NotOwner);
                }
                self.connection.insert(connection.with_patience(PATIENCE))
            }
        };
        let sent = boot_time();
        let tables: &dyn StoreConnection = connection;
        let parameters = [(&self.node).into(), self.epoch.into()];
        match tables.first("SELECT beat(?1, ?2)", &parameters, |row| row.number(0)) {
            Ok(_) => {
                self.lease.extend(sent);
                Ok(())
            }
            Err(error) => {
                let cause = failure(connection, error);
                if cause == DatabaseError::NotOwner {
                    self.lease.lose("another node has taken the store over");
                }
                Err(cause)
            }
        }
    }
}
