//! `/v1/jobs`: submission, queries and control of jobs.

use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{FromRequestParts, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{delete, get, post};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};

use super::AppState;
use super::audit::Operator;
use super::auth::Caller;
use super::extract::{Format, Reader, Submitter, broken_off, format, json, query, small, whole};
use super::problem::ApiError;
use crate::engine::{Act, Intake, MAX_CLAIM_WAIT, Submitted, Wanted, check_client_id};
use crate::wire::{
    Because, CancelRequest, Job, JobPatch, JobState, Page, RetryRequest, SubmitJob, SubtaskState,
    SubtaskView,
};
use crate::{JobId, JobNumber, TraceContext};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const PREFER: HeaderName = HeaderName::from_static("prefer");
const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Default and maximum length of a page.
const PAGE: usize = 50;
const MAX_PAGE: usize = 1000;

pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/jobs", get(list).post(submit))
        .route("/v1/jobs/{id}", get(show).put(put))
        .route("/v1/jobs/{id}/results", get(super::results::results))
        .route("/v1/jobs/{id}/subtasks", get(subtasks))
        .route("/v1/jobs/{id}/subtasks/{number}", get(subtask))
        .route("/v1/jobs/{id}/subtasks/{number}/logs", get(super::logs::logs))
        .route("/v1/jobs/{id}/explain", get(explain))
}

/// Routes for operators.
pub(super) fn operator_router() -> Router<AppState> {
    Router::new()
        .route("/v1/jobs/{id}", delete(purge).patch(patch))
        .route("/v1/jobs/{id}/cancel", post(cancel))
        .route("/v1/jobs/{id}/pause", post(pause))
        .route("/v1/jobs/{id}/resume", post(resume))
        .route("/v1/jobs/{id}/retry", post(retry))
}

/// Job named in the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct OfJob(pub(super) JobId);

impl FromRequestParts<AppState> for OfJob {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let path =
            Path::<std::collections::HashMap<String, String>>::from_request_parts(parts, state);
        let path = path.await.map_err(|_| ApiError::unknown("such job"))?;
        let text = path.get("id").cloned().unwrap_or_default();
        if let Some(id) = JobId::parse(&text) {
            return Ok(OfJob(id));
        }
        let core = std::sync::Arc::clone(&state.core);
        let id = blocking(move || core.resolve(&text)).await?;
        // Names can be reused, so the audit log needs the identifier.
        if let Some(act) = parts.extensions.get::<std::sync::Arc<Act>>() {
            act.on_job(id);
        }
        Ok(OfJob(id))
    }
}

/// Runs engine work that reads files on the blocking pool.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, crate::Refused> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    match done {
        Ok(done) => done.map_err(ApiError::from),
        Err(panic) => {
            tracing::error!(%panic, "a request made the server panic");
            Err(ApiError::new("internal", "something went wrong in the server"))
        }
    }
}

async fn submit(
    axum::extract::State(state): axum::extract::State<AppState>,
    Submitter(caller): Submitter,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let scope = scope_of(&parts.headers, &caller)?;
    let with = SubmitContext { scope, client_id: None, trace: trace_of(&parts.headers) };
    let submitted = take(&state, &parts.headers, body, with).await?;
    answer(&state, submitted, &parts.headers).await
}

/// Submits a job with a client's identifier: 202 the first time, 200 for a repeated identical
/// request.
async fn put(
    axum::extract::State(state): axum::extract::State<AppState>,
    Submitter(_): Submitter,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    check_client_id(&id)?;
    let (parts, body) = request.into_parts();
    let with = SubmitContext { scope: None, client_id: Some(id), trace: trace_of(&parts.headers) };
    let submitted = take(&state, &parts.headers, body, with).await?;
    let replayed = submitted.replayed;
    let mut response = answer(&state, submitted, &parts.headers).await?;
    if replayed {
        *response.status_mut() = StatusCode::OK;
    }
    Ok(response)
}

/// Submission options that are outside of the body.
#[derive(Debug, Default)]
struct SubmitContext {
    /// Idempotency key with its scope.
    scope: Option<(String, String)>,
    /// Client's identifier of the job.
    client_id: Option<String>,
    /// Trace context of the client.
    trace: Option<TraceContext>,
}

impl SubmitContext {
    /// Returns whether the request can be repeated, and so needs a hash.
    fn is_hashed(&self) -> bool {
        self.scope.is_some() || self.client_id.is_some()
    }

    /// Starts a submission from the job's fields. One that cannot be repeated is refused at once if
    /// the service is full, before any of it is written.
    fn begin(
        &self,
        state: &AppState,
        words: &[u8],
        job: SubmitJob,
        more: bool,
    ) -> Result<Intake, ApiError> {
        if !self.is_hashed() {
            state.core.may_take_more()?;
        }
        let mut intake = state.core.begin_intake(job, more)?;
        if self.is_hashed() {
            intake.hash(words);
        }
        Ok(intake)
    }

    async fn finish(self, mut intake: Intake) -> Result<Submitted, ApiError> {
        intake.flush().await?;
        if let Some(client_id) = self.client_id {
            intake.call(client_id);
        }
        if let Some(trace) = self.trace {
            intake.trace(trace);
        }
        Ok(intake.finish(self.scope).await?)
    }
}

async fn take(
    state: &AppState,
    headers: &HeaderMap,
    body: Body,
    with: SubmitContext,
) -> Result<Submitted, ApiError> {
    match format(headers)? {
        Format::Json => take_json(state, body, with).await,
        Format::Lines => take_lines(state, body, with).await,
    }
}

/// Returns the scope of the idempotency key, and the key, if there is one.
pub(super) fn scope_of(
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<Option<(String, String)>, ApiError> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = idempotency_key(key.as_bytes(), "Idempotency-Key")?;
    Ok(Some((caller.name.clone(), key)))
}

/// Returns the client's trace context. An invalid one is ignored, as W3C Trace Context requires; so
/// are several `traceparent` headers, which are ambiguous. `tracestate` may span several headers.
pub(super) fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    let states: Result<Vec<_>, _> =
        headers.get_all(TRACESTATE).iter().map(HeaderValue::to_str).collect();
    TraceContext::parse(parent.to_str().ok()?, &states.unwrap_or_default().join(","))
}

/// Validates an idempotency key. `place` names it in the error.
pub(super) fn idempotency_key(bytes: &[u8], place: &str) -> Result<String, ApiError> {
    const MAX_BYTES: usize = 255;
    let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
    match std::str::from_utf8(bytes) {
        Ok(key) if (1..=MAX_BYTES).contains(&key.len()) && bytes.iter().all(is_printable) => {
            Ok(key.to_owned())
        }
        _ => {
            let why = format!("must have 1 to {MAX_BYTES} printable ASCII characters");
            Err(ApiError::new("invalid", format!("{place}: {why}")).at(place, why))
        }
    }
}

async fn take_json(
    state: &AppState,
    body: Body,
    with: SubmitContext,
) -> Result<Submitted, ApiError> {
    let bytes = whole(body, state.core.settings.bounds.body_bytes).await?;
    let job: SubmitJob = json(&bytes)?;
    let intake = with.begin(state, &bytes, job, false)?;
    with.finish(intake).await
}

/// Reads the job from the first line, and a subtask from each further line. The job is accepted
/// only after the last line.
async fn take_lines(
    state: &AppState,
    body: Body,
    with: SubmitContext,
) -> Result<Submitted, ApiError> {
    let (intake, rest) = (None, Vec::new());
    let mut lines = SubmissionLines { state, with, intake, rest, number: 0 };
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| broken_off(&error))?;
        lines.take(&part).await?;
    }
    lines.end().await
}

struct SubmissionLines<'a> {
    state: &'a AppState,
    with: SubmitContext,
    /// Submission; `None` before the first line.
    intake: Option<Intake>,
    /// Beginning of an incomplete line.
    rest: Vec<u8>,
    /// Number of complete lines.
    number: u64,
}

impl SubmissionLines<'_> {
    async fn take(&mut self, mut part: &[u8]) -> Result<(), ApiError> {
        while let Some(end) = memchr::memchr(b'\n', part) {
            let (line, rest) = (&part[..end], &part[end + 1..]);
            if self.rest.is_empty() {
                self.line(line).await?;
            } else {
                let mut whole = std::mem::take(&mut self.rest);
                whole.extend(line);
                self.line(&whole).await?;
            }
            part = rest;
        }
        self.rest.extend(part);
        // The payload's bound, with room for the keys and the JSON around it.
        let most = self.state.core.settings.bounds.payload_bytes + 128 * 1024;
        if self.rest.len() > most {
            let detail = format!("line {} exceeds {most} bytes", self.number + 1);
            return Err(ApiError::new("too-large", detail));
        }
        Ok(())
    }

    async fn line(&mut self, line: &[u8]) -> Result<(), ApiError> {
        self.number += 1;
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        let Some(intake) = &mut self.intake else {
            let job: SubmitJob = json(line)?;
            self.intake = Some(self.with.begin(self.state, line, job, true)?);
            return Ok(());
        };
        if self.with.is_hashed() {
            intake.hash(b"\n");
            intake.hash(line);
        }
        intake.push_line(line, self.number)?;
        if intake.is_full() {
            intake.flush().await?;
        }
        Ok(())
    }

    async fn end(mut self) -> Result<Submitted, ApiError> {
        let last = std::mem::take(&mut self.rest);
        self.line(&last).await?;
        let Some(intake) = self.intake else {
            return Err(ApiError::new(
                "bad-syntax",
                "the body is empty; its first line must be the job",
            ));
        };
        self.with.finish(intake).await
    }
}

/// Answers 202 with the job; or 200 with its end, if the client asked to wait and it ended in time.
pub(super) async fn answer(
    state: &AppState,
    submitted: Submitted,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let Submitted { id, job, replayed } = submitted;
    let wait = wait_of(headers);
    let job = match wait {
        Some(wait) => wait_for_end(state, id, job, wait).await?,
        None => job,
    };
    let is_done = wait.is_some() && job.state.is_final();
    let status = if is_done { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = (status, Json(&job)).into_response();
    let put = response.headers_mut();
    let location = HeaderValue::from_str(&format!("/v1/jobs/{id}"));
    put.insert(header::LOCATION, location.expect("an id is plain text"));
    if !is_done {
        put.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    if let Some(wait) = wait {
        let applied = format!("wait={}", wait.as_secs());
        put.insert(PREFERENCE_APPLIED, HeaderValue::from_str(&applied).expect("it is plain text"));
    }
    if replayed {
        put_replayed(&mut response);
    }
    Ok(response)
}

/// Marks the answer to a repeated request.
pub(super) fn put_replayed(response: &mut Response) {
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
}

/// Returns the wait that the client prefers (RFC 7240), bounded by the server's maximum.
fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    let preferences = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let words = preferences.flat_map(|value| value.split([',', ';']));
    let wait = words.filter_map(|word| word.trim().strip_prefix("wait=")?.parse().ok()).next()?;
    Some(Duration::from_secs(wait).min(MAX_CLAIM_WAIT))
}

async fn wait_for_end(
    state: &AppState,
    id: JobId,
    mut job: Job,
    wait: Duration,
) -> Result<Job, ApiError> {
    let deadline = tokio::time::Instant::now() + wait;
    while !job.state.is_final() {
        let left = deadline.saturating_duration_since(tokio::time::Instant::now());
        if left.is_zero() || state.closing.is_cancelled() {
            break;
        }
        job = tokio::select! {
            job = state.core.changed(id, job.version, left) => job?,
            () = state.closing.cancelled() => break,
        };
    }
    Ok(job)
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobListQuery {
    /// States, separated by commas.
    state: Option<String>,
    kind: Option<String>,
    /// Name, colon and value of a label.
    label: Option<String>,
    q: Option<String>,
    cursor: Option<String>,
    limit: Option<usize>,
}

pub(super) fn limit_of(limit: Option<usize>) -> Result<usize, ApiError> {
    match limit.unwrap_or(PAGE) {
        limit @ 1..=MAX_PAGE => Ok(limit),
        _ => {
            let why = format!("must be from 1 to {MAX_PAGE}");
            Err(ApiError::new("invalid", format!("limit: {why}")).at("?limit", why))
        }
    }
}

pub(super) fn cursor_of(cursor: Option<&String>) -> Result<Option<u64>, ApiError> {
    let parse = |text: &String| {
        text.parse().map_err(|_| {
            let why = "must be the `next_cursor` of the previous page";
            ApiError::new("invalid", format!("cursor: {why}")).at("?cursor", why)
        })
    };
    cursor.map(parse).transpose()
}

async fn list(
    axum::extract::State(state): axum::extract::State<AppState>,
    _: Reader,
    parts: Parts,
) -> Result<Json<Page<Job>>, ApiError> {
    let asked: JobListQuery = query(&parts)?;
    let (limit, cursor) = (limit_of(asked.limit)?, cursor_of(asked.cursor.as_ref())?);
    let wanted = Wanted {
        states: states_of(asked.state.as_deref())?,
        kind: asked.kind,
        label: label_of(asked.label.as_deref())?,
        text: asked.q.filter(|text| !text.is_empty()),
    };
    let page = blocking(move || state.core.jobs(&wanted, cursor.map(JobNumber), limit)).await?;
    Ok(Json(page))
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
    axum::extract::State(state): axum::extract::State<AppState>,
    _: Reader,
    OfJob(id): OfJob,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    let core = std::sync::Arc::clone(&state.core);
    let mut job = blocking(move || core.job(id)).await?;
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tag| tag.to_str().ok());
    let mut is_known = known.is_some_and(|known| has_tag(known, &job));
    // A waiting client is answered only with a version that it does not know.
    let wait = wait_of(&headers).filter(|_| !job.state.is_final() && (known.is_none() || is_known));
    if let Some(wait) = wait {
        job = tokio::select! {
            job = state.core.changed(id, job.version, wait) => job?,
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

fn tag(job: &Job) -> String {
    format!("W/\"{}\"", job.version)
}

fn has_tag(tags: &str, job: &Job) -> bool {
    let own = tag(job);
    tags.split(',').any(|tag| tag.trim() == own || tag.trim() == "*")
}

fn put_tag(response: &mut Response, job: &Job) {
    let tag = HeaderValue::from_str(&tag(job)).expect("a number is plain text");
    response.headers_mut().insert(header::ETAG, tag);
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
    axum::extract::State(state): axum::extract::State<AppState>,
    _: Reader,
    OfJob(id): OfJob,
    parts: Parts,
) -> Result<Json<Page<SubtaskView>>, ApiError> {
    let asked: SubtasksQuery = query(&parts)?;
    let (limit, cursor) = (limit_of(asked.limit)?, cursor_of(asked.cursor.as_ref())?.unwrap_or(0));
    let from = u32::try_from(cursor).unwrap_or(u32::MAX);
    let page =
        blocking(move || state.core.subtasks(id, from, limit, asked.state, asked.key.as_deref()));
    Ok(Json(page.await?))
}

async fn subtask(
    axum::extract::State(state): axum::extract::State<AppState>,
    _: Reader,
    OfJob(id): OfJob,
    Path((_, number)): Path<(String, String)>,
) -> Result<Json<SubtaskView>, ApiError> {
    let parsed =
        number.parse().map_err(|_| ApiError::unknown(format!("subtask {number} of {id}")))?;
    Ok(Json(blocking(move || state.core.subtask(id, parsed)).await?))
}

/// Reasons why a job waits.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub(super) struct Explained {
    /// Reasons, most frequent first.
    because: Vec<Because>,
}

async fn explain(
    axum::extract::State(state): axum::extract::State<AppState>,
    _: Reader,
    OfJob(id): OfJob,
) -> Result<Json<Explained>, ApiError> {
    let because = blocking(move || state.core.explain(id)).await?;
    Ok(Json(Explained { because }))
}

/// Answers 202 while the change is in progress, and 200 when it is complete.
pub(super) fn steered(job: &Job) -> Response {
    let status = if job.state.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = (status, Json(job)).into_response();
    put_tag(&mut response, job);
    response
}

async fn cancel(
    axum::extract::State(state): axum::extract::State<AppState>,
    Operator(act): Operator,
    OfJob(id): OfJob,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: CancelRequest = small(request).await?;
    act.because(asked.reason.as_deref());
    act.with(serde_json::json!({"mode": asked.mode}));
    Ok(steered(&state.core.cancel_job(id, &asked, &act).await?))
}

async fn pause(
    axum::extract::State(state): axum::extract::State<AppState>,
    Operator(act): Operator,
    OfJob(id): OfJob,
) -> Result<Response, ApiError> {
    Ok(Json(state.core.pause_job(id, true, &act).await?).into_response())
}

async fn resume(
    axum::extract::State(state): axum::extract::State<AppState>,
    Operator(act): Operator,
    OfJob(id): OfJob,
) -> Result<Response, ApiError> {
    Ok(Json(state.core.pause_job(id, false, &act).await?).into_response())
}

async fn retry(
    axum::extract::State(state): axum::extract::State<AppState>,
    Operator(act): Operator,
    OfJob(id): OfJob,
    request: Request,
) -> Result<Response, ApiError> {
    let asked: RetryRequest = small(request).await?;
    act.with(serde_json::json!({"only": asked.only}));
    Ok(steered(&state.core.retry_job(id, asked.only, &act).await?))
}

async fn patch(
    axum::extract::State(state): axum::extract::State<AppState>,
    Operator(act): Operator,
    OfJob(id): OfJob,
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
    let asked: JobPatch = small(request).await?;
    act.with(serde_json::json!({
        "name": asked.name,
        "weight": asked.weight,
        "labels": asked.labels,
    }));
    let job = state.core.patch_job(id, asked, version, &act).await?;
    let mut response = Json(&job).into_response();
    put_tag(&mut response, &job);
    Ok(response)
}

async fn purge(
    axum::extract::State(state): axum::extract::State<AppState>,
    Operator(act): Operator,
    OfJob(id): OfJob,
) -> Result<StatusCode, ApiError> {
    state.core.purge_job(id, &act).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_is_found_among_others() {
        let wait = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(PREFER, HeaderValue::from_static(value));
            wait_of(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("respond-async, wait=10"), Some(10));
        assert_eq!(wait("wait=100000"), Some(60));
        assert_eq!(wait("wait=soon"), None);
        assert_eq!(wait("return=minimal"), None);
    }
}
