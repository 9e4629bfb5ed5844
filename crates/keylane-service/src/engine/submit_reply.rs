//! Replies to the clients of submissions.

use tokio::sync::oneshot;

use super::name_locks::NameLock;
use crate::JobId;
use crate::request_error::RequestError;
use crate::wire::Job;

/// Result of a submission.
#[derive(Clone, Debug)]
pub(crate) struct SubmitResult {
    pub(crate) id: JobId,
    pub(crate) job: Job,
    /// The job had been submitted before: under this idempotency key or client id, or an equal one that is unique.
    pub(crate) replayed: bool,
}

/// Job that was handed to the store, or one that was accepted before. Jobs are accepted in the
/// order in which they are handed over.
#[derive(Debug)]
pub(crate) enum SubmitTicket {
    Before(Box<SubmitResult>),
    /// The result is pending. An equal submission waits until it is decided.
    Coming(oneshot::Receiver<Result<SubmitResult, RequestError>>),
}

impl SubmitTicket {
    /// Waits until the job is accepted or refused. Dropping the future does not cancel the
    /// submission.
    pub(crate) async fn outcome(self) -> Result<SubmitResult, RequestError> {
        match self {
            SubmitTicket::Before(before) => Ok(*before),
            SubmitTicket::Coming(replied) => replied
                .await
                .map_err(|_| RequestError::StoreFailed("the writer has ended".into()))?,
        }
    }
}

/// Reply that waits for the rest of its commit.
#[derive(Debug)]
pub(super) struct PendingReply {
    pub(super) reply: oneshot::Sender<Result<SubmitResult, RequestError>>,
    pub(super) submitted: SubmitResult,
    pub(super) claims: Vec<NameLock>,
}

impl PendingReply {
    /// Releases the locks and replies.
    pub(super) fn reply(self) {
        drop(self.claims);
        // A client that no longer waits can query the job by its idempotency key.
        let _ = self.reply.send(Ok(self.submitted));
    }
}
