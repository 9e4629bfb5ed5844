//! Refusal of requests that their caller or the server does not permit.

use super::auth::{Caller, Role};
use super::problem::ApiError;

/// Error for a change on a read-only server.
pub(super) fn read_only() -> ApiError {
    ApiError::new("forbidden", "this server is read-only")
}

/// Refuses a caller without the role.
pub(super) fn need(caller: &Caller, role: Role) -> Result<(), ApiError> {
    if caller.may(role) {
        return Ok(());
    }
    let detail = format!("the token `{}` has no role that permits this action", caller.name);
    Err(ApiError::new("forbidden", detail))
}
