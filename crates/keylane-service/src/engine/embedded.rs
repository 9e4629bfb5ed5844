//! API of the service for the embedding program, without HTTP.

use std::time::Duration;

use super::Service;
use super::audit::{ActionAnswer, AuditedRequest, OperatorAction};
use super::submission::ExtraWrites;
use crate::JobId;
use crate::request_error::RequestError;
use crate::wire::{CancelMode, CancelRequest, Job, OutcomeView, Page, SubmitJob};

impl Service {
    /// Submits a job, as the JSON that `POST /v1/jobs` takes. Returns when it is on the disk.
    ///
    /// If the future is dropped, the job may or may not be accepted.
    ///
    /// # Errors
    /// Returns an error if the job is invalid or the capacity is exhausted. The job was not
    /// accepted then, except after [`RequestError::StoreFailed`], when it may have been.
    pub async fn submit(&self, job: &str) -> Result<JobId, RequestError> {
        let job: SubmitJob = serde_json::from_str(job)
            .map_err(|error| RequestError::Invalid(vec![(String::new(), error.to_string())]))?;
        let mut intake = self.core.submission.begin_intake(job, false)?;
        intake.flush().await?;
        let ticket = intake.submit(None, ExtraWrites::default()).await?;
        Ok(ticket.outcome().await?.id)
    }

    /// Returns a job.
    ///
    /// # Errors
    /// Returns an error if no job has this id, or it cannot be read.
    pub fn job(&self, id: JobId) -> Result<Job, RequestError> {
        self.core.query.job(id)
    }

    /// Waits until a job is over, and returns it. Cancel safe.
    ///
    /// # Errors
    /// As for [`job`](Self::job).
    pub async fn wait(&self, id: JobId) -> Result<Job, RequestError> {
        loop {
            let job = self.core.query.wait_for_end(id, Duration::from_secs(3600)).await?;
            if job.state.is_final() {
                return Ok(job);
            }
        }
    }

    /// Returns a page of a job's results, by subtask number: from `cursor`, which the previous page
    /// names, or from 0.
    ///
    /// # Errors
    /// As for [`job`](Self::job).
    pub fn results(
        &self,
        id: JobId,
        cursor: u64,
        limit: usize,
    ) -> Result<Page<OutcomeView>, RequestError> {
        self.core.query.results(id, super::ResultOrder::Submit, cursor, limit, None)
    }

    /// Cancels a job, and returns when that is on the disk. Running attempts may still end by
    /// themselves. The audit log records the action for the caller `in-process`.
    ///
    /// # Errors
    /// Returns an error if no job has this id, or it is over.
    pub async fn cancel(&self, id: JobId) -> Result<Job, RequestError> {
        let request = CancelRequest { mode: CancelMode::Graceful, reason: None };
        let act = AuditedRequest::in_process(OperatorAction::CancelJob);
        act.on_job(id);
        let job = self.core.control.cancel_job(id, &request, &act).await?;
        self.core.audit.log_rest(&act, ActionAnswer::Well).await?;
        Ok(job)
    }
}
