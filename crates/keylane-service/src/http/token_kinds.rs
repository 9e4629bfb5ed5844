//! Kinds that a token is for: it submits, leases and changes jobs of these kinds only. It reads those of all
//! kinds that its roles permit.

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::app_state::AppState;
use super::auth::Caller;
use super::blocking::blocking;
use super::job_path::JobPath;
use super::problem::ApiError;
use crate::JobId;
use crate::engine::WorkerToken;

/// Refuses a kind that the token is not for.
pub(super) fn permit(caller: &Caller, kind: &str) -> Result<(), ApiError> {
    match caller.kinds() {
        Some(kinds) if !kinds.contains(kind) => Err(other_kind(caller, kind)),
        _ => Ok(()),
    }
}

fn other_kind(caller: &Caller, kind: &str) -> ApiError {
    let of = caller.kinds().into_iter().flat_map(|kinds| kinds.iter());
    let of: Vec<_> = of.map(|kind| format!("`{kind}`")).collect();
    let detail = format!(
        "the token `{}` is for jobs of the kind {}, and not of `{kind}`; use a token that is for it",
        caller.name,
        of.join(", "),
    );
    ApiError::new("forbidden", detail)
}

/// Refuses an action on all kinds.
pub(super) fn permit_all(caller: &Caller, action: &str) -> Result<(), ApiError> {
    if caller.kinds().is_none() {
        return Ok(());
    }
    let detail = format!(
        "the token `{}` is for some kinds, and {action} can have subtasks of all; use a token without `kinds=`",
        caller.name,
    );
    Err(ApiError::new("forbidden", detail))
}

/// The kind in the text of a job.
#[derive(Deserialize)]
struct JobKind {
    kind: String,
}

/// Refuses the text of a schedule's job of another kind. Text that is no job is left for the check that
/// follows.
pub(super) fn permit_text(caller: &Caller, job: &RawValue) -> Result<(), ApiError> {
    match serde_json::from_str(job.get()) {
        Ok(JobKind { kind }) => permit(caller, &kind),
        Err(_) => Ok(()),
    }
}

/// Returns the token with which a worker calls.
pub(super) fn worker_token(caller: &Caller) -> WorkerToken {
    WorkerToken { name: caller.name.clone(), kinds: caller.kinds().cloned() }
}

/// Refuses a job of another kind.
pub(super) async fn permit_job(
    state: &AppState,
    caller: &Caller,
    id: JobId,
) -> Result<(), ApiError> {
    if caller.kinds().is_none() {
        return Ok(());
    }
    let job = blocking(&state.core, move |core| core.query.job(id)).await?;
    permit(caller, &job.kind)
}

/// Job named in the path, which the caller's token may change.
#[derive(Clone, Copy, Debug)]
pub(super) struct PermittedJob(pub(super) JobId);

impl FromRequestParts<AppState> for PermittedJob {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let JobPath(id) = JobPath::from_request_parts(parts, state).await?;
        if let Some(caller) = parts.extensions.get::<Caller>().cloned() {
            permit_job(state, &caller, id).await?;
        }
        Ok(PermittedJob(id))
    }
}

/// Kind named in the path, which the caller's token may change.
#[derive(Clone, Debug)]
pub(super) struct PermittedKind(pub(super) String);

impl FromRequestParts<AppState> for PermittedKind {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let path = Path::<String>::from_request_parts(parts, state).await;
        let Path(kind) = path.map_err(|_| ApiError::unknown("such kind"))?;
        match parts.extensions.get::<Caller>() {
            Some(caller) => permit(caller, &kind).map(|()| PermittedKind(kind)),
            None => Ok(PermittedKind(kind)),
        }
    }
}
