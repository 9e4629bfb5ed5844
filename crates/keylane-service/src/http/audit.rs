//! `/v1/audit`: the audit log.

use axum::extract::State as Shared;
use axum::http::request::Parts;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;

use super::app_state::AppState;
use super::blocking::blocking;
use super::extract::{Overseer, query};
use super::page_query::{cursor_of, limit_of};
use super::problem::ApiError;
use crate::engine::{AuditLog, OperatorAction};
use crate::store::AuditFilter;
use crate::wire::{AuditEntry, Page, Timestamp};

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
    let page = blocking(&state.core, move |core| {
        let job = job.map(|job| AuditLog::job_name(&core.query, &job));
        let filter = AuditFilter { who, what, job, since_ms: since.map(|since| since.0) };
        core.audit.page(&filter, cursor, limit)
    });
    Ok(Json(page.await?))
}

/// Refuses an action name that no entry can have.
fn known(what: String) -> Result<String, ApiError> {
    if OperatorAction::ALL.iter().any(|action| action.word() == what) {
        return Ok(what);
    }
    let all = OperatorAction::ALL.map(OperatorAction::word).join(", ");
    let why = format!("unknown action `{what}`; use one of {all}");
    Err(ApiError::new("invalid", format!("what: {why}")).at("?what", why))
}
