//! `/v1/jobs`: actions of operators on jobs.

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, post};
use axum::{Json, Router};

use super::app_state::AppState;
use super::extract::{read_optional_body, read_optional_body_of};
use super::operator::OperatorCaller;
use super::problem::ApiError;
use super::response::{put_tag, steered};
use super::token_kinds::PermittedJob;
use crate::engine::RetrySelection;
use crate::wire::{CancelRequest, JobPatch, RetryRequest, RetrySubtask};

pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/jobs/{id}", delete(purge).patch(patch))
        .route("/v1/jobs/{id}/cancel", post(cancel))
        .route("/v1/jobs/{id}/pause", post(pause))
        .route("/v1/jobs/{id}/resume", post(resume))
        .route("/v1/jobs/{id}/retry", post(retry))
}

async fn cancel(
    State(state): State<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedJob(id): PermittedJob,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: CancelRequest = read_optional_body(request).await?;
    act.because(asked.reason.as_deref());
    act.with(serde_json::json!({"mode": asked.mode}));
    Ok(steered(&state.core.control.cancel_job(id, &asked, &act).await?))
}

async fn pause(
    State(state): State<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedJob(id): PermittedJob,
) -> Result<Response, ApiError> {
    Ok(Json(state.core.control.pause_job(id, true, &act).await?).into_response())
}

async fn resume(
    State(state): State<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedJob(id): PermittedJob,
) -> Result<Response, ApiError> {
    Ok(Json(state.core.control.pause_job(id, false, &act).await?).into_response())
}

async fn retry(
    State(state): State<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedJob(id): PermittedJob,
    request: Request,
) -> Result<Response, ApiError> {
    let bounds = &state.core.settings.bounds;
    let asked: RetryRequest = read_optional_body_of(request, bounds.body_bytes).await?;
    act.with(retried(&asked));
    let selection = RetrySelection::of(asked, bounds.payload_bytes)?;
    Ok(steered(&state.core.retries.retry(id, selection, &act).await?))
}

/// Returns what the audit log says of a retry: no payload, which may be secret.
fn retried(asked: &RetryRequest) -> serde_json::Value {
    let Some(chosen) = &asked.subtasks else {
        return serde_json::json!({"only": asked.only.unwrap_or_default()});
    };
    let numbers = |is_listed: fn(&RetrySubtask) -> bool| -> Vec<u32> {
        chosen.iter().filter(|one| is_listed(one)).map(|one| one.number).collect()
    };
    let (subtasks, edited) = (numbers(|_| true), numbers(|one| one.payload.is_some()));
    match edited.is_empty() {
        true => serde_json::json!({"subtasks": subtasks}),
        false => serde_json::json!({"subtasks": subtasks, "with_new_payload": edited}),
    }
}

async fn patch(
    State(state): State<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedJob(id): PermittedJob,
    request: Request,
) -> Result<Response, ApiError> {
    let wanted = request.headers().get(header::IF_MATCH).and_then(|tag| tag.to_str().ok());
    let version = match wanted.map(str::trim) {
        None => {
            let detail = "a change names the version that it is of: send `If-Match` with the job's `ETag`, or `*`";
            return Err(ApiError::new("precondition-required", detail));
        }
        Some("*") => None,
        Some(tag) => {
            let number = tag.trim_start_matches("W/").trim_matches('"').parse();
            Some(number.map_err(|_| {
                ApiError::new("stale", "`If-Match` is not an `ETag` of this server")
            })?)
        }
    };
    let asked: JobPatch = read_optional_body(request).await?;
    act.with(serde_json::json!({
        "name": asked.name,
        "weight": asked.weight,
        "labels": asked.labels,
    }));
    let job = state.core.control.patch_job(id, asked, version, &act).await?;
    let mut response = Json(&job).into_response();
    put_tag(&mut response, &job);
    Ok(response)
}

async fn purge(
    State(state): State<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedJob(id): PermittedJob,
) -> Result<StatusCode, ApiError> {
    state.core.control.purge_job(id, &act).await?;
    Ok(StatusCode::NO_CONTENT)
}
