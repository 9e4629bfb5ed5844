//! `/v1/workers`: remote workers.

use axum::extract::State as Shared;
use axum::http::request::Parts;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::app_state::AppState;
use super::extract::{Reader, query};
use super::page_query::{cursor_of, limit_of};
use super::problem::ApiError;
use crate::wire::{Page, WorkerView};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/workers", get(list))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct WorkerListQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

async fn list(
    Shared(state): Shared<AppState>,
    _: Reader,
    parts: Parts,
) -> Result<Json<Page<WorkerView>>, ApiError> {
    let asked: WorkerListQuery = query(&parts)?;
    let after = cursor_of(asked.cursor.as_ref())?.unwrap_or(0);
    let (views, more) = state.core.query.workers(after, limit_of(asked.limit)?);
    Ok(Json(Page::new(views, more.map(|number| number.to_string()))))
}
