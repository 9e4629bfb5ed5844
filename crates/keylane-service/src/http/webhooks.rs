//! `/v1/webhooks`: webhooks that are not delivered, and the actions of operators on one.

use axum::extract::{Path, State as Shared};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::routing::{delete, get, post};
use axum::{Extension, Json, Router};
use serde::Deserialize;

use super::app_state::AppState;
use super::auth::Caller;
use super::extract::{Overseer, query};
use super::operator::OperatorCaller;
use super::page_query::limit_of;
use super::problem::ApiError;
use super::token_kinds::permit;
use crate::wire::{Page, WebhookState, WebhookView};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/webhooks", get(list))
}

/// Routes for operators.
pub(super) fn operator_router() -> Router<AppState> {
    Router::new()
        .route("/v1/webhooks/{webhook}/retry", post(retry))
        .route("/v1/webhooks/{webhook}", delete(remove))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WebhookListQuery {
    state: Option<WebhookState>,
    cursor: Option<String>,
    limit: Option<usize>,
}

/// Not for all readers: an address may have a password.
async fn list(
    Shared(state): Shared<AppState>,
    _: Overseer,
    parts: Parts,
) -> Result<Json<Page<WebhookView>>, ApiError> {
    let WebhookListQuery { state: wanted, cursor, limit } = query(&parts)?;
    Ok(Json(state.core.webhooks.page(wanted, cursor.as_deref(), limit_of(limit)?)?))
}

async fn retry(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
    Path(webhook): Path<String>,
) -> Result<Json<WebhookView>, ApiError> {
    let found = state.core.webhooks.get(&webhook)?;
    permit(&caller, &found.kind)?;
    act.on_job(&found.job);
    Ok(Json(state.core.webhooks.retry(&webhook, &act).await?))
}

async fn remove(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
    Path(webhook): Path<String>,
) -> Result<StatusCode, ApiError> {
    let found = state.core.webhooks.get(&webhook)?;
    permit(&caller, &found.kind)?;
    act.on_job(&found.job);
    state.core.webhooks.remove(&webhook, &act).await?;
    Ok(StatusCode::NO_CONTENT)
}
