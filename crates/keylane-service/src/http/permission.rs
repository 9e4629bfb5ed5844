//! Refusal of requests that their caller or the server does not permit.

use super::auth::{Caller, Role};
use super::problem::ApiError;
use crate::wire::Timestamp;

/// Error for a change on a read-only server.
pub(super) fn read_only() -> ApiError {
    ApiError::new("forbidden", "this server is read-only")
}

/// Refuses a caller whose token is expired.
pub(super) fn not_expired(caller: &Caller) -> Result<(), ApiError> {
    match caller.expires() {
        Some(expires) if caller.is_expired(Timestamp::now()) => {
            let detail = format!("the token `{}` has expired at {expires}", caller.name);
            Err(ApiError::new("unauthorized", detail))
        }
        _ => Ok(()),
    }
}

/// Refuses a caller without the role.
pub(super) fn need(caller: &Caller, role: Role) -> Result<(), ApiError> {
    if caller.may(role) {
        return Ok(());
    }
    let detail = format!("the token `{}` has no role that permits this action", caller.name);
    Err(ApiError::new("forbidden", detail))
}
