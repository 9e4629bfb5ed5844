//! `/v1/tenants`, and the tenant of a token: jobs that it submits belong to that tenant.

use axum::extract::State as Shared;
use axum::routing::get;
use axum::{Json, Router};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::app_state::AppState;
use super::auth::Caller;
use super::extract::Reader;
use super::problem::ApiError;
use crate::tenant::Tenant;
use crate::wire::{SubmitJob, TenantList};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/tenants", get(list))
}

async fn list(Shared(state): Shared<AppState>, _: Reader) -> Json<TenantList> {
    Json(TenantList { items: state.core.query.tenant_views() })
}

/// Gives a job the tenant of the caller's token. Refuses a job of another tenant.
pub(super) fn assign(caller: &Caller, job: &mut SubmitJob) -> Result<(), ApiError> {
    let Some(tenant) = caller.tenant() else { return Ok(()) };
    match &job.tenant {
        Some(other) if other != tenant => Err(other_tenant(caller, tenant, other)),
        _ => {
            job.tenant = Some(tenant.to_owned());
            Ok(())
        }
    }
}

/// The tenant in the text of a job.
#[derive(Deserialize)]
struct JobTenant {
    #[serde(default)]
    tenant: Option<String>,
}

/// Gives the stored text of a schedule's job the tenant of the caller's token. Text that is no job is
/// left as it is, for the check that follows.
pub(super) fn assign_in_text(caller: &Caller, job: &mut Box<RawValue>) -> Result<(), ApiError> {
    let Some(tenant) = caller.tenant() else { return Ok(()) };
    let named: Option<JobTenant> = serde_json::from_str(job.get()).ok();
    match named {
        Some(JobTenant { tenant: Some(other) }) if other != tenant => {
            return Err(other_tenant(caller, tenant, &other));
        }
        Some(JobTenant { tenant: None }) => {}
        _ => return Ok(()),
    }
    // The payload keeps its original text.
    let rest = job.get().trim_start().strip_prefix('{').unwrap_or_default();
    let text = format!("{{\"tenant\":\"{tenant}\",{rest}");
    if let Ok(text) = RawValue::from_string(text) {
        *job = text;
    }
    Ok(())
}

/// Refuses a run of a schedule whose job belongs to another tenant.
pub(super) fn may_run(caller: &Caller, job: &RawValue) -> Result<(), ApiError> {
    let Some(tenant) = caller.tenant() else { return Ok(()) };
    let named: Option<JobTenant> = serde_json::from_str(job.get()).ok();
    let other = named.and_then(|named| named.tenant);
    let other = other.unwrap_or_else(|| Tenant::DEFAULT_NAME.to_owned());
    if other == tenant { Ok(()) } else { Err(other_tenant(caller, tenant, &other)) }
}

fn other_tenant(caller: &Caller, tenant: &str, other: &str) -> ApiError {
    let name = &caller.name;
    ApiError::new(
        "forbidden",
        format!(
            "the token `{name}` is for the tenant `{tenant}`, and the job is of the tenant `{other}`; leave `tenant` out, or use a token of that tenant"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::Tokens;

    fn caller() -> Caller {
        let tokens = Tokens::parse("a submit plain:0123456789abcdef tenant=ann\n").unwrap();
        tokens.caller("0123456789abcdef").unwrap()
    }

    #[test]
    fn the_text_of_a_job_gets_the_tenant_and_keeps_the_rest() {
        let assigned = |text: &str| {
            let mut job = RawValue::from_string(text.into()).unwrap();
            assign_in_text(&caller(), &mut job).map(|()| job.get().to_owned())
        };
        let text = assigned(r#"{"kind":"a","payload":1.50}"#).unwrap();
        assert_eq!(text, r#"{"tenant":"ann","kind":"a","payload":1.50}"#);
        assert_eq!(assigned(&text).unwrap(), text);
        assert_eq!(assigned("[1]").unwrap(), "[1]");
        let refused = assigned(r#"{"kind":"a","tenant":"bob"}"#).unwrap_err();
        assert_eq!(refused.status().as_u16(), 403);
        assert!(refused.detail.contains("`ann`") && refused.detail.contains("`bob`"));
    }
}
