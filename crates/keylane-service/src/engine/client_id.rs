//! Client ids: names that clients give to jobs, in addition to the ids of the service.

use crate::request_error::RequestError;

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
