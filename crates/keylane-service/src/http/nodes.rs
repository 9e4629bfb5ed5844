//! `/v1/nodes`: the servers that share the store, and the draining of one.

use axum::extract::State as Shared;
use axum::http::request::Parts;
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;
use serde_json::json;

use super::app_state::AppState;
use super::auth::Caller;
use super::blocking::blocking;
use super::extract::{Reader, query};
use super::operator::OperatorCaller;
use super::problem::ApiError;
use super::token_kinds::permit_all;
use crate::wire::{NodeList, NodeView};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/nodes", get(list))
}

/// Routes for operators.
pub(super) fn operator_router() -> Router<AppState> {
    Router::new().route("/v1/nodes/drain", post(drain)).route("/v1/nodes/resume", post(resume))
}

/// Address of a server, which has characters that do not fit into a path.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeQuery {
    address: String,
}

async fn list(Shared(state): Shared<AppState>, _: Reader) -> Result<Json<NodeList>, ApiError> {
    let items = blocking(&state.core, |core| core.query.nodes()).await?;
    Ok(Json(NodeList { items }))
}

async fn drain(
    Shared(state): Shared<AppState>,
    operator: OperatorCaller,
    Extension(caller): Extension<Caller>,
    parts: Parts,
) -> Result<Json<NodeView>, ApiError> {
    set_drained(&state, &operator, &caller, &parts, true).await
}

async fn resume(
    Shared(state): Shared<AppState>,
    operator: OperatorCaller,
    Extension(caller): Extension<Caller>,
    parts: Parts,
) -> Result<Json<NodeView>, ApiError> {
    set_drained(&state, &operator, &caller, &parts, false).await
}

async fn set_drained(
    state: &AppState,
    OperatorCaller(act): &OperatorCaller,
    caller: &Caller,
    parts: &Parts,
    drained: bool,
) -> Result<Json<NodeView>, ApiError> {
    permit_all(caller, "a server")?;
    let NodeQuery { address } = query(parts)?;
    act.with(json!({"address": address}));
    let asked = address.clone();
    let view = blocking(&state.core, move |core| core.control.drain_node(&asked, drained)).await?;
    // This server would learn it from the database some seconds later.
    if let Some(own) = state.node.as_ref().filter(|own| *own.address().url == *address) {
        own.set_drained(drained);
    }
    Ok(Json(view))
}
