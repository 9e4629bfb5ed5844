//! Submission of several jobs in one transaction: all are accepted or none.

use std::sync::Arc;

use tokio::sync::oneshot;

use super::job_submission::JobSubmission;
use super::submission::Submission;
use super::submit_reply::SubmitResult;
use crate::request_error::RequestError;
use crate::store::{Changes, IdempotencyEntry};

/// Returns the idempotency key of a job in a batch: the batch's key and the job's place. No
/// client's key contains a line end.
pub(crate) fn key_in_batch(key: &str, place: usize) -> String {
    format!("{key}\n{place}")
}

impl Submission {
    /// Accepts jobs in one transaction, in their order, or none of them. `hash` is the hash of the
    /// whole request; an equal request under the same key gets the same jobs.
    pub(crate) async fn accept_together(
        self: &Arc<Self>,
        intakes: Vec<JobSubmission>,
        scope: Option<(String, String)>,
        hash: [u8; 32],
    ) -> Result<Vec<SubmitResult>, RequestError> {
        let mut claim = None;
        if let Some((caller, key)) = scope.clone() {
            claim = Some(self.idempotency.claim(&caller, &key).await);
            let count = intakes.len();
            // One blocking call for all jobs, because there may be a thousand.
            let before =
                self.look_up(move |this| this.submitted_together(&caller, &key, hash, count));
            if let Some(before) = before.await? {
                return Ok(before);
            }
        }
        self.may_take_more()?;
        let expires_ms = self.idempotency.ends();
        let (mut jobs, mut all) = (Vec::new(), Vec::new());
        for (place, intake) in intakes.into_iter().enumerate() {
            let entry = scope.as_ref().map(|(caller, key)| IdempotencyEntry {
                scope: caller.clone(),
                key: key_in_batch(key, place),
                body_hash: hash,
                expires_ms,
            });
            let (upload, new, entering) = intake.into_parts(entry)?;
            jobs.push((upload, new));
            all.push(entering);
        }
        let (reply, replied) = oneshot::channel();
        let this = Arc::clone(self);
        let accept = move |committed: Result<_, _>| {
            let accept_all = |_| all.into_iter().map(|entering| this.accept(entering)).collect();
            let answer =
                committed.map(accept_all).map_err(|error| this.status.write_refused(error));
            drop(claim);
            // A client that no longer waits can repeat the request with the batch's idempotency
            // key.
            let _ = reply.send(answer);
        };
        self.store.accept_with_async(jobs, Changes::new(), accept).await;
        replied.await.map_err(|_| RequestError::StoreFailed("the writer has ended".into()))?
    }

    /// Returns the jobs of a batch that was submitted under this key, if there was one.
    fn submitted_together(
        &self,
        caller: &str,
        key: &str,
        hash: [u8; 32],
        count: usize,
    ) -> Result<Option<Vec<SubmitResult>>, RequestError> {
        let found = (0..count).map(|place| {
            self.submitted_before(caller, &key_in_batch(key, place), hash).transpose()
        });
        // The jobs were written together, so either all of them are there or none.
        found.collect::<Option<Result<Vec<_>, _>>>().transpose()
    }
}
