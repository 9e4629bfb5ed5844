//! Errors of the service's operations.

use std::fmt;
use std::time::Duration;

/// Error of a request. The request changed nothing, unless the variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RequestError {
    /// The job, subtask or key does not exist.
    #[error("there is no {what}")]
    Unknown {
        /// Noun and id of the requested object.
        what: String,
    },
    /// The object existed and was removed.
    #[error("{what} was removed")]
    Gone {
        /// Noun and id of the requested object.
        what: String,
    },
    /// The request is invalid: pairs of JSON pointer and message. The text of the error is the first one.
    #[error(fmt = invalid)]
    Invalid(Vec<(String, String)>),
    /// The request conflicts with the current state.
    #[error("{0}")]
    Conflict(String),
    /// The idempotency key was used for a different request.
    #[error("this idempotency key was used for another request")]
    OtherRequest,
    /// The object has changed since the version that the request names.
    #[error("the object has changed since it was read; its version is {version}")]
    Stale {
        /// Current version.
        version: u64,
    },
    /// The lease has ended or belongs to another attempt.
    #[error("the lease has ended: the subtask may be another worker's by now")]
    LeaseLost,
    /// The request exceeds a size limit of the service.
    #[error("{0}")]
    TooLarge(String),
    /// A limit of waiting work is reached.
    #[error("{what}; try again in {} s", after.as_secs().max(1))]
    Backlog {
        /// Message that names the limit.
        what: String,
        /// Suggested time before a retry.
        after: Duration,
    },
    /// The service cannot do it now.
    #[error("{0}")]
    Busy(String),
    /// A backup could not be written.
    #[error("the backup failed: {0}")]
    BackupFailed(String),
    /// The service is shutting down.
    #[error("the service is about to stop and takes nothing more")]
    Draining,
    /// The disk, or the store's maximum size, is full.
    #[error("the disk, or the size that the store may have, is full")]
    StoreFull,
    /// The store cannot be written or read now: its database does not answer, or another program locks its file. Nothing was
    /// done.
    #[error("the store cannot be used now: {0}")]
    StoreUnavailable(String),
    /// The request was executed in memory, and the disk became full, or the database went away, before it was
    /// written. It is written when that is possible again; if the service ends before, the request is lost.
    #[error(
        "it was done and is not on the disk, which is full, or whose database is away; it is written as soon as \
         that is possible, and lost if the server ends before"
    )]
    NotYetWritten,
    /// The requested object is damaged in the store. Other objects are not affected.
    #[error("what the store has of it is damaged: {0}")]
    Damaged(String),
    /// The store has failed. The change may or may not be on disk.
    #[error("the store has failed, and the service must be started again: {0}")]
    StoreFailed(String),
}

/// Writes the first message, with its field: without it, `1 is the least` says nothing.
fn invalid(fields: &[(String, String)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match fields.first() {
        Some((pointer, why)) if pointer.is_empty() => f.write_str(why),
        Some((pointer, why)) => write!(f, "{pointer}: {why}"),
        None => f.write_str("the request is invalid"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_request_is_described_by_its_first_field() {
        let text = |fields: &[(&str, &str)]| {
            let owned = fields.iter().map(|(at, why)| ((*at).to_owned(), (*why).to_owned()));
            RequestError::Invalid(owned.collect()).to_string()
        };
        assert_eq!(
            text(&[("/weight", "1 is the least"), ("/key", "no")]),
            "/weight: 1 is the least"
        );
        assert_eq!(text(&[("", "there is nothing to do")]), "there is nothing to do");
        assert_eq!(text(&[]), "the request is invalid");
    }
}
