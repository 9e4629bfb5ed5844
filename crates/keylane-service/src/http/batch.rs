//! `/v1/jobs/batch`: several jobs in one request.

use axum::Json;
use axum::Router;
use axum::extract::{Request, State as Shared};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde::Deserialize;
use serde_json::value::RawValue;
use sha2::{Digest, Sha256};

use super::State;
use super::extract::{Format, Submitter, format, json, query, whole};
use super::jobs;
use super::problem::Refusal;
use crate::engine::{Intake, Submitted, key_in_batch};
use crate::wire::{Batch, BatchItem, SubmitBatch, SubmitJob};

/// How many jobs a batch may have: they are in memory together.
const MOST_JOBS: usize = 1000;

pub(super) fn router() -> Router<State> {
    Router::new().route("/v1/jobs/batch", post(submit))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchQuery {
    /// All or none; yes unless said.
    atomic: Option<bool>,
}

/// 202 if all were accepted; with `atomic=false` 200, and a status for each.
async fn submit(
    Shared(state): Shared<State>,
    Submitter(caller): Submitter,
    request: Request,
) -> Result<Response, Refusal> {
    let (parts, body) = request.into_parts();
    let asked: BatchQuery = query(&parts)?;
    if format(&parts.headers)? == Format::Lines {
        return Err(Refusal::new("unsupported-media-type", "this is sent as application/json"));
    }
    let scope = jobs::scope_of(&parts.headers, &caller)?;
    let bytes = whole(body, state.core.settings.bounds.body_bytes).await?;
    let SubmitBatch { jobs } = json(&bytes)?;
    if !(1..=MOST_JOBS).contains(&jobs.len()) {
        let why = format!("there are {}, and it takes from 1 to {MOST_JOBS}", jobs.len());
        return Err(Refusal::new("invalid", format!("jobs: {why}")).at("/jobs", why));
    }
    if !asked.atomic.unwrap_or(true) {
        let items = one_by_one(&state, &jobs, scope).await;
        return Ok(Json(Batch { items }).into_response());
    }
    let mut intakes = Vec::with_capacity(jobs.len());
    for (place, job) in jobs.iter().enumerate() {
        let intake = begin(&state, job).await;
        intakes.push(intake.map_err(|refusal| refusal.within(&format!("/jobs/{place}")))?);
    }
    let hash = Sha256::digest(&bytes).into();
    let submitted = state.core.accept_together(intakes, scope, hash).await?;
    let replayed = submitted.iter().any(|submitted| submitted.replayed);
    let items = submitted.into_iter().map(accepted).collect();
    let mut response = (StatusCode::ACCEPTED, Json(Batch { items })).into_response();
    if replayed {
        jobs::put_replayed(&mut response);
    }
    Ok(response)
}

async fn begin(state: &State, text: &RawValue) -> Result<Intake, Refusal> {
    let job: SubmitJob = json(text.get().as_bytes())?;
    let mut intake = state.core.begin_intake(job, false)?;
    intake.hash(text.get().as_bytes());
    intake.flush().await?;
    Ok(intake)
}

/// One after another, so that they are accepted in their order; each by itself.
async fn one_by_one(
    state: &State,
    jobs: &[Box<RawValue>],
    scope: Option<(String, String)>,
) -> Vec<BatchItem> {
    let mut items = Vec::with_capacity(jobs.len());
    for (place, job) in jobs.iter().enumerate() {
        let scope = scope.as_ref().map(|(caller, key)| (caller.clone(), key_in_batch(key, place)));
        let submitted = async { Ok(begin(state, job).await?.finish(scope).await?) }.await;
        items.push(match submitted {
            Ok(submitted) => accepted(submitted),
            Err(refusal) => refused(refusal),
        });
    }
    items
}

fn accepted(submitted: Submitted) -> BatchItem {
    let status = StatusCode::ACCEPTED.as_u16();
    BatchItem { status, job: Some(Box::new(submitted.job)), problem: None }
}

fn refused(refusal: Refusal) -> BatchItem {
    let status = refusal.status().as_u16();
    BatchItem { status, job: None, problem: Some(refusal.into_problem()) }
}
