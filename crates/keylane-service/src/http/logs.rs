//! `/v1/jobs/{id}/subtasks/{number}/logs`: logs of a subtask's attempts, as JSON or as text.

use std::fmt::Write;

use axum::Json;
use axum::Router;
use axum::extract::{Path, State as Shared};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use super::app_state::AppState;
use super::blocking::blocking;
use super::extract::Reader;
use super::job_path::JobPath;
use super::problem::ApiError;
use crate::scheduler::Step;
use crate::wire::AttemptLog;

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/jobs/{id}/subtasks/{number}/logs", get(logs))
}

async fn logs(
    Shared(state): Shared<AppState>,
    _: Reader,
    JobPath(id): JobPath,
    Path((_, number)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let step = match number.as_str() {
        "split" => Step::Split,
        "fan-in" => Step::FanIn,
        _ => Step::Subtask(
            number.parse().map_err(|_| ApiError::unknown(format!("subtask {number} of {id}")))?,
        ),
    };
    let page = blocking(&state.core, move |core| core.query.logs(id, step)).await?;
    let accept = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if accept.is_some_and(|accept| accept.contains("text/plain")) {
        // axum sends a string as `text/plain; charset=utf-8`.
        return Ok(page.items.iter().map(as_text).collect::<String>().into_response());
    }
    Ok(Json(page).into_response())
}

/// Formats an attempt and its output, which begins on a line of its own.
fn as_text(log: &AttemptLog) -> String {
    let state = log.state.as_str();
    let at = log.ended_at.unwrap_or(log.started_at);
    let mut text = format!("==> attempt {}, {state}, {at} <==\n", log.attempt);
    if log.left_out_bytes > 0 {
        let _ = writeln!(text, "[{} bytes left out]", log.left_out_bytes);
    }
    text.push_str(&log.text);
    if !text.ends_with('\n') {
        text.push('\n');
    }
    text
}
