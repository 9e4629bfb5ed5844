//! `/v1/audit`: the audit log, and the guarantee that each operator's request has an entry.
//!
//! Operators' routes are in separate routers, behind [`write_down`]. It creates the request's
//! [`Act`], which the handler gets as its [`Operator`], and records the result if the engine has
//! not. A handler that takes an `Operator` anywhere else fails with an internal error, so that no
//! route can be forgotten.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{
    ConnectInfo, FromRequestParts, MatchedPath, RawPathParams, Request, State as Shared,
};
use axum::http::request::Parts;
use axum::http::{Extensions, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::AppState;
use super::again;
use super::auth::{Caller, Role};
use super::extract::{Overseer, query};
use super::guard::need;
use super::jobs::{blocking, cursor_of, limit_of};
use super::problem::ApiError;
use crate::engine::{Act, Action, Answered};
use crate::store::AuditFilter;
use crate::wire::{AuditEntry, Page, Problem, Timestamp};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/audit", get(list))
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct AuditListQuery {
    who: Option<String>,
    what: Option<String>,
    /// Identifier of the job, the server's or the client's.
    job: Option<String>,
    since: Option<Timestamp>,
    cursor: Option<String>,
    limit: Option<usize>,
}

async fn list(
    Shared(state): Shared<AppState>,
    _: Overseer,
    parts: Parts,
) -> Result<Json<Page<AuditEntry>>, ApiError> {
    let AuditListQuery { who, what, job, since, cursor, limit } = query(&parts)?;
    let (limit, cursor) = (limit_of(limit)?, cursor_of(cursor.as_ref())?);
    let what = what.map(known).transpose()?;
    let page = blocking(move || {
        let job = job.map(|job| state.core.audited_job(&job));
        let filter = AuditFilter { who, what, job, since_ms: since.map(|since| since.0) };
        state.core.audit_page(&filter, cursor, limit)
    });
    Ok(Json(page.await?))
}

/// Refuses an action name that no entry can have.
fn known(what: String) -> Result<String, ApiError> {
    if Action::ALL.iter().any(|action| action.word() == what) {
        return Ok(what);
    }
    let all = Action::ALL.map(Action::word).join(", ");
    let why = format!("unknown action `{what}`; use one of {all}");
    Err(ApiError::new("invalid", format!("what: {why}")).at("?what", why))
}

/// Action of each of the operators' routes.
const ACTIONS: &[(&str, &str, Action)] = &[
    ("POST", "/v1/jobs/{id}/cancel", Action::CancelJob),
    ("POST", "/v1/jobs/{id}/pause", Action::PauseJob),
    ("POST", "/v1/jobs/{id}/resume", Action::ResumeJob),
    ("POST", "/v1/jobs/{id}/retry", Action::RetryJob),
    ("PATCH", "/v1/jobs/{id}", Action::PatchJob),
    ("DELETE", "/v1/jobs/{id}", Action::PurgeJob),
    ("POST", "/v1/keys", Action::SteerKey),
    ("POST", "/v1/keys/{key}/{what}", Action::SteerKey),
    ("PUT", "/v1/schedules/{name}", Action::PutSchedule),
    ("DELETE", "/v1/schedules/{name}", Action::DeleteSchedule),
    ("POST", "/v1/schedules/{name}/pause", Action::PauseSchedule),
    ("POST", "/v1/schedules/{name}/resume", Action::ResumeSchedule),
    ("POST", "/v1/schedules/{name}/run", Action::RunSchedule),
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
    let (request, keyed) = match again::key_of(&state, action, request).await {
        Ok((request, keyed)) => (Ok(request), keyed),
        Err(refusal) => (Err(refusal), None),
    };
    let act = Arc::new(act.keyed(keyed.clone()));
    let response = match (request, keyed) {
        (Err(refusal), _) => refusal.into_response(),
        (Ok(request), None) => next.run(with(&act, request)).await,
        (Ok(request), Some(keyed)) => {
            let uri = request.uri().clone();
            let done = again::done_before(&state, &keyed, action, names.as_ref(), &uri).await;
            match done {
                // The engine has written the entry.
                Ok(Ok(response)) => return response,
                Ok(Err(claim)) => again::run(claim, with(&act, request), next).await,
                Err(refusal) => refusal.into_response(),
            }
        }
    };
    let problem = response.extensions().get::<Problem>().map(|problem| &*problem.code);
    let answered = match response.status() {
        StatusCode::FORBIDDEN => Answered::Denied,
        status if status.is_success() => Answered::Well,
        // The framework's own errors are not problem documents.
        _ => Answered::Refused(problem.unwrap_or("bad-syntax")),
    };
    match state.core.log_rest(&act, answered).await {
        Ok(()) => response,
        Err(refused) => ApiError::from(refused).into_response(),
    }
}

/// Attaches the audit context to a request.
fn with(act: &Arc<Act>, mut request: Request) -> Request {
    request.extensions_mut().insert(Arc::clone(act));
    request
}

fn act_of(request: &Request, names: Option<&RawPathParams>) -> Option<(Act, Action)> {
    let path = request.extensions().get::<MatchedPath>()?.as_str();
    let method = request.method().as_str();
    let found = ACTIONS.iter().find(|(one, other, _)| (*one, *other) == (method, path));
    let (_, _, action) = *found?;
    let caller = request.extensions().get::<Caller>()?;
    let act = Act::new(&caller.name, peer(request.extensions()), action);
    for (name, value) in names.into_iter().flatten() {
        match name {
            "id" => act.on_job(value),
            "key" => act.on_key(value),
            "name" => act.on_schedule(value),
            _ => {}
        }
    }
    Some((act, action))
}

/// Returns the client's address, if the server knows it.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let ConnectInfo(address) = extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(address.ip().to_canonical())
}

/// Caller with the operator role, with the audit entry of the request.
#[derive(Debug)]
pub(super) struct Operator(pub(super) Arc<Act>);

impl FromRequestParts<AppState> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>();
        let caller =
            caller.ok_or_else(|| ApiError::new("unauthorized", "the request has no caller"))?;
        need(caller, Role::Operate)?;
        let act = parts.extensions.get::<Arc<Act>>().cloned();
        let forgotten = || {
            ApiError::new("internal", "the route of this action is not recorded in the audit log")
        };
        act.map(Operator).ok_or_else(forgotten)
    }
}
