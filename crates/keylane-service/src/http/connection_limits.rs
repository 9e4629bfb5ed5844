//! Connection limits: in total, per client and per purpose, with a reserve for probes and
//! operators.
//!
//! | bound | default | beyond it |
//! |---|---|---|
//! | `max_connections` | 4096 | the reserve; then the client waits in the system's backlog |
//! | the reserve, a 16th of these and at most 64, in addition to them | 64 | |
//! | `max_connections_per_client`, by address | none | 429, and the connection is closed |
//! | `max_websockets` | 2048 | 429, before the upgrade |
//! | `max_event_streams` | 1024 | 429 |
//!
//! A connection of the reserve answers one request and is closed. It serves routes without
//! authentication (`/livez`, `/readyz`) and operators' requests, and no streams. So whatever
//! occupies the other connections, a probe is answered and an operator can inspect, cancel and
//! stop.
//!
//! A WebSocket keeps the permit of its connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::Extensions;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::problem::ApiError;
use super::settings::HttpSettings;

/// Returns the size of the reserve for this maximum.
fn reserve(most: usize) -> usize {
    (most / 16).min(64)
}

/// Connection limits of a server.
#[derive(Debug)]
pub(super) struct ConnectionLimits {
    /// Permits for ordinary connections and the reserve.
    all: Arc<Semaphore>,
    /// Number of permits in `all` that are the reserve.
    reserve: usize,
    per_client: Option<usize>,
    /// Number of connections from each address.
    clients: Mutex<HashMap<IpAddr, usize>>,
}

/// Permit of one connection, released on drop.
#[derive(Debug)]
pub(super) struct ConnectionPermit {
    places: Arc<ConnectionLimits>,
    /// Client whose connections it counts among.
    client: Mutex<Option<IpAddr>>,
    /// Whether the permit belongs to the reserve.
    pub(super) is_reserve: bool,
    _permit: OwnedSemaphorePermit,
}

/// Permit of the connection, as an extension of its requests.
#[derive(Clone, Debug)]
pub(super) struct SharedConnectionPermit(pub(super) Arc<ConnectionPermit>);

impl ConnectionLimits {
    pub(super) fn new(settings: &HttpSettings) -> Arc<Self> {
        let most = settings.max_connections.max(1);
        let reserve = reserve(most);
        Arc::new(ConnectionLimits {
            all: Arc::new(Semaphore::new(most + reserve)),
            reserve,
            per_client: settings.max_connections_per_client,
            clients: Mutex::default(),
        })
    }

    /// Waits for a permit, before the client's address is known.
    pub(super) async fn permit(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.all).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    /// Turns a permit into that of a client's connection, or returns `None` if the client has its
    /// maximum.
    pub(super) fn take(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        client: Option<IpAddr>,
    ) -> Option<ConnectionPermit> {
        let is_reserve = self.all.available_permits() < self.reserve;
        // Counted only if there is a limit per client.
        let client = client.filter(|_| self.per_client.is_some());
        if let (Some(client), Some(most)) = (client, self.per_client) {
            let mut clients = self.clients();
            let count = clients.entry(client).or_default();
            if *count >= most {
                return None;
            }
            *count += 1;
        }
        let client = Mutex::new(client);
        Some(ConnectionPermit { places: Arc::clone(self), client, is_reserve, _permit: permit })
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionPermit {
    /// Counts the connection no longer among those of its client.
    pub(super) fn forget_client(&self) {
        let client = self.client.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(client) = client else { return };
        let mut clients = self.places.clients();
        if let Some(count) = clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&client);
            }
        }
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.forget_client();
    }
}

/// Number of open streams of one type: WebSockets or event streams.
#[derive(Debug, Default)]
pub(super) struct StreamCount {
    count: AtomicUsize,
}

/// Permit of a stream, released on drop.
#[derive(Debug)]
pub(super) struct StreamPermit(Arc<StreamCount>);

impl StreamCount {
    fn take(self: &Arc<Self>, most: usize) -> Option<StreamPermit> {
        let take = |count: usize| (count < most).then_some(count + 1);
        let taken = self.count.fetch_update(Relaxed, Relaxed, take);
        taken.ok().map(|_| StreamPermit(Arc::clone(self)))
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
    }
}

/// Takes a permit for an event stream.
///
/// Fails at the maximum, and on a connection of the reserve.
pub(super) fn follow_events(
    extensions: &Extensions,
    streams: &Arc<StreamCount>,
    max: usize,
) -> Result<StreamPermit, ApiError> {
    stream(extensions, streams, max, "event streams (`max_event_streams`)")
}

/// Takes a permit for a WebSocket.
///
/// Fails at the maximum, and on a connection of the reserve.
pub(super) fn follow_by_websocket(
    extensions: &Extensions,
    streams: &Arc<StreamCount>,
    max: usize,
) -> Result<StreamPermit, ApiError> {
    stream(extensions, streams, max, "WebSockets (`max_websockets`)")
}

fn stream(
    extensions: &Extensions,
    streams: &Arc<StreamCount>,
    most: usize,
    what: &str,
) -> Result<StreamPermit, ApiError> {
    let busy = |what: String| ApiError {
        retry_after: Some(5),
        ..ApiError::new("too-many-requests", what)
    };
    if extensions.get::<SharedConnectionPermit>().is_some_and(|place| place.0.is_reserve) {
        return Err(busy(
            "all connections are taken, and the reserve is for short requests".into(),
        ));
    }
    streams.take(most).ok_or_else(|| busy(format!("the maximum of {most} {what} is reached")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(most: usize, per_client: Option<usize>) -> Arc<ConnectionLimits> {
        ConnectionLimits::new(&HttpSettings {
            max_connections: most,
            max_connections_per_client: per_client,
            ..HttpSettings::default()
        })
    }

    #[tokio::test]
    async fn the_last_places_are_the_reserve() {
        let places = places(32, None);
        let mut taken = Vec::new();
        for number in 0..34 {
            let place = places.take(places.permit().await, None).unwrap();
            assert_eq!(place.is_reserve, number >= 32, "{number}");
            taken.push(place);
        }
        assert_eq!(places.all.available_permits(), 0);
        drop(taken);
        let place = places.take(places.permit().await, None).unwrap();
        assert!(!place.is_reserve);
    }

    #[tokio::test]
    async fn a_client_has_no_more_than_it_may() {
        let places = places(32, Some(2));
        let [one, other] = [[127, 0, 0, 1], [127, 0, 0, 2]].map(|ip| Some(IpAddr::from(ip)));
        let first = places.take(places.permit().await, one).unwrap();
        let _second = places.take(places.permit().await, one).unwrap();
        assert!(places.take(places.permit().await, one).is_none());
        assert!(places.take(places.permit().await, other).is_some());
        drop(first);
        assert!(places.take(places.permit().await, one).is_some());
        // Entries of disconnected clients are removed, and a refused connection holds no permit.
        assert_eq!(places.clients().len(), 1);
        assert_eq!(places.all.available_permits(), 34 - 1);
    }
}
