//! Why the service did not do what it was asked.

use std::time::Duration;

/// Why a request was refused. Nothing was done, unless a variant says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// There is no such job, subtask or key.
    #[error("there is no {what}")]
    Unknown {
        /// What was asked for.
        what: String,
    },
    /// There was one, and it was removed.
    #[error("{what} was removed")]
    Gone {
        /// What was asked for.
        what: String,
    },
    /// It makes no sense as it is.
    #[error("{}", .0.first().map_or("it makes no sense", |field| &*field.1))]
    Invalid(Vec<(String, String)>),
    /// It does not go with how things are.
    #[error("{0}")]
    Conflict(String),
    /// The idempotency key was used for something else.
    #[error("this idempotency key was used for another request")]
    OtherRequest,
    /// What was changed is no longer as it was when it was looked at.
    #[error("it has changed since; its version is {version}")]
    Stale {
        /// Its version now.
        version: u64,
    },
    /// The lease has ended, or is of another attempt.
    #[error("the lease has ended: the subtask may be another worker's by now")]
    LeaseLost,
    /// A bound of the service on sizes.
    #[error("{0}")]
    TooLarge(String),
    /// As much waits as may.
    #[error("{what}; try again in {} s", after.as_secs().max(1))]
    Backlog {
        /// Which bound was met.
        what: String,
        /// When there may be room.
        after: Duration,
    },
    /// The service is about to stop.
    #[error("the service is about to stop and takes nothing more")]
    Draining,
    /// The disk is full.
    #[error("the disk, or the size that the store may have, is full")]
    StoreFull,
    /// The disk has become full in this moment. It was done, and is to be written when there is room: if the service
    /// ends before that, it was not done.
    #[error(
        "it was done and is not on the disk: that, or the size that the store may have, is full; it is written when \
         there is room, and lost if the server ends before"
    )]
    NotYetWritten,
    /// What was asked for is damaged in the store. All else goes on.
    #[error("what the store has of it is damaged: {0}")]
    Damaged(String),
    /// The store has failed. What was asked may or may not have been written.
    #[error("the store has failed, and the service must be started again: {0}")]
    StoreFailed(String),
}
