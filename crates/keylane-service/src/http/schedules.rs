//! `/v1/schedules`: recurring jobs.

use axum::extract::{Path, Request, State as Shared};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use axum::{Extension, Json, Router};
use serde::Deserialize;

use super::app_state::AppState;
use super::auth::Caller;
use super::blocking::blocking;
use super::extract::{BodyFormat, Reader, format, json, query, read_body};
use super::operator::OperatorCaller;
use super::page_query::limit_of;
use super::problem::ApiError;
use super::request_headers::scope_of;
use super::submit::respond;
use super::tenants::{assign_in_text, may_run};
use super::token_kinds::permit_text;
use crate::wire::{Page, Schedule, SetSchedule};

/// Maximum size of a schedule, in bytes; all schedules are in memory. Handlers can fetch larger
/// inputs themselves.
const MAX_BYTES: usize = 256 * 1024;

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/schedules", get(list)).route("/v1/schedules/{name}", get(show))
}

/// Routes for operators.
pub(super) fn operator_router() -> Router<AppState> {
    Router::new()
        .route("/v1/schedules/{name}", put(set).delete(remove))
        .route("/v1/schedules/{name}/pause", post(pause))
        .route("/v1/schedules/{name}/resume", post(resume))
        .route("/v1/schedules/{name}/run", post(run))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ScheduleListQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

async fn list(
    Shared(state): Shared<AppState>,
    _: Reader,
    parts: Parts,
) -> Result<Json<Page<Schedule>>, ApiError> {
    let asked: ScheduleListQuery = query(&parts)?;
    let limit = limit_of(asked.limit)?;
    // On the blocking pool, because the next times of a thousand schedules take some milliseconds
    // to compute.
    let page =
        blocking(&state.core, move |core| Ok(core.schedules.page(asked.cursor.as_deref(), limit)));
    Ok(Json(page.await?))
}

async fn show(
    Shared(state): Shared<AppState>,
    _: Reader,
    Path(name): Path<String>,
) -> Result<Json<Schedule>, ApiError> {
    Ok(Json(state.core.schedules.get(&name)?))
}

/// Answers 201 for a new schedule, and 200 for a replaced one.
async fn set(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    request: Request,
) -> Result<(StatusCode, Json<Schedule>), ApiError> {
    let (parts, body) = request.into_parts();
    if format(&parts.headers)? == BodyFormat::Lines {
        return Err(ApiError::new(
            "unsupported-media-type",
            "`Content-Type` must be application/json",
        ));
    }
    let mut asked: SetSchedule = json(&read_body(body, MAX_BYTES).await?)?;
    assign_in_text(&caller, &mut asked.job)?;
    permit_text(&caller, &asked.job)?;
    if let Ok(replaced) = state.core.schedules.get(&name) {
        permit_text(&caller, &replaced.job)?;
    }
    // Without the job, whose payload only its handler may see.
    act.with(serde_json::json!({
        "cron": asked.cron,
        "time_zone": asked.time_zone,
        "overlap": asked.overlap,
        "missed": asked.missed,
        "paused": asked.paused,
    }));
    let (schedule, is_new) = state.core.schedules.set(name, asked, act).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(schedule)))
}

async fn remove(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<StatusCode, ApiError> {
    permit_text(&caller, &state.core.schedules.get(&name)?.job)?;
    state.core.schedules.remove(name, act).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn pause(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Schedule>, ApiError> {
    permit_text(&caller, &state.core.schedules.get(&name)?.job)?;
    Ok(Json(state.core.schedules.pause(name, true, act).await?))
}

async fn resume(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
) -> Result<Json<Schedule>, ApiError> {
    permit_text(&caller, &state.core.schedules.get(&name)?.job)?;
    Ok(Json(state.core.schedules.pause(name, false, act).await?))
}

/// Answers like a submission of the job.
async fn run(
    Shared(state): Shared<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let scope = scope_of(&headers, &caller)?;
    let job = state.core.schedules.get(&name)?.job;
    may_run(&caller, &job)?;
    permit_text(&caller, &job)?;
    let submitted = state.core.schedules.run_now(name, scope, act).await?;
    Ok(respond(&state, submitted, &headers).await?.into_response())
}
