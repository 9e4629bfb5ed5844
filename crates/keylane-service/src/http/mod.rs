//! The service over HTTP: `/v1` for programs, `/` for people.
//!
//! Handlers are thin: they take a request apart, ask the engine, and put the answer together. What a request
//! must pass before is in `guard.rs`, which status code a reason gets in `problem.rs`.

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

/// What handlers share.
#[derive(Clone, Debug)]
struct State {
    core: Arc<Core>,
    settings: Arc<Settings>,
    /// The tokens, which may be replaced.
    tokens: auth::Current<Tokens>,
    /// Told when connections that stay open are to end.
    closing: tokio_util::sync::CancellationToken,
    /// The same for those of one caller.
    admitted: admitted::Admitted,
    /// Those connections.
    streams: tokio_util::task::TaskTracker,
    /// How many of them are WebSockets.
    websockets: Arc<places::Streams>,
    /// How many send events.
    event_streams: Arc<places::Streams>,
}

/// All routes, guarded.
fn router(state: State) -> Router {
    let settings = &state.settings;
    let guard = guard::Guard::new(state.tokens.clone(), settings.hosts.clone(), settings.read_only);
    let guard = Arc::new(guard);
    // By these operators act, and each is written down.
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
    // Who looks whether the server lives, or loads the page that asks for a token, has none yet.
    Router::new()
        .merge(guarded)
        .merge(server::open_router())
        .merge(ui::router())
        .with_state(state)
        .layer(from_fn_with_state(guard, guard::number))
}

/// The routes of a service without a server, for tests and for those who have a server of their own.
///
/// It has the guards of [`Settings`], and none of a server's bounds on connections and time.
pub fn routes(service: &Service, settings: Settings) -> Router {
    router(State::new(service, settings))
}

impl State {
    fn new(service: &Service, settings: Settings) -> Self {
        let tokens = auth::Current::new(settings.tokens.clone());
        let closing = tokio_util::sync::CancellationToken::new();
        State {
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
