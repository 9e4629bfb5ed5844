//! `/v1/jobs`: queries for jobs and their subtasks.

use axum::extract::{Path, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::app_state::AppState;
use super::blocking::blocking;
use super::extract::{Reader, query};
use super::job_path::JobPath;
use super::page_query::{cursor_of, limit_of};
use super::problem::ApiError;
use super::request_headers::wait_of;
use super::response::{PREFERENCE_APPLIED, has_tag, put_tag};
use crate::JobNumber;
use crate::engine::JobQuery;
use crate::wire::{Explained, Job, JobState, Page, SubtaskState, SubtaskView};

pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/jobs", get(list))
        .route("/v1/jobs/{id}", get(show))
        .route("/v1/jobs/{id}/subtasks", get(subtasks))
        .route("/v1/jobs/{id}/subtasks/{number}", get(subtask))
        .route("/v1/jobs/{id}/explain", get(explain))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobListQuery {
    /// States, separated by commas.
    state: Option<String>,
    kind: Option<String>,
    /// Name, colon and value of a label.
    label: Option<String>,
    tenant: Option<String>,
    q: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

async fn list(
    State(state): State<AppState>,
    _: Reader,
    parts: Parts,
) -> Result<Json<Page<Job>>, ApiError> {
    let asked: JobListQuery = query(&parts)?;
    let (limit, cursor) = (limit_of(asked.limit)?, cursor_of(asked.cursor.as_ref())?);
    let wanted = JobQuery {
        states: states_of(asked.state.as_deref())?,
        kind: asked.kind,
        label: label_of(asked.label.as_deref())?,
        tenant: asked.tenant,
        text: asked.q.filter(|text| !text.is_empty()),
    };
    let page =
        blocking(&state.core, move |core| core.query.jobs(&wanted, cursor.map(JobNumber), limit));
    Ok(Json(page.await?))
}

fn states_of(text: Option<&str>) -> Result<Vec<JobState>, ApiError> {
    let words = text.into_iter().flat_map(|text| text.split(',')).filter(|word| !word.is_empty());
    let parse = |word: &str| {
        let state = JobState::ALL.into_iter().find(|state| state.as_str() == word);
        state.ok_or_else(|| {
            let why = format!("unknown state `{word}`");
            ApiError::new("invalid", format!("state: {why}")).at("?state", why)
        })
    };
    words.map(parse).collect()
}

fn label_of(text: Option<&str>) -> Result<Option<(String, String)>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let split = text.split_once(':');
    let split = split.ok_or_else(|| {
        let why = "must be a label's name, a colon and its value";
        ApiError::new("invalid", format!("label: {why}")).at("?label", why)
    })?;
    Ok(Some((split.0.to_owned(), split.1.to_owned())))
}

async fn show(
    State(state): State<AppState>,
    _: Reader,
    JobPath(id): JobPath,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let mut job = blocking(&state.core, move |core| core.query.job(id)).await?;
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    let mut is_known = known.is_some_and(|known| has_tag(known, &job));
    // A waiting client is answered only with a version that it does not know.
    let wait = wait_of(&headers).filter(|_| !job.state.is_final() && (known.is_none() || is_known));
    if let Some(wait) = wait {
        job = tokio::select! {
            biased;
            job = state.core.query.changed(id, job.version, wait) => job?,
            () = state.closing.cancelled() => job,
        };
        is_known = known.is_some_and(|known| has_tag(known, &job));
    }
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Json(&job).into_response()
    };
    put_tag(&mut response, &job);
    if !job.state.is_final() {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Some(wait) = wait_of(&headers) {
        let applied = HeaderValue::from_str(&format!("wait={}", wait.as_secs()));
        response.headers_mut().insert(PREFERENCE_APPLIED, applied.expect("it is plain text"));
    }
    Ok(response)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct SubtasksQuery {
    state: Option<SubtaskState>,
    key: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

async fn subtasks(
    State(state): State<AppState>,
    _: Reader,
    JobPath(id): JobPath,
    parts: Parts,
) -> Result<Json<Page<SubtaskView>>, ApiError> {
    let asked: SubtasksQuery = query(&parts)?;
    let (limit, cursor) = (limit_of(asked.limit)?, cursor_of(asked.cursor.as_ref())?.unwrap_or(0));
    let from = u32::try_from(cursor).unwrap_or(u32::MAX);
    let page = blocking(&state.core, move |core| {
        core.query.subtasks(id, from, limit, asked.state, asked.key.as_deref())
    });
    Ok(Json(page.await?))
}

async fn subtask(
    State(state): State<AppState>,
    _: Reader,
    JobPath(id): JobPath,
    Path((_, number)): Path<(String, String)>,
) -> Result<Json<SubtaskView>, ApiError> {
    let parsed =
        number.parse().map_err(|_| ApiError::unknown(format!("subtask {number} of {id}")))?;
    Ok(Json(blocking(&state.core, move |core| core.query.subtask(id, parsed)).await?))
}

async fn explain(
    State(state): State<AppState>,
    _: Reader,
    JobPath(id): JobPath,
) -> Result<Json<Explained>, ApiError> {
    let job = blocking(&state.core, move |core| core.query.job(id)).await?;
    let Job { waiting_because: because, longest_key, useful_workers, .. } = job;
    Ok(Json(Explained { because, longest_key, useful_workers }))
}
