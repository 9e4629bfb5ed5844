//! Heartbeats of the owner of a store, and its lease: the time up to which it may start work.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::client::{Clients, DatabaseError};
use super::connection::PostgresConnection;
use super::nodes::{NodeRow, Nonce};
use super::ownership::{LEASE, boot_time};
use crate::store::store_dependencies::{JoinWriter, Outside};

/// Interval between two heartbeats.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time without an answer to a heartbeat after which the server is asked whether it executes it: a lost answer should not end the lease.
const PATIENCE: Duration = Duration::from_secs(1);

/// Number of heartbeats after which the owner writes its row again, with its address and certificate.
const BEATS_PER_ROW: u64 = 5;

/// Time up to which a node may start work.
#[derive(Debug, Default)]
pub(in crate::store) struct Lease {
    /// Milliseconds since the start of the machine. Relaxed: it passes no data.
    until: AtomicU64,
    /// Whether another node has taken the store over. Relaxed: it passes no data.
    is_lost: AtomicBool,
}

impl Lease {
    /// Returns whether the node may start work now.
    pub(in crate::store) fn holds(&self) -> bool {
        boot_time().as_millis() < self.until.load(Ordering::Relaxed).into()
    }

    /// Returns whether another node has taken the store over.
    pub(in crate::store) fn is_lost(&self) -> bool {
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Extends the lease from a heartbeat that began to be sent at `sent`.
    fn extend(&self, sent: Duration) {
        let until = u64::try_from((sent + LEASE).as_millis()).unwrap_or(u64::MAX);
        self.until.store(until, Ordering::Relaxed);
    }

    /// Ends the lease.
    fn end(&self) {
        self.until.store(0, Ordering::Relaxed);
    }
}

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
    pub(super) fn start(
        clients: Arc<Clients>,
        node: Nonce,
        row: Option<NodeRow>,
        lease: Arc<Lease>,
        outside: &Outside,
    ) -> Result<Self, DatabaseError> {
        let mut beats = Beats { clients, node, row, lease, connection: None };
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

struct Beats {
    clients: Arc<Clients>,
    node: Nonce,
    /// Row by which the other nodes reach this one.
    row: Option<NodeRow>,
    lease: Arc<Lease>,
    connection: Option<PostgresConnection>,
}

impl Beats {
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

    fn send(&mut self) -> Result<(), DatabaseError> {
        let connection = match &self.connection {
            Some(connection) if !connection.is_closed() => connection,
            _ => {
                let (connection, _) = PostgresConnection::open(&self.clients)?;
                self.connection.insert(connection.with_patience(PATIENCE))
            }
        };
        let sent = boot_time();
        // Only of the owner: after a takeover nothing is written, and the lease ends.
        let sql = "INSERT INTO heartbeat (node, number)
                   SELECT node, 1 FROM term WHERE node = ?1
                   ON CONFLICT (node) DO UPDATE SET number = heartbeat.number + 1";
        match connection.change(sql, &[(&self.node).into()])? {
            0 => {
                self.lease.end();
                self.lease.is_lost.store(true, Ordering::Relaxed);
                Err(DatabaseError::NotOwner)
            }
            _ => {
                self.lease.extend(sent);
                Ok(())
            }
        }
    }
}
