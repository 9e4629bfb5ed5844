//! `/v1/leases`: protocol for remote workers in any language.

use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::extract::{Path, Request, State as Shared};
use axum::http::StatusCode;
use axum::routing::post;

use super::app_state::AppState;
use super::extract::{Leaser, json, read_body, read_optional_body};
use super::problem::ApiError;
use crate::engine::{MAX_CLAIM_WAIT, MAX_LEASES};
use crate::handle::{AttemptFailure, AttemptOutput};
use crate::wire::{
    Claim, ClaimRequest, CompleteRequest, FailRequest, HeartbeatRequest, HeartbeatResponse,
};

pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/leases", post(claim))
        .route("/v1/leases/{id}/heartbeat", post(heartbeat))
        .route("/v1/leases/{id}/complete", post(complete))
        .route("/v1/leases/{id}/fail", post(fail))
}

/// Maximum size of a result, in bytes: equal to the maximum for handlers on the server.
const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;

/// Maximum size of a failure, in bytes: its reason and the longest kept log, in any JSON encoding.
const MAX_FAILURE_BYTES: usize = 64 * 1024 + 6 * AttemptOutput::MAX_BYTES;

async fn claim(
    Shared(state): Shared<AppState>,
    _: Leaser,
    request: Request,
) -> Result<Json<Claim>, ApiError> {
    let bytes = read_body(request.into_body(), 64 * 1024).await?;
    let asked: ClaimRequest = json(&bytes)?;
    let most = asked.max.unwrap_or(1);
    if !(1..=MAX_LEASES).contains(&most) {
        let why = format!("must be from 1 to {MAX_LEASES}");
        return Err(ApiError::new("invalid", format!("max: {why}")).at("/max", why));
    }
    let wait = Duration::from_millis(asked.wait_ms.unwrap_or(0)).min(MAX_CLAIM_WAIT);
    let leases = state
        .core
        .remote_workers
        .claim(&asked.kinds, most, wait, asked.worker, &state.closing)
        .await?;
    Ok(Json(Claim { leases }))
}

async fn heartbeat(
    Shared(state): Shared<AppState>,
    _: Leaser,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<HeartbeatResponse>, ApiError> {
    let _: HeartbeatRequest = read_optional_body(request).await?;
    Ok(Json(state.core.remote_workers.heartbeat(&id)?))
}

async fn complete(
    Shared(state): Shared<AppState>,
    _: Leaser,
    Path(id): Path<String>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let bytes = read_body(request.into_body(), MAX_RESULT_BYTES).await?;
    let asked: CompleteRequest = super::extract::json_or_default(&bytes)?;
    state.core.remote_workers.complete(&id, asked.result, asked.log).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn fail(
    Shared(state): Shared<AppState>,
    _: Leaser,
    Path(id): Path<String>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let bytes = read_body(request.into_body(), MAX_FAILURE_BYTES).await?;
    let asked: FailRequest = json(&bytes)?;
    let failure = if asked.retry.unwrap_or(true) {
        AttemptFailure::passing(asked.error)
    } else {
        AttemptFailure::lasting(asked.error)
    };
    let failure = AttemptFailure { after: asked.after_ms.map(Duration::from_millis), ..failure };
    state.core.remote_workers.fail(&id, failure, asked.log).await?;
    Ok(StatusCode::NO_CONTENT)
}
