//! `/v1/leases/former`, for the servers alone: ends the leases that a former process of a server had. `engine/former_leases.rs` has the
//! protocol.

use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};

use super::app_state::AppState;
use super::blocking::blocking;
use super::extract::{Leaser, json, read_body};
use super::problem::ApiError;
use super::token_kinds::worker_token;
use crate::lease_runner::{FORMER, FormerLeases, NextFence};

pub(super) fn router() -> Router<AppState> {
    Router::new().route(FORMER, post(end))
}

/// Maximum size of a request, in bytes.
const MAX_BYTES: usize = 16 * 1024;

async fn end(
    Shared(state): Shared<AppState>,
    Leaser(caller): Leaser,
    request: Request,
) -> Result<Response, ApiError> {
    // For others, there is no such path.
    if !caller.is_node() {
        return Ok(StatusCode::NOT_FOUND.into_response());
    }
    let bytes = read_body(request.into_body(), MAX_BYTES).await?;
    let FormerLeases { worker, below } = json(&bytes)?;
    let workers = &state.core.remote_workers;
    let next_fence = workers.next_fence();
    if let Some(below) = below
        && !is_shared(&state, &worker).await?
    {
        let ended = workers.end_former_leases(&worker, &worker_token(&caller), below).await?;
        if ended > 0 {
            tracing::info!(worker, ended, "a server has started again; its former leases ended");
        }
    }
    Ok(Json(NextFence { next_fence }).into_response())
}

/// Returns whether several servers have this address. Then it is not known which of them has the leases.
async fn is_shared(state: &AppState, address: &str) -> Result<bool, ApiError> {
    let nodes = blocking(&state.core, |core| core.query.nodes()).await?;
    Ok(nodes.iter().filter(|node| node.address == address).count() > 1)
}
