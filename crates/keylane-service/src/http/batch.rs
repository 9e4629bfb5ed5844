//! `/v1/jobs/batch`: several jobs in one request, all or none, or each by itself.

use axum::Json;
use axum::Router;
use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::app_state::AppState;
use super::auth::Caller;
use super::extract::{BodyFormat, Submitter, format, json, query, read_body};
use super::problem::ApiError;
use super::request_headers::{scope_of, trace_of};
use super::response::put_replayed;
use super::tenants::assign;
use super::token_kinds::permit;
use crate::TraceContext;
use crate::engine::{ExtraWrites, JobSubmission, SubmitResult, SubmitTicket, key_in_batch};
use crate::store::Changes;
use crate::wire::{Batch, BatchItem, SubmitBatch, SubmitJob};

/// Maximum number of jobs in a batch; all are in memory together.
const MAX_JOBS: usize = 1000;

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/jobs/batch", post(submit))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchQuery {
    /// Whether all jobs are accepted or none. Default: yes.
    atomic: Option<bool>,
}

/// Answers 202 if all jobs were accepted; with `atomic=false` 200, and a status for each job.
async fn submit(
    Shared(state): Shared<AppState>,
    Submitter(caller): Submitter,
    request: Request,
) -> Result<Response, ApiError> {
    let (parts, body) = request.into_parts();
    let asked: BatchQuery = query(&parts)?;
    if format(&parts.headers)? == BodyFormat::Lines {
        return Err(ApiError::new(
            "unsupported-media-type",
            "`Content-Type` must be application/json",
        ));
    }
    let scope = scope_of(&parts.headers, &caller)?;
    let trace = trace_of(&parts.headers);
    let bytes = read_body(body, state.core.settings.bounds.body_bytes).await?;
    let SubmitBatch { jobs } = json(&bytes)?;
    if !(1..=MAX_JOBS).contains(&jobs.len()) {
        let why = format!("has {} jobs; send 1 to {MAX_JOBS}", jobs.len());
        return Err(ApiError::new("invalid", format!("jobs: {why}")).at("/jobs", why));
    }
    if !asked.atomic.unwrap_or(true) {
        let items = one_by_one(&state, &caller, &jobs, scope, trace.as_ref()).await;
        return Ok(Json(Batch { items }).into_response());
    }
    let mut intakes = Vec::with_capacity(jobs.len());
    for (place, job) in jobs.iter().enumerate() {
        let intake = begin(&state, &caller, job, trace.as_ref()).await;
        intakes.push(intake.map_err(|refusal| refusal.within(&format!("/jobs/{place}")))?);
    }
    let hash = Sha256::digest(&bytes).into();
    let submitted =
        state.core.submission.accept_together(intakes, scope, hash, Changes::new()).await?;
    let replayed = submitted.iter().all(|submitted| submitted.replayed);
    let items = submitted.into_iter().map(accepted).collect();
    let mut response = (StatusCode::ACCEPTED, Json(Batch { items })).into_response();
    if replayed {
        put_replayed(&mut response);
    }
    Ok(response)
}

async fn begin(
    state: &AppState,
    caller: &Caller,
    text: &RawValue,
    trace: Option<&TraceContext>,
) -> Result<JobSubmission, ApiError> {
    let mut job: SubmitJob = json(text.get().as_bytes())?;
    assign(caller, &mut job)?;
    permit(caller, &job.kind)?;
    let mut intake = state.core.submission.begin_intake(job, false)?;
    intake.hash(text.get().as_bytes());
    if let Some(trace) = trace {
        intake.trace(trace.clone());
    }
    intake.flush().await?;
    Ok(intake)
}

/// Submits each job by itself. They are submitted one after another, which keeps their order, and
/// awaited together, so that one transaction can have many of them.
async fn one_by_one(
    state: &AppState,
    caller: &Caller,
    jobs: &[Box<RawValue>],
    scope: Option<(String, String)>,
    trace: Option<&TraceContext>,
) -> Vec<BatchItem> {
    let mut all = Vec::with_capacity(jobs.len());
    for (place, job) in jobs.iter().enumerate() {
        let scope = scope.as_ref().map(|(name, key)| (name.clone(), key_in_batch(key, place)));
        let job = begin(state, caller, job, trace).await;
        all.push(hand_over(job, scope).await);
    }
    let mut items = Vec::with_capacity(all.len());
    for handed_over in all {
        items.push(match outcome(handed_over).await {
            Ok(submitted) => accepted(submitted),
            Err(refusal) => refused(refusal),
        });
    }
    items
}

async fn hand_over(
    job: Result<JobSubmission, ApiError>,
    scope: Option<(String, String)>,
) -> Result<SubmitTicket, ApiError> {
    Ok(job?.submit(scope, ExtraWrites::default()).await?)
}

async fn outcome(handed_over: Result<SubmitTicket, ApiError>) -> Result<SubmitResult, ApiError> {
    Ok(handed_over?.outcome().await?)
}

fn accepted(submitted: SubmitResult) -> BatchItem {
    let status = StatusCode::ACCEPTED.as_u16();
    BatchItem { status, job: Some(Box::new(submitted.job)), problem: None }
}

fn refused(refusal: ApiError) -> BatchItem {
    let status = refusal.status().as_u16();
    BatchItem { status, job: None, problem: Some(refusal.into_problem()) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc;

    use super::*;
    use crate::handle::{Attempt, FunctionHandler};
    use crate::http::HttpSettings;
    use crate::store::Changes;
    use crate::{Kind, Service};

    /// Regression: jobs of a batch were awaited one by one, so a thousand of them took a thousand
    /// syncs of the disk.
    #[tokio::test(flavor = "multi_thread")]
    async fn no_job_waits_for_the_commit_of_the_one_before() {
        let folder = tempfile::tempdir().unwrap();
        let service = Service::builder(crate::ServiceSettings::new(folder.path().join("store")));
        let (done, mut was_done) = tokio::sync::mpsc::unbounded_channel();
        let kind = Kind::new(FunctionHandler::new(move |attempt: Attempt| {
            let _ = done.send(attempt.payload);
            std::future::ready(Ok(None))
        }));
        let service = service.kind("echo", kind).start().await.unwrap();
        let core = Arc::clone(&service.core);
        let state = AppState::new(&service, HttpSettings::default(), None);
        // Blocks the writer.
        let (stands, told) = tokio::sync::oneshot::channel();
        let (go_on, gone_on) = mpsc::channel::<()>();
        core.store.submit_with(Changes::new(), move |_| {
            let _ = stands.send(());
            let _ = gone_on.recv();
        });
        told.await.unwrap();
        let job = |kind: &str, number: u32| {
            let text = format!(r#"{{"kind":"{kind}","key":"k","payload":{number}}}"#);
            RawValue::from_string(text).unwrap()
        };
        let jobs = [job("echo", 0), job("none", 1), job("echo", 2), job("echo", 3)];
        let scope = Some(("somebody".to_owned(), "key".to_owned()));
        let batch =
            tokio::spawn(
                async move { one_by_one(&state, &Caller::anyone(), &jobs, scope, None).await },
            );
        let is_on_its_way =
            |place: usize| core.idempotency.is_claimed("somebody", &key_in_batch("key", place));
        while ![0, 2, 3].into_iter().all(is_on_its_way) {
            tokio::task::yield_now().await;
        }
        assert!(!batch.is_finished());
        go_on.send(()).unwrap();
        let items = batch.await.unwrap();
        let statuses: Vec<_> = items.iter().map(|item| item.status).collect();
        assert_eq!(statuses, [202, 422, 202, 202]);
        // They share a key, and so run in the order of their acceptance.
        for expected in ["0", "2", "3"] {
            assert_eq!(was_done.recv().await.unwrap(), expected);
        }
        drop(core);
        service.stop(std::time::Duration::ZERO).await;
    }
}
