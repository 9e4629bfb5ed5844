//! `/v1/kinds`: kinds of jobs, and the actions of operators on one.

use axum::extract::{Path, Request, State as Shared};
use axum::routing::{get, patch, post};
use axum::{Json, Router};

use super::app_state::AppState;
use super::extract::{Reader, read_optional_body};
use super::operator::OperatorCaller;
use super::problem::ApiError;
use super::token_kinds::PermittedKind;
use crate::engine::KindCommand;
use crate::wire::{KindList, KindPatch, KindSetting, KindView, PauseKindRequest, ResetKindRequest};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/kinds", get(list)).route("/v1/kinds/{kind}", get(show))
}

/// Routes for operators.
pub(super) fn operator_router() -> Router<AppState> {
    Router::new()
        .route("/v1/kinds/{kind}", patch(change))
        .route("/v1/kinds/{kind}/pause", post(pause))
        .route("/v1/kinds/{kind}/resume", post(resume))
        .route("/v1/kinds/{kind}/reset", post(reset))
}

async fn list(Shared(state): Shared<AppState>, _: Reader) -> Json<KindList> {
    Json(KindList { items: state.core.query.kind_views() })
}

async fn show(
    Shared(state): Shared<AppState>,
    _: Reader,
    Path(kind): Path<String>,
) -> Result<Json<KindView>, ApiError> {
    Ok(Json(state.core.query.kind_view(&kind)?))
}

async fn change(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedKind(kind): PermittedKind,
    request: Request,
) -> Result<Json<KindView>, ApiError> {
    let asked: KindPatch = read_optional_body(request).await?;
    act.with(serde_json::json!({
        "concurrency": asked.concurrency,
        "per_second": asked.per_second,
        "burst": asked.burst,
        "per_second_per_key": asked.per_second_per_key,
        "burst_per_key": asked.burst_per_key,
        "attempts": asked.attempts,
        "timeout_ms": asked.timeout_ms,
    }));
    Ok(Json(state.core.control.steer_kind(&kind, KindCommand::Patch(asked), &act).await?))
}

async fn pause(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedKind(kind): PermittedKind,
    request: Request,
) -> Result<Json<KindView>, ApiError> {
    let PauseKindRequest { reason } = read_optional_body(request).await?;
    act.because(reason.as_deref());
    Ok(Json(state.core.control.steer_kind(&kind, KindCommand::Pause { reason }, &act).await?))
}

async fn resume(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedKind(kind): PermittedKind,
) -> Result<Json<KindView>, ApiError> {
    Ok(Json(state.core.control.steer_kind(&kind, KindCommand::Resume, &act).await?))
}

async fn reset(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    PermittedKind(kind): PermittedKind,
    request: Request,
) -> Result<Json<KindView>, ApiError> {
    let ResetKindRequest { settings } = read_optional_body(request).await?;
    act.with(serde_json::json!({"settings": settings}));
    let settings = settings.unwrap_or_else(|| KindSetting::ALL.to_vec());
    Ok(Json(state.core.control.steer_kind(&kind, KindCommand::Reset(settings), &act).await?))
}
