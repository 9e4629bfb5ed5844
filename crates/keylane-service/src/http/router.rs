//! Routes of the service, behind the checks of every request.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;

use super::app_state::AppState;
use super::middleware::{self, RequestRules};
use super::settings::HttpSettings;
use super::{
    audit, audit_layer, backup, batch, body_timeout, events, former_leases, history, job_control,
    jobs, keys, kinds, lease_batches, leases, logs, nodes, results, schedules, server_routes,
    submit, tenants, ui, webhooks, workers, ws,
};
use crate::Service;

/// Builds all routes with their guards.
pub(super) fn router(state: AppState) -> Router {
    let settings = &state.settings;
    let guard = RequestRules::new(state.tokens.clone(), settings.hosts.clone(), settings.read_only);
    let guard = guard.of_node(state.node.clone());
    let guard = Arc::new(guard);
    // Operators' actions, each recorded in the audit log.
    let operated = Router::new()
        .merge(job_control::router())
        .merge(keys::operator_router())
        .merge(kinds::operator_router())
        .merge(schedules::operator_router())
        .merge(webhooks::operator_router())
        .merge(backup::router())
        .merge(nodes::operator_router())
        .layer(from_fn_with_state(state.clone(), audit_layer::write_down));
    let guarded = Router::new()
        .merge(operated)
        .merge(audit::router())
        .merge(jobs::router())
        .merge(submit::router())
        .merge(results::router())
        .merge(logs::router())
        .merge(batch::router())
        .merge(keys::router())
        .merge(kinds::router())
        .merge(leases::router())
        .merge(lease_batches::router())
        .merge(former_leases::router())
        .merge(workers::router())
        .merge(nodes::router())
        .merge(schedules::router())
        .merge(tenants::router())
        .merge(webhooks::router())
        .merge(events::router())
        .merge(history::router())
        .merge(ws::router())
        .merge(server_routes::router())
        .layer(from_fn_with_state(Arc::clone(&guard), middleware::admit))
        .layer(from_fn_with_state(Arc::clone(settings), body_timeout::bound));
    // Probes, and the page that asks for a token, come without one.
    Router::new()
        .merge(guarded)
        .merge(server_routes::open_router())
        .merge(ui::router())
        .with_state(state)
        .layer(from_fn_with_state(guard, middleware::number))
}

/// Returns the routes of a service without a server, for tests and for embedding in another server.
///
/// They have the guards of [`HttpSettings`], and none of a server's limits on connections and time.
pub fn routes(service: &Service, settings: HttpSettings) -> Router {
    router(AppState::new(service, settings, None))
}
