//! Client ids: names that clients give to jobs, in addition to the ids of the service.

use super::Core;
use super::submit_reply::SubmitResult;
use crate::request_error::RequestError;
use crate::store::JobAlias;

/// Maximum length of a client id, in bytes.
const MAX_BYTES: usize = 128;

/// Scope of claims on client ids. No caller has this name.
pub(super) const SCOPE: &str = "\nid";

/// Returns true if the text may be a client id: safe in a path, and distinct from the service's own
/// ids.
pub(super) fn is_fit(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._~:-".contains(&byte);
    let is_ours = text.starts_with("job_") || text == "batch";
    (1..=MAX_BYTES).contains(&text.len()) && text.bytes().all(is_plain) && !is_ours
}

/// Returns an error if the text may not be a client id.
pub(crate) fn check(text: &str) -> Result<(), RequestError> {
    if is_fit(text) {
        return Ok(());
    }
    let why = format!(
        "`id` must have 1 to {MAX_BYTES} characters out of letters, digits, `.`, `_`, `~`, `:`, `-`, must not begin with `job_`, and must not be `batch`"
    );
    Err(RequestError::Invalid(vec![("id".to_owned(), why)]))
}

impl Core {
    /// Returns the job that has this client id already, if an equal request created it. Reads the
    /// store.
    pub(super) fn called_before(
        &self,
        name: &str,
        hash: [u8; 32],
    ) -> Result<Option<SubmitResult>, RequestError> {
        let Some(JobAlias { job: id, body_hash, .. }) = self.query.alias(name)? else {
            return Ok(None);
        };
        if body_hash != hash {
            let why = format!(
                "`{name}` is {id}, which was created by a different request; use another id"
            );
            return Err(RequestError::Conflict(why));
        }
        Ok(Some(SubmitResult { id, job: self.query.job(id)?, replayed: true }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clients_id_is_plain_and_none_of_ours() {
        for fit in ["a", "order-4711", "2026:05.report~1", "jobs", &"x".repeat(128)] {
            assert_eq!(check(fit), Ok(()), "{fit}");
        }
        for unfit in ["", "a/b", "a b", "ä", "job_1", "batch", &"x".repeat(129)] {
            assert!(check(unfit).is_err(), "{unfit}");
        }
    }
}
