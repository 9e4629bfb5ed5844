//! The routes, and what all connections share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::extract::ws::WebSocketUpgrade;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use keylane::{BuildError, Claims, Outcome, Pool};

use crate::connection;
use crate::handler::{ConnectionId, Handler};

/// How much of what may be under way at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Threads that handlers run on.
    pub workers: usize,
    /// Messages and requests in the pool, of all connections together.
    pub capacity: usize,
    /// Messages of one connection that were read and have not been handled. At this bound its socket is
    /// not read.
    pub messages: usize,
    /// Answers to one connection that its peer has not taken. At this bound neither.
    pub answers: usize,
    /// The longest message, in bytes; a longer one ends its connection.
    pub message_size: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { workers: 4, capacity: 4096, messages: 8, answers: 8, message_size: 64 * 1024 }
    }
}

/// What the connections share.
#[derive(Debug)]
pub struct Server<H> {
    pub(crate) pool: Pool<ConnectionId>,
    pub(crate) handler: H,
    pub(crate) limits: Limits,
    /// The number of the next connection. No number is used twice, so that no late task of one
    /// connection is in line with another one.
    next: AtomicU64,
}

impl<H: Handler> Server<H> {
    /// A server that does not listen yet.
    ///
    /// # Errors
    ///
    /// If a limit is out of its range.
    pub fn new(handler: H, limits: Limits) -> Result<Arc<Self>, BuildError> {
        let pool = Pool::builder()
            .workers(limits.workers)
            .capacity(limits.capacity)
            .capacity_per_key(limits.messages)
            .build()?;
        Ok(Arc::new(Server { pool, handler, limits, next: AtomicU64::new(1) }))
    }

    /// The routes: `/messages` is a WebSocket, `/request?...` a request without order.
    pub fn routes(self: &Arc<Self>) -> Router {
        Router::new()
            .route("/messages", get(open::<H>))
            .route("/request", get(request::<H>))
            .with_state(self.clone())
    }

    /// The pool, to be looked into.
    pub fn pool(&self) -> &Pool<ConnectionId> {
        &self.pool
    }
}

async fn open<H: Handler>(
    State(server): State<Arc<Server<H>>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let connection = server.next.fetch_add(1, Ordering::Relaxed);
    upgrade
        .max_message_size(server.limits.message_size)
        .on_upgrade(move |socket| connection::serve(server, connection, socket))
}

/// Runs beside the messages of all connections, bounded by the pool like them.
async fn request<H: Handler>(
    State(server): State<Arc<Server<H>>>,
    RawQuery(question): RawQuery,
) -> Result<String, StatusCode> {
    let shared = server.clone();
    let work = move || shared.handler.request(question.as_deref().unwrap_or_default());
    let handle = server.pool.task(Claims::none()).submit_async(work).await;
    let handle = handle.map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    let answer = handle.await.ok().and_then(Outcome::ok);
    answer.ok_or(StatusCode::INTERNAL_SERVER_ERROR)
}
