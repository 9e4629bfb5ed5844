//! `/v1/history`: the past of the service.

use axum::extract::State as Shared;
use axum::http::request::Parts;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::app_state::AppState;
use super::blocking::blocking;
use super::extract::{Reader, query};
use super::problem::ApiError;
use crate::wire::{History, Timestamp};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/history", get(history))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    /// `slices`.
    include: Option<String>,
}

async fn history(
    Shared(state): Shared<AppState>,
    _: Reader,
    parts: Parts,
) -> Result<Json<History>, ApiError> {
    let HistoryQuery { from, to, include } = query(&parts)?;
    let has_slices = match include.as_deref() {
        None => false,
        Some("slices") => true,
        Some(other) => {
            let why = format!("unknown value `{other}`; use `slices`");
            return Err(ApiError::new("invalid", format!("include: {why}")).at("?include", why));
        }
    };
    let past = blocking(&state.core, move |core| {
        core.history.between(from, to, core.clock.now(), has_slices)
    });
    Ok(Json(past.await?))
}
