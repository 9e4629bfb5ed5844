//! `/v1/leases`: protocol for remote workers in any language.

use std::time::Duration;

use axum::extract::{Path, Request, State as Shared};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};

use super::app_state::AppState;
use super::auth::Caller;
use super::extract::{Leaser, json, read_body, read_optional_body};
use super::problem::ApiError;
use super::token_kinds::{permit, worker_token};
use crate::engine::{LeaseOutcome, LeaseReport, MAX_CLAIM_WAIT, MAX_LEASES, WorkRequest};
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
pub(super) const MAX_RESULT_BYTES: usize = 16 * 1024 * 1024;

/// Maximum size of a failure, in bytes: its reason and the longest kept log, in any JSON encoding.
const MAX_FAILURE_BYTES: usize = 64 * 1024 + 6 * AttemptOutput::MAX_BYTES;

/// Checks a request for work.
pub(super) fn work_request(asked: ClaimRequest, caller: &Caller) -> Result<WorkRequest, ApiError> {
    let most = asked.max.unwrap_or(1);
    if !(1..=MAX_LEASES).contains(&most) {
        let why = format!("must be from 1 to {MAX_LEASES}");
        return Err(ApiError::new("invalid", format!("max: {why}")).at("/max", why));
    }
    let wait = Duration::from_millis(asked.wait_ms.unwrap_or(0)).min(MAX_CLAIM_WAIT);
    for kind in &asked.kinds {
        permit(caller, kind)?;
    }
    let token = worker_token(caller);
    Ok(WorkRequest { kinds: asked.kinds, most, wait, worker: asked.worker, token })
}

/// Returns the failure that a worker reports.
pub(super) fn failure(error: String, retry: Option<bool>, after_ms: Option<u64>) -> AttemptFailure {
    let failure = match retry.unwrap_or(true) {
        true => AttemptFailure::passing(error),
        false => AttemptFailure::lasting(error),
    };
    AttemptFailure { after: after_ms.map(Duration::from_millis), ..failure }
}

/// Checks a progress, which is at this place of the request.
pub(super) fn check_progress(fraction: f64, place: &str) -> Result<(), ApiError> {
    if (0.0..=1.0).contains(&fraction) {
        return Ok(());
    }
    let why = "it is a number from 0 to 1";
    Err(ApiError::new("invalid", format!("progress: {why}")).at(place.to_owned(), why))
}

async fn claim(
    Shared(state): Shared<AppState>,
    Leaser(caller): Leaser,
    request: Request,
) -> Result<Json<Claim>, ApiError> {
    let bytes = read_body(request.into_body(), 64 * 1024).await?;
    let request = work_request(json(&bytes)?, &caller)?;
    let leases = state.core.remote_workers.claim(request, &state.closing).await?;
    Ok(Json(Claim { leases }))
}

async fn heartbeat(
    Shared(state): Shared<AppState>,
    Leaser(caller): Leaser,
    Path(id): Path<String>,
    request: Request,
) -> Result<Json<HeartbeatResponse>, ApiError> {
    let HeartbeatRequest { progress } = read_optional_body(request).await?;
    progress.into_iter().try_for_each(|fraction| check_progress(fraction, "/progress"))?;
    let token = worker_token(&caller);
    let mut results = state.core.remote_workers.heartbeat(&[(progress, id)], &token)?;
    Ok(Json(results.remove(0)?))
}

async fn complete(
    Shared(state): Shared<AppState>,
    Leaser(caller): Leaser,
    Path(id): Path<String>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let bytes = read_body(request.into_body(), MAX_RESULT_BYTES).await?;
    let CompleteRequest { result, log } = super::extract::json_or_default(&bytes)?;
    let report = LeaseReport { id, outcome: LeaseOutcome::Succeeded(result), log };
    state.core.remote_workers.report_one(report, &worker_token(&caller)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn fail(
    Shared(state): Shared<AppState>,
    Leaser(caller): Leaser,
    Path(id): Path<String>,
    request: Request,
) -> Result<StatusCode, ApiError> {
    let bytes = read_body(request.into_body(), MAX_FAILURE_BYTES).await?;
    let FailRequest { error, retry, after_ms, log } = json(&bytes)?;
    let outcome = LeaseOutcome::Failed(failure(error, retry, after_ms));
    let report = LeaseReport { id, outcome, log };
    state.core.remote_workers.report_one(report, &worker_token(&caller)).await?;
    Ok(StatusCode::NO_CONTENT)
}
