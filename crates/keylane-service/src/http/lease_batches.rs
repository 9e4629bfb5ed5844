//! `/v1/leases/heartbeat` and `/v1/leases/complete`: many leases in one request, each by itself.

use axum::extract::{Request, State as Shared};
use axum::routing::post;
use axum::{Json, Router};

use super::app_state::AppState;
use super::extract::{Leaser, json, read_body};
use super::leases::{MAX_RESULT_BYTES, check_progress, failure, work_request};
use super::problem::ApiError;
use super::token_kinds::worker_token;
use crate::engine::{LeaseOutcome, LeaseReport, MAX_LEASES};
use crate::job_definition::pointer;
use crate::request_error::RequestError;
use crate::wire::{
    CompleteBatch, CompleteResult, CompleteResults, HeartbeatBatch, HeartbeatResponse,
    HeartbeatResult, HeartbeatResults, LeaseEnd,
};

pub(super) fn router() -> Router<AppState> {
    Router::new()
        .route("/v1/leases/heartbeat", post(heartbeat))
        .route("/v1/leases/complete", post(complete))
}

/// Maximum size of the ids of a request, in bytes.
const MAX_IDS_BYTES: usize = 1024 * 1024;

async fn heartbeat(
    Shared(state): Shared<AppState>,
    Leaser(caller): Leaser,
    request: Request,
) -> Result<Json<HeartbeatResults>, ApiError> {
    let bytes = read_body(request.into_body(), MAX_IDS_BYTES).await?;
    let HeartbeatBatch { leases, progress } = json(&bytes)?;
    check_count(leases.len())?;
    let progress = progress.unwrap_or_default();
    for (id, fraction) in &progress {
        check_progress(*fraction, &pointer("/progress", id))?;
    }
    let progress_of = |id: String| (progress.get(&id).copied(), id);
    let leases: Vec<_> = leases.into_iter().map(progress_of).collect();
    let results = state.core.remote_workers.heartbeat(&leases, &worker_token(&caller))?;
    Ok(Json(HeartbeatResults { items: results.into_iter().map(extended).collect() }))
}

async fn complete(
    Shared(state): Shared<AppState>,
    Leaser(caller): Leaser,
    request: Request,
) -> Result<Json<CompleteResults>, ApiError> {
    let bytes = read_body(request.into_body(), MAX_RESULT_BYTES).await?;
    let CompleteBatch { leases, claim } = json(&bytes)?;
    check_count(leases.len())?;
    let reports = leases.into_iter().enumerate();
    let reports: Result<Vec<_>, _> = reports
        .map(|(place, end)| report(end).map_err(|why| why.within(&format!("/leases/{place}"))))
        .collect();
    let (reports, workers) = (reports?, &state.core.remote_workers);
    let in_claim = |refused: ApiError| refused.within("/claim");
    let claim = claim.map(|asked| work_request(asked, &caller)).transpose().map_err(in_claim)?;
    let Some(claim) = claim else {
        let results = workers.report(reports, &worker_token(&caller)).await?;
        return Ok(Json(CompleteResults {
            items: results.into_iter().map(ended).collect(),
            leases: None,
            claim_problem: None,
        }));
    };
    let done = workers.report_and_claim(reports, claim, &state.closing).await;
    let (results, granted) = done.map_err(|refused| match refused {
        // Only the claim is checked there.
        RequestError::Invalid(_) => in_claim(refused.into()),
        refused => refused.into(),
    })?;
    let (leases, claim_problem) = match granted {
        Ok(leases) => (leases, None),
        Err(refused) => (Vec::new(), Some(ApiError::from(refused).into_problem())),
    };
    let items = results.into_iter().map(ended).collect();
    Ok(Json(CompleteResults { items, leases: Some(leases), claim_problem }))
}

fn check_count(count: usize) -> Result<(), ApiError> {
    if (1..=MAX_LEASES as usize).contains(&count) {
        return Ok(());
    }
    let why = format!("has {count} leases; send 1 to {MAX_LEASES}");
    Err(ApiError::new("invalid", format!("leases: {why}")).at("/leases", why))
}

/// Converts the end of a lease, in which at most one outcome is given.
fn report(end: LeaseEnd) -> Result<LeaseReport, ApiError> {
    let LeaseEnd { id, result, error, retry, after_ms, release, log } = end;
    let wrong = |field: &str, why: &str| {
        Err(ApiError::new("invalid", why).at(field.to_owned(), why.to_owned()))
    };
    let releases = release == Some(true);
    if usize::from(result.is_some()) + usize::from(error.is_some()) + usize::from(releases) > 1 {
        return wrong("", "`result`, `error` and `release` exclude each other; send at most one");
    }
    if releases && log.is_some() {
        return wrong("/log", "a lease that is released has no `log`");
    }
    if error.is_none() && retry.is_some() {
        return wrong("/retry", "`retry` needs an `error`");
    }
    if error.is_none() && after_ms.is_some() {
        return wrong("/after_ms", "`after_ms` needs an `error`");
    }
    let outcome = match error {
        Some(error) => LeaseOutcome::Failed(failure(error, retry, after_ms)),
        None if releases => LeaseOutcome::Released,
        None => LeaseOutcome::Succeeded(result),
    };
    Ok(LeaseReport { id, outcome, log })
}

fn extended(result: Result<HeartbeatResponse, RequestError>) -> HeartbeatResult {
    let (status, beat, problem) = match result {
        Ok(beat) => (200, Some(beat), None),
        Err(refused) => {
            let refused = ApiError::from(refused);
            (refused.status().as_u16(), None, Some(refused.into_problem()))
        }
    };
    HeartbeatResult {
        status,
        expires_at: beat.as_ref().map(|beat| beat.expires_at),
        expires_in_ms: beat.as_ref().map(|beat| beat.expires_in_ms),
        cancel: beat.map(|beat| beat.cancel),
        problem,
    }
}

fn ended(result: Result<(), RequestError>) -> CompleteResult {
    match result {
        Ok(()) => CompleteResult { status: 204, problem: None },
        Err(refused) => {
            let refused = ApiError::from(refused);
            let status = refused.status().as_u16();
            CompleteResult { status, problem: Some(refused.into_problem()) }
        }
    }
}
