//! Extractor for the job that the path names.

use std::collections::HashMap;
use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use super::app_state::AppState;
use super::blocking::blocking;
use super::problem::ApiError;
use crate::JobId;
use crate::engine::AuditedRequest;

/// Job named in the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobPath(pub(super) JobId);

impl FromRequestParts<AppState> for JobPath {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, ApiError> {
        let path = Path::<HashMap<String, String>>::from_request_parts(parts, state);
        let path = path.await.map_err(|_| ApiError::unknown("such job"))?;
        let text = path.get("id").cloned().unwrap_or_default();
        if let Some(id) = JobId::parse(&text) {
            return Ok(JobPath(id));
        }
        let id = blocking(&state.core, move |core| core.query.resolve(&text)).await?;
        // Names can be reused, so the audit log needs the identifier.
        if let Some(act) = parts.extensions.get::<Arc<AuditedRequest>>() {
            act.on_job(id);
        }
        Ok(JobPath(id))
    }
}
