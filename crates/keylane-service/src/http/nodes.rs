//! `/v1/nodes`: the servers that share the store.

use axum::extract::State as Shared;
use axum::routing::get;
use axum::{Json, Router};

use super::app_state::AppState;
use super::blocking::blocking;
use super::extract::Reader;
use super::problem::ApiError;
use crate::wire::NodeList;

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/nodes", get(list))
}

async fn list(Shared(state): Shared<AppState>, _: Reader) -> Result<Json<NodeList>, ApiError> {
    let items = blocking(&state.core, |core| core.query.nodes()).await?;
    Ok(Json(NodeList { items }))
}
