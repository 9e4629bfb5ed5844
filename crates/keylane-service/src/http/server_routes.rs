//! Routes about the server itself: liveness, readiness, version, metrics and kinds.

use axum::Json;
use axum::Router;
use axum::extract::{Path, State as Shared};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;

use super::app_state::AppState;
use super::extract::{Reader, query};
use super::problem::{ApiError, CODES};
use crate::wire::{Health, HealthCheck, SchedulerView, Summary, Timeline, Version};

/// Routes that require a token, if the server has tokens.
pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/scheduler", get(scheduler))
        .route("/v1/summary", get(summary))
        .route("/v1/timeline", get(timeline))
        .route("/metrics", get(metrics))
}

/// Routes without authentication. They reveal nothing about the jobs.
pub(super) fn open_router() -> Router<AppState> {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/version", get(version))
        .route("/problems/{code}", get(problem))
        .route("/openapi.json", get(super::openapi::document))
}

pub(super) async fn livez() -> &'static str {
    "ok\n"
}

async fn readyz(Shared(state): Shared<AppState>) -> (StatusCode, Json<Health>) {
    let core = &state.core;
    let away = || "the database does not answer; nothing starts until it does".to_owned();
    let store = core.status.takes_no_jobs();
    let store = store.or_else(|| (!core.store.may_start_work()).then(away));
    let draining = core.is_draining().then(|| "the server is about to stop".to_owned());
    let check = |name: &str, wrong: Option<String>| HealthCheck {
        name: name.to_owned(),
        ok: wrong.is_none(),
        detail: wrong,
    };
    let checks = vec![check("store", store), check("accepting", draining)];
    let is_well = checks.iter().all(|check| check.ok);
    let status = if is_well { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let word = if is_well { "ok" } else { "unavailable" };
    (status, Json(Health { status: word.to_owned(), checks }))
}

async fn version(Shared(state): Shared<AppState>) -> Json<Version> {
    Json(Version {
        name: "keylane".into(),
        version: env!("CARGO_PKG_VERSION").into(),
        environment: state.settings.environment.clone(),
        read_only: state.settings.read_only,
    })
}

/// Returns the page of a problem type, for people.
async fn problem(Path(code): Path<String>) -> Result<Response, ApiError> {
    let known = CODES.iter().find(|(known, ..)| *known == code);
    let (code, status, title, text) =
        known.ok_or_else(|| ApiError::unknown(format!("problem `{code}`")))?;
    let page = format!("{title}\n\nstatus {status}, code {code}\n\n{text}\n");
    let mut response = page.into_response();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, plain);
    Ok(response)
}

async fn scheduler(Shared(state): Shared<AppState>, _: Reader) -> Json<SchedulerView> {
    Json(state.core.query.scheduler_view())
}

async fn summary(Shared(state): Shared<AppState>, _: Reader) -> Json<Summary> {
    Json(state.core.query.summary())
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct TimelineQuery {
    after: Option<u64>,
}

async fn timeline(
    Shared(state): Shared<AppState>,
    _: Reader,
    parts: Parts,
) -> Result<Json<Timeline>, ApiError> {
    let asked: TimelineQuery = query(&parts)?;
    Ok(Json(state.core.query.timeline_after(asked.after.unwrap_or(0))))
}

async fn metrics(Shared(state): Shared<AppState>, _: Reader) -> Response {
    let mut response = state.core.metrics().text().into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
