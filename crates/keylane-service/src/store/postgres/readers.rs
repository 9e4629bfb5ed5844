//! Reading connections of a store in PostgreSQL.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::client::Clients;
use super::connection::PostgresConnection;
use crate::store::connection::StoreConnection;
use crate::store::error::ReadError;

/// Maximum number of reading connections: a server has a bound for all of its clients.
const MAX_READERS: usize = 8;

/// Pool of reading connections. If the database gives fewer than the maximum, the readers take turns with those.
#[derive(Debug)]
pub(in crate::store) struct PostgresReaders {
    clients: Arc<Clients>,
    state: Mutex<ReaderState>,
    /// Notified when a reader has ended.
    left: Condvar,
}

#[derive(Default)]
struct ReaderState {
    idle: Vec<PostgresConnection>,
    /// Number of readers that have a place.
    active: usize,
    /// Number of these that were refused a connection, and wait for that of another one.
    refused: usize,
}

impl std::fmt::Debug for ReaderState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReaderState").field("active", &self.active).finish_non_exhaustive()
    }
}

/// Place of an active reader, which it leaves also by a panic.
struct Place<'a>(&'a PostgresReaders);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.state().active -= 1;
        // One may wait for this place, and another one for its connection.
        self.0.left.notify_all();
    }
}

impl PostgresReaders {
    pub(super) fn new(clients: Arc<Clients>) -> Self {
        PostgresReaders { clients, state: Mutex::default(), left: Condvar::new() }
    }

    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, ReaderState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `read` with a connection that no other reader uses meanwhile.
    ///
    /// # Errors
    /// If there is no connection, or `read` fails.
    pub(in crate::store) fn read<T>(
        &self,
        read: impl FnOnce(&dyn StoreConnection) -> Result<T, ReadError>,
    ) -> Result<T, ReadError> {
        let (place, idle) = self.enter();
        let connection = match idle.filter(|connection| !connection.is_closed()) {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let result = read(&connection);
        if connection.take_error().is_none() && !connection.is_closed() {
            self.state().idle.push(connection);
        }
        drop(place);
        result
    }

    /// Opens a connection for a reader with a place, or waits for that of another reader if the database gives no more.
    fn connect(&self) -> Result<PostgresConnection, ReadError> {
        let refusal = match PostgresConnection::open(&self.clients) {
            Err(error) if error.is_too_many_connections() => error,
            opened => return Ok(opened?.0),
        };
        let mut state = self.state();
        state.refused += 1;
        let result = loop {
            match state.idle.pop() {
                Some(connection) if connection.is_closed() => {}
                Some(connection) => break Ok(connection),
                // The others have no connection either.
                None if state.refused == state.active => break Err(refusal.into()),
                None => state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        };
        state.refused -= 1;
        result
    }

    fn enter(&self) -> (Place<'_>, Option<PostgresConnection>) {
        let mut state = self.state();
        while state.active >= MAX_READERS {
            state = self.left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.active += 1;
        let idle = state.idle.pop();
        (Place(self), idle)
    }
}
