//! Places for connections: bounded in number, by client and by what they are for, with a reserve.
//!
//! | bound | default | beyond it |
//! |---|---|---|
//! | `most_connections` | 4096 | the reserve; then a client waits in the system's line |
//! | the reserve, a 16th of these and at most 64, on top of them | 64 | |
//! | `max_connections_per_client`, by address | none | 429, and the connection is closed |
//! | `most_websockets` | 2048 | 429, before the upgrade |
//! | `max_event_streams` | 1024 | 429 |
//!
//! A connection of the reserve answers one request and is closed. It answers what has no need of a token (`/livez`,
//! `/readyz`) and what an operator asks, and no stream: so whatever holds the other places, a probe is answered and an
//! operator can look, cancel and stop.
//!
//! A WebSocket keeps the place of its connection.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::http::Extensions;
use axum::http::request::Parts;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::State;
use super::problem::Refusal;
use super::serve::Settings;

/// The reserve of a server with this many connections.
fn reserve(most: usize) -> usize {
    (most / 16).min(64)
}

/// All places of a server.
#[derive(Debug)]
pub(super) struct Places {
    /// The ordinary ones and the reserve.
    all: Arc<Semaphore>,
    /// How many of `all` are the reserve.
    reserve: usize,
    per_client: Option<usize>,
    /// Connections of each address.
    clients: Mutex<HashMap<IpAddr, usize>>,
}

/// Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    client: Option<IpAddr>,
    /// It is of the reserve.
    pub(super) is_reserve: bool,
    _permit: OwnedSemaphorePermit,
}

/// The place of its connection, in a request.
#[derive(Clone, Debug)]
pub(super) struct OfConnection(pub(super) Arc<Place>);

impl Places {
    pub(super) fn new(settings: &Settings) -> Arc<Self> {
        let most = settings.most_connections.max(1);
        let reserve = reserve(most);
        Arc::new(Places {
            all: Arc::new(Semaphore::new(most + reserve)),
            reserve,
            per_client: settings.max_connections_per_client,
            clients: Mutex::default(),
        })
    }

    /// A permit, when there is one. It becomes a place when it is known who connects.
    pub(super) async fn permit(&self) -> OwnedSemaphorePermit {
        let permit = Arc::clone(&self.all).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    }

    /// The place of a connection from this address; none if the client has as many as it may have.
    pub(super) fn take(
        self: &Arc<Self>,
        permit: OwnedSemaphorePermit,
        client: Option<IpAddr>,
    ) -> Option<Place> {
        let is_reserve = self.all.available_permits() < self.reserve;
        // Counted only where it is bounded.
        let client = client.filter(|_| self.per_client.is_some());
        if let (Some(client), Some(most)) = (client, self.per_client) {
            let mut clients = self.clients();
            let count = clients.entry(client).or_default();
            if *count >= most {
                return None;
            }
            *count += 1;
        }
        Some(Place { places: Arc::clone(self), client, is_reserve, _permit: permit })
    }

    fn clients(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(client) = self.client else { return };
        let mut clients = self.places.clients();
        if let Some(count) = clients.get_mut(&client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&client);
            }
        }
    }
}

/// Streams of one sort: WebSockets, or events.
#[derive(Debug, Default)]
pub(super) struct Streams {
    count: AtomicUsize,
}

/// A place among streams. Given back when it is dropped.
#[derive(Debug)]
pub(super) struct Follows(Arc<Streams>);

impl Streams {
    fn take(self: &Arc<Self>, most: usize) -> Option<Follows> {
        let take = |count: usize| (count < most).then_some(count + 1);
        let taken = self.count.fetch_update(Relaxed, Relaxed, take);
        taken.ok().map(|_| Follows(Arc::clone(self)))
    }
}

impl Drop for Follows {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Relaxed);
    }
}

/// A place for a stream of events.
///
/// Errors if there are as many as may be, or the connection is of the reserve.
pub(super) fn follow_events(parts: &Parts, state: &State) -> Result<Follows, Refusal> {
    let most = state.settings.max_event_streams;
    stream(&parts.extensions, &state.event_streams, most, "event streams (`max_event_streams`)")
}

/// A place for a WebSocket.
///
/// Errors as [`follow_events`].
pub(super) fn follow_by_websocket(parts: &Parts, state: &State) -> Result<Follows, Refusal> {
    let most = state.settings.most_websockets;
    stream(&parts.extensions, &state.websockets, most, "WebSockets (`most_websockets`)")
}

fn stream(
    extensions: &Extensions,
    streams: &Arc<Streams>,
    most: usize,
    what: &str,
) -> Result<Follows, Refusal> {
    let busy =
        |what: String| Refusal { retry_after: Some(5), ..Refusal::new("too-many-requests", what) };
    if extensions.get::<OfConnection>().is_some_and(|place| place.0.is_reserve) {
        return Err(busy(
            "all connections are taken, and the reserve is for short requests".into(),
        ));
    }
    streams.take(most).ok_or_else(|| busy(format!("there are {most} {what} already")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(most: usize, per_client: Option<usize>) -> Arc<Places> {
        Places::new(&Settings {
            most_connections: most,
            max_connections_per_client: per_client,
            ..Settings::default()
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
        // Nothing is kept of clients that have gone, and what was refused has no place.
        assert_eq!(places.clients().len(), 1);
        assert_eq!(places.all.available_permits(), 34 - 1);
    }
}
