//! `POST /v1/jobs` and `PUT /v1/jobs/{id}`: submission of a job, as one JSON object or as lines.

use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{post, put};
use axum::{Json, Router};
use futures_util::StreamExt;
use std::time::Duration;

use super::app_state::AppState;
use super::auth::Caller;
use super::extract::{BodyFormat, Submitter, broken_off, format, json, read_body};
use super::problem::ApiError;
use super::request_headers::{scope_of, trace_of, wait_of};
use super::response::{PREFERENCE_APPLIED, put_replayed};
use super::tenants::assign;
use super::token_kinds::permit;
use crate::engine::{ExtraWrites, JobSubmission, SubmitResult, check_client_id};
use crate::wire::{Job, SubmitJob};
use crate::{JobId, TraceContext};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/jobs", post(submit)).route("/v1/jobs/{id}", put(submit_with_id))
}

async fn submit(
    State(state): State<AppState>,
    Submitter(caller): Submitter,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let scope = scope_of(&parts.headers, &caller)?;
    let context = SubmitContext { caller, scope, client_id: None, trace: trace_of(&parts.headers) };
    let submitted = read_submission(&state, &parts.headers, body, context).await?;
    respond(&state, submitted, &parts.headers).await
}

/// Submits a job with a client's identifier: 202 the first time, 200 for a repeated identical
/// request.
async fn submit_with_id(
    State(state): State<AppState>,
    Submitter(caller): Submitter,
    Path(id): Path<String>,
    request: Request,
) -> Result<Response, ApiError> {
    check_client_id(&id)?;
    let (parts, body) = request.into_parts();
    let context =
        SubmitContext { caller, scope: None, client_id: Some(id), trace: trace_of(&parts.headers) };
    let submitted = read_submission(&state, &parts.headers, body, context).await?;
    let replayed = submitted.replayed;
    let mut response = respond(&state, submitted, &parts.headers).await?;
    if replayed {
        *response.status_mut() = StatusCode::OK;
    }
    Ok(response)
}

/// Submission options that are outside of the body.
#[derive(Debug)]
struct SubmitContext {
    caller: Caller,
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
        hashed: &[u8],
        mut job: SubmitJob,
        more: bool,
    ) -> Result<JobSubmission, ApiError> {
        assign(&self.caller, &mut job)?;
        permit(&self.caller, &job.kind)?;
        if !self.is_hashed() {
            state.core.submission.may_take_more()?;
        }
        let mut intake = state.core.submission.begin_intake(job, more)?;
        if self.is_hashed() {
            intake.hash(hashed);
        }
        Ok(intake)
    }

    async fn finish(self, mut intake: JobSubmission) -> Result<SubmitResult, ApiError> {
        intake.flush().await?;
        if let Some(client_id) = self.client_id {
            intake.call(client_id);
        }
        if let Some(trace) = self.trace {
            intake.trace(trace);
        }
        Ok(intake.submit(self.scope, ExtraWrites::default()).await?.outcome().await?)
    }
}

async fn read_submission(
    state: &AppState,
    headers: &HeaderMap,
    body: Body,
    context: SubmitContext,
) -> Result<SubmitResult, ApiError> {
    match format(headers)? {
        BodyFormat::Json => read_json(state, body, context).await,
        BodyFormat::Lines => read_lines(state, body, context).await,
    }
}

async fn read_json(
    state: &AppState,
    body: Body,
    context: SubmitContext,
) -> Result<SubmitResult, ApiError> {
    let bytes = read_body(body, state.core.settings.bounds.body_bytes).await?;
    let job: SubmitJob = json(&bytes)?;
    let intake = context.begin(state, &bytes, job, false)?;
    context.finish(intake).await
}

/// Reads the job from the first line, and a subtask from each further line. The job is accepted
/// only after the last line.
async fn read_lines(
    state: &AppState,
    body: Body,
    context: SubmitContext,
) -> Result<SubmitResult, ApiError> {
    let (intake, rest) = (None, Vec::new());
    let mut lines = SubmissionLines { state, context, intake, rest, number: 0 };
    let mut parts = body.into_data_stream();
    while let Some(part) = parts.next().await {
        let part = part.map_err(|error| broken_off(&error))?;
        lines.take(&part).await?;
    }
    lines.end().await
}

struct SubmissionLines<'a> {
    state: &'a AppState,
    context: SubmitContext,
    /// Submission; `None` before the first line.
    intake: Option<JobSubmission>,
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
            self.intake = Some(self.context.begin(self.state, line, job, true)?);
            return Ok(());
        };
        if self.context.is_hashed() {
            intake.hash(b"\n");
            intake.hash(line);
        }
        intake.push_line(line, self.number)?;
        if intake.is_full() {
            intake.flush().await?;
        }
        Ok(())
    }

    async fn end(mut self) -> Result<SubmitResult, ApiError> {
        let last = std::mem::take(&mut self.rest);
        self.line(&last).await?;
        let Some(intake) = self.intake else {
            return Err(ApiError::new(
                "bad-syntax",
                "the body is empty; its first line must be the job",
            ));
        };
        self.context.finish(intake).await
    }
}

/// Answers 202 with the job; or 200 with its end, if the client asked to wait and it ended in time.
pub(super) async fn respond(
    state: &AppState,
    submitted: SubmitResult,
    headers: &HeaderMap,
) -> Result<Response, ApiError> {
    let SubmitResult { id, job, replayed } = submitted;
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

async fn wait_for_end(
    state: &AppState,
    id: JobId,
    job: Job,
    wait: Duration,
) -> Result<Job, ApiError> {
    if job.state.is_final() || wait.is_zero() {
        return Ok(job);
    }
    tokio::select! {
        biased;
        job = state.core.query.wait_for_end(id, wait) => Ok(job?),
        () = state.closing.cancelled() => Ok(state.core.query.job(id)?),
    }
}
