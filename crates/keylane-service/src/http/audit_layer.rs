//! Layer over operators' routes that guarantees an entry in the audit log for each request.
//!
//! Operators' routes are in separate routers, behind [`write_down`]. It creates the request's
//! [`AuditedRequest`], which the handler gets as its [`OperatorCaller`](super::operator::OperatorCaller), and records the result if the engine has
//! not. A handler that takes an `OperatorCaller` anywhere else fails with an internal error, so that no
//! route can be forgotten.

use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State as Shared};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::app_state::AppState;
use super::auth::Caller;
use super::extract::peer;
use super::idempotent_action;
use super::problem::ApiError;
use crate::engine::{ActionAnswer, AuditedRequest, OperatorAction};
use crate::wire::Problem;

/// Action of each of the operators' routes.
const ACTIONS: &[(&str, &str, OperatorAction)] = &[
    ("POST", "/v1/jobs/{id}/cancel", OperatorAction::CancelJob),
    ("POST", "/v1/jobs/{id}/pause", OperatorAction::PauseJob),
    ("POST", "/v1/jobs/{id}/resume", OperatorAction::ResumeJob),
    ("POST", "/v1/jobs/{id}/retry", OperatorAction::RetryJob),
    ("PATCH", "/v1/jobs/{id}", OperatorAction::PatchJob),
    ("DELETE", "/v1/jobs/{id}", OperatorAction::PurgeJob),
    ("POST", "/v1/keys", OperatorAction::SteerKey),
    ("POST", "/v1/keys/{key}/{what}", OperatorAction::SteerKey),
    ("PUT", "/v1/schedules/{name}", OperatorAction::PutSchedule),
    ("DELETE", "/v1/schedules/{name}", OperatorAction::DeleteSchedule),
    ("POST", "/v1/schedules/{name}/pause", OperatorAction::PauseSchedule),
    ("POST", "/v1/schedules/{name}/resume", OperatorAction::ResumeSchedule),
    ("POST", "/v1/schedules/{name}/run", OperatorAction::RunSchedule),
    ("PATCH", "/v1/kinds/{kind}", OperatorAction::PatchKind),
    ("POST", "/v1/kinds/{kind}/pause", OperatorAction::PauseKind),
    ("POST", "/v1/kinds/{kind}/resume", OperatorAction::ResumeKind),
    ("POST", "/v1/kinds/{kind}/reset", OperatorAction::ResetKind),
    ("POST", "/v1/webhooks/{webhook}/retry", OperatorAction::RetryWebhook),
    ("DELETE", "/v1/webhooks/{webhook}", OperatorAction::RemoveWebhook),
    ("POST", "/v1/backup", OperatorAction::BackUp),
    ("POST", "/v1/nodes/drain", OperatorAction::DrainNode),
    ("POST", "/v1/nodes/resume", OperatorAction::ResumeNode),
];

/// Ensures that an operator's request has its entry before the answer, and that it is executed once
/// under an idempotency key.
pub(super) async fn write_down(
    Shared(state): Shared<AppState>,
    names: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let names = names.ok();
    let Some((act, action)) = act_of(&request, names.as_ref()) else {
        return next.run(request).await;
    };
    let (request, keyed) = match idempotent_action::key_of(&state, action, request).await {
        Ok((request, keyed)) => (Ok(request), keyed),
        Err(refusal) => (Err(refusal), None),
    };
    let act = Arc::new(act.keyed(keyed.clone()));
    let response = match (request, keyed) {
        (Err(refusal), _) => refusal.into_response(),
        (Ok(request), None) => next.run(with(&act, request)).await,
        (Ok(request), Some(keyed)) => {
            let uri = request.uri().clone();
            let done =
                idempotent_action::done_before(&state, &keyed, action, names.as_ref(), &uri).await;
            match done {
                // The engine has written the entry.
                Ok(Ok(response)) => return response,
                Ok(Err(claim)) => idempotent_action::run(claim, with(&act, request), next).await,
                Err(refusal) => refusal.into_response(),
            }
        }
    };
    let problem = response.extensions().get::<Problem>().map(|problem| &*problem.code);
    let answered = match response.status() {
        StatusCode::FORBIDDEN => ActionAnswer::Denied,
        status if status.is_success() => ActionAnswer::Well,
        // The framework's own errors are not problem documents.
        _ => ActionAnswer::Refused(problem.unwrap_or("bad-syntax")),
    };
    match state.core.audit.log_rest(&act, answered).await {
        Ok(()) => response,
        Err(refused) => ApiError::from(refused).into_response(),
    }
}

/// Attaches the audit context to a request.
fn with(act: &Arc<AuditedRequest>, mut request: Request) -> Request {
    request.extensions_mut().insert(Arc::clone(act));
    request
}

fn act_of(
    request: &Request,
    names: Option<&RawPathParams>,
) -> Option<(AuditedRequest, OperatorAction)> {
    let path = request.extensions().get::<MatchedPath>()?.as_str();
    let method = request.method().as_str();
    let found = ACTIONS.iter().find(|(one, other, _)| (*one, *other) == (method, path));
    let (_, _, action) = *found?;
    let caller = request.extensions().get::<Caller>()?;
    let act = AuditedRequest::new(&caller.name, peer(request.extensions()), action);
    for (name, value) in names.into_iter().flatten() {
        match name {
            "id" => act.on_job(value),
            "key" => act.on_key(value),
            "name" => act.on_schedule(value),
            "kind" => act.on_kind(value),
            _ => {}
        }
    }
    Some((act, action))
}
