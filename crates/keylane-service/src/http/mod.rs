//! HTTP interface of the service: `/v1` for programs, `/` for the dashboard.
//!
//! Handlers are thin: they decode a request, call the engine, and encode the answer. `middleware.rs` has
//! the checks before every handler, and `problem.rs` the status code of every error.

mod app_state;
mod audit;
mod audit_layer;
mod auth;
mod backup;
mod batch;
mod blocking;
mod body_timeout;
mod caller_connections;
mod connection_limits;
mod event_stream;
mod events;
mod extract;
mod former_leases;
mod forward;
mod forwarded;
#[cfg(any(test, fuzzing))]
mod fuzz;
mod handshake;
mod history;
mod idempotent_action;
mod job_control;
mod job_path;
mod jobs;
mod keys;
mod kinds;
mod lease_batches;
mod lease_transport;
mod leases;
mod logs;
mod middleware;
mod nodes;
mod openapi;
mod operator;
mod owner_client;
mod page_query;
mod permission;
mod pinned_certificate;
mod problem;
mod request_headers;
mod response;
mod results;
mod router;
mod schedules;
mod schemas;
mod send_queue;
mod serve;
mod server_routes;
mod settings;
mod startup_responses;
mod submit;
mod takeover;
mod tenants;
mod tls;
mod token_guessing;
mod token_kinds;
mod ui;
mod webhooks;
mod workers;
mod write_timeout;
mod ws;
mod ws_errors;

pub use auth::{Caller, Role, Tokens, TokensError};
#[cfg(any(test, fuzzing))]
pub use fuzz::{fuzz_submission, fuzz_websocket};
pub use router::routes;
pub use serve::{HttpServer, StartingServer};
pub use settings::{HttpSettings, ServeError};
pub use tls::{TlsError, TlsIdentity};
