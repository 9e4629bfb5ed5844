//! Extractor for operators' routes: the caller has the role, and the request its audit entry.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;

use super::app_state::AppState;
use super::auth::{Caller, Role};
use super::permission::need;
use super::problem::ApiError;
use crate::engine::AuditedRequest;

/// Caller with the operator role, with the audit entry of the request.
#[derive(Debug)]
pub(super) struct OperatorCaller(pub(super) Arc<AuditedRequest>);

impl FromRequestParts<AppState> for OperatorCaller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, ApiError> {
        let caller = parts.extensions.get::<Caller>();
        let caller =
            caller.ok_or_else(|| ApiError::new("unauthorized", "the request has no caller"))?;
        need(caller, Role::Operate)?;
        let act = parts.extensions.get::<Arc<AuditedRequest>>().cloned();
        let forgotten = || {
            ApiError::new("internal", "the route of this action is not recorded in the audit log")
        };
        act.map(OperatorCaller).ok_or_else(forgotten)
    }
}
