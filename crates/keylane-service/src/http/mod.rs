//! HTTP interface of the service: `/v1` for programs, `/` for the dashboard.
//!
//! Handlers are thin: they decode a request, call the engine, and encode the answer. `guard.rs` has
//! the checks before every handler, and `problem.rs` the status code of every error.

mod admitted;
mod again;
mod audit;
mod auth;
mod batch;
mod events;
mod extract;
mod guard;
mod guessing;
mod handshake;
mod jobs;
mod keys;
mod leases;
mod logs;
mod openapi;
mod outbox;
mod pause;
mod places;
mod problem;
mod results;
mod schedules;
mod schemas;
mod serve;
mod server;
mod takeover;
mod tls;
mod ui;
mod unread;
mod ws;
mod ws_errors;

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;

use crate::Service;
use crate::engine::Core;

pub use auth::{Caller, Role, Tokens, TokensError};
pub use serve::{ServeError, Server, Settings};
pub use tls::{Tls, TlsError};

/// State shared by the handlers.
#[derive(Clone, Debug)]
struct AppState {
    core: Arc<Core>,
    settings: Arc<Settings>,
    /// Tokens, which a reload replaces.
    tokens: auth::Current<Tokens>,
    /// Cancelled when long-lived connections are to end.
    closing: tokio_util::sync::CancellationToken,
    /// Long-lived connections by caller, to end those of a revoked token.
    admitted: admitted::Admitted,
    /// Tracker of the long-lived connections.
    streams: tokio_util::task::TaskTracker,
    /// Number of open WebSockets.
    websockets: Arc<places::Streams>,
    /// Number of open event streams.
    event_streams: Arc<places::Streams>,
}

/// Builds all routes with their guards.
fn router(state: AppState) -> Router {
    let settings = &state.settings;
    let guard = guard::Guard::new(state.tokens.clone(), settings.hosts.clone(), settings.read_only);
    let guard = Arc::new(guard);
    // Operators' actions, each recorded in the audit log.
    let operated = Router::new()
        .merge(jobs::operator_router())
        .merge(keys::operator_router())
        .merge(schedules::operator_router())
        .layer(from_fn_with_state(state.clone(), audit::write_down));
    let guarded = Router::new()
        .merge(operated)
        .merge(audit::router())
        .merge(jobs::router())
        .merge(batch::router())
        .merge(keys::router())
        .merge(leases::router())
        .merge(schedules::router())
        .merge(events::router())
        .merge(ws::router())
        .merge(server::router())
        .layer(from_fn_with_state(Arc::clone(&guard), guard::admit))
        .layer(from_fn_with_state(Arc::clone(settings), pause::bound));
    // Probes, and the page that asks for a token, come without one.
    Router::new()
        .merge(guarded)
        .merge(server::open_router())
        .merge(ui::router())
        .with_state(state)
        .layer(from_fn_with_state(guard, guard::number))
}

/// Returns the routes of a service without a server, for tests and for embedding in another server.
///
/// They have the guards of [`Settings`], and none of a server's limits on connections and time.
pub fn routes(service: &Service, settings: Settings) -> Router {
    router(AppState::new(service, settings))
}

impl AppState {
    fn new(service: &Service, settings: Settings) -> Self {
        let tokens = auth::Current::new(settings.tokens.clone());
        let closing = tokio_util::sync::CancellationToken::new();
        AppState {
            core: Arc::clone(&service.core),
            admitted: admitted::Admitted::new(closing.clone(), tokens.clone()),
            tokens,
            settings: Arc::new(settings),
            closing,
            streams: tokio_util::task::TaskTracker::new(),
            websockets: Arc::default(),
            event_streams: Arc::default(),
        }
    }
}
