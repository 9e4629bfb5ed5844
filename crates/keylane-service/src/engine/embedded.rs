//! The service for those who embed it, without HTTP.

use std::time::Duration;

use super::audit::{Act, Action, Answered};
use super::{Core, Refused, Service};
use crate::JobId;
use crate::wire::{CancelMode, CancelRequest, Job, OutcomeView, Page, SubmitJob};

impl Service {
    /// Submits a job: the JSON that `POST /v1/jobs` takes. Returns when it is on the disk.
    ///
    /// Dropped before it returns, the job may or may not be accepted.
    ///
    /// # Errors
    /// If it makes no sense, or there is no room for it. Then it was not accepted; except after
    /// [`Refused::StoreFailed`], when it may have been.
    pub async fn submit(&self, job: &str) -> Result<JobId, Refused> {
        let job: SubmitJob = serde_json::from_str(job)
            .map_err(|error| Refused::Invalid(vec![(String::new(), error.to_string())]))?;
        let mut intake = self.core.begin_intake(job, false)?;
        intake.flush().await?;
        intake.finish(None).await.map(|submitted| submitted.id)
    }

    /// How a job is.
    ///
    /// # Errors
    /// If there is none of this id, or it cannot be read.
    pub fn job(&self, id: JobId) -> Result<Job, Refused> {
        self.core.job(id)
    }

    /// Waits until a job is over, and says how it ended. It can be dropped at any time.
    ///
    /// # Errors
    /// As [`job`](Self::job).
    pub async fn wait(&self, id: JobId) -> Result<Job, Refused> {
        let mut job = self.core.job(id)?;
        while !job.state.is_final() {
            job = self.core.changed(id, job.version, Duration::from_secs(3600)).await?;
        }
        Ok(job)
    }

    /// A page of a job's results, by number: from `cursor`, which the page before has named, or 0.
    ///
    /// # Errors
    /// As [`job`](Self::job).
    pub fn results(
        &self,
        id: JobId,
        cursor: u64,
        limit: usize,
    ) -> Result<Page<OutcomeView>, Refused> {
        self.core.results(id, super::ResultOrder::Submit, cursor, limit)
    }

    /// Cancels a job, and returns when that is on the disk. What runs may end by itself.
    /// It is in the log of what operators have done as that of `in-process`.
    ///
    /// # Errors
    /// If there is none of this id, or it is over.
    pub async fn cancel(&self, id: JobId) -> Result<Job, Refused> {
        let request = CancelRequest { mode: CancelMode::Graceful, reason: None };
        let act = Act::in_process(Action::CancelJob);
        act.on_job(id);
        let job = self.core.cancel_job(id, &request, &act).await?;
        self.core.log_rest(&act, Answered::Well).await?;
        Ok(job)
    }
}

impl Core {
    /// Waits until a job has another version than this, or the time is up.
    pub(crate) async fn changed(
        &self,
        id: JobId,
        version: u64,
        time: Duration,
    ) -> Result<Job, Refused> {
        let deadline = tokio::time::Instant::now() + time;
        loop {
            let notify = self.books().live.get_mut(&id.number()).map(super::books::Live::notify);
            let Some(notify) = notify else { return self.job(id) };
            // Registered before it is looked at, so that nothing is missed in between.
            let mut notified = std::pin::pin!(notify.notified());
            notified.as_mut().enable();
            let job = self.job(id)?;
            if job.version != version || job.state.is_final() {
                return Ok(job);
            }
            if tokio::time::timeout_at(deadline, notified).await.is_err() {
                return self.job(id);
            }
        }
    }
}
