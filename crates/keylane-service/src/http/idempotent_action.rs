//! Idempotent operators' requests: an action with an `Idempotency-Key` is executed once, and a
//! repeated request is answered with the present state.

use axum::Json;
use axum::body::Body;
use axum::extract::{RawPathParams, Request};
use axum::http::{StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::app_state::AppState;
use super::auth::{Caller, Role};
use super::blocking::blocking;
use super::extract::{query_of, read_body};
use super::problem::ApiError;
use super::request_headers::scope_of;
use super::response::{key_or_empty, put_replayed, steered};
use crate::JobId;
use crate::engine::{EarlierAction, KeyedClaim, KeyedRequest, OperatorAction};

/// Reads the idempotency key of a request. The body, which is hashed, is read and put back.
///
/// Returns `None` for a run of a schedule, whose key belongs to the job that it creates, for a backup,
/// which is new each time, for actions on servers, which have the same effect twice, and for a caller without the role.
pub(super) async fn key_of(
    state: &AppState,
    action: OperatorAction,
    request: Request,
) -> Result<(Request, Option<KeyedRequest>), ApiError> {
    let caller = request.extensions().get::<Caller>().cloned();
    let caller = caller.filter(|caller| caller.may(Role::Operate));
    let has_none = matches!(
        action,
        OperatorAction::RunSchedule
            | OperatorAction::BackUp
            | OperatorAction::DrainNode
            | OperatorAction::ResumeNode
    );
    let Some(caller) = caller.filter(|_| !has_none) else {
        return Ok((request, None));
    };
    let Some(scope) = scope_of(request.headers(), &caller)? else { return Ok((request, None)) };
    let (parts, body) = request.into_parts();
    let body = read_body(body, state.core.settings.bounds.body_bytes).await?;
    let uri = parts.uri.path_and_query().map_or("", |path| path.as_str());
    let keyed = KeyedRequest::new(scope, parts.method.as_str(), uri, &body);
    Ok((Request::from_parts(parts, Body::from(body)), Some(keyed)))
}

/// Returns the answer to a repeated request; otherwise a claim, which permits the execution for as
/// long as it is held.
pub(super) async fn done_before(
    state: &AppState,
    keyed: &KeyedRequest,
    action: OperatorAction,
    names: Option<&RawPathParams>,
    uri: &Uri,
) -> Result<Result<Response, KeyedClaim>, ApiError> {
    let job = match state.core.idempotency.claim_keyed(keyed).await? {
        EarlierAction::Nothing(claim) => return Ok(Err(claim)),
        EarlierAction::Same(job) => job,
    };
    let mut response = present(state, action, job, names, uri).await?;
    put_replayed(&mut response);
    Ok(Ok(response))
}

/// Executes a request to its end even if its client disconnects, because a repeated request could
/// not know its progress.
pub(super) async fn run(claim: KeyedClaim, request: Request, next: Next) -> Response {
    let run = tokio::spawn(async move {
        let response = next.run(request).await;
        drop(claim);
        response
    });
    run.await.unwrap_or_else(|panic| {
        tracing::error!(%panic, "a request made the server panic");
        ApiError::new("internal", "something went wrong in the server").into_response()
    })
}

/// Key that the query of a command names.
#[derive(Debug, Deserialize)]
struct TargetKey {
    key: String,
}

/// Returns the present state of the action's target.
async fn present(
    state: &AppState,
    action: OperatorAction,
    job: JobId,
    names: Option<&RawPathParams>,
    uri: &Uri,
) -> Result<Response, ApiError> {
    let named = |wanted: &str| {
        let found = names.into_iter().flatten().find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.to_owned()).unwrap_or_default()
    };
    let core = &state.core;
    Ok(match action {
        OperatorAction::CancelJob | OperatorAction::RetryJob => {
            steered(&blocking(core, move |core| core.query.job(job)).await?)
        }
        OperatorAction::PauseJob | OperatorAction::ResumeJob | OperatorAction::PatchJob => {
            Json(blocking(core, move |core| core.query.job(job)).await?).into_response()
        }
        OperatorAction::PurgeJob
        | OperatorAction::DeleteSchedule
        | OperatorAction::RemoveWebhook => StatusCode::NO_CONTENT.into_response(),
        // By now it may be delivered.
        OperatorAction::RetryWebhook => Json(core.webhooks.get(&named("webhook"))?).into_response(),
        OperatorAction::SteerKey
        | OperatorAction::PauseKey
        | OperatorAction::ResumeKey
        | OperatorAction::RetryHead
        | OperatorAction::SkipHead => {
            let key = match named("key") {
                key if !key.is_empty() => key,
                _ => query_of::<TargetKey>(uri)?.key,
            };
            Json(key_or_empty(core.query.key(key.as_bytes()), key)).into_response()
        }
        OperatorAction::PutSchedule
        | OperatorAction::PauseSchedule
        | OperatorAction::ResumeSchedule
        | OperatorAction::RunSchedule => {
            let name = named("name");
            Json(core.schedules.get(&name)?).into_response()
        }
        OperatorAction::PauseKind
        | OperatorAction::ResumeKind
        | OperatorAction::PatchKind
        | OperatorAction::ResetKind => Json(core.query.kind_view(&named("kind"))?).into_response(),
        OperatorAction::BackUp | OperatorAction::DrainNode | OperatorAction::ResumeNode => {
            unreachable!("it has no idempotency key")
        }
    })
}
