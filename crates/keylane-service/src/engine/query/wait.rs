//! Requests that wait for a change or the end of a job.
//!
//! A view of a job costs a look at its lanes under the lock of the engine state. So a waiting request
//! compares versions, or waits for the end alone, and builds the view once, for its answer.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;

use super::Query;
use crate::JobId;
use crate::engine::engine_state::ActiveJob;
use crate::engine::timer::{Deadline, timeout};
use crate::request_error::RequestError;
use crate::wire::Job;

impl Query {
    /// Waits until a job has a version other than `version` or is over, or the timeout expires.
    pub(crate) async fn changed(
        &self,
        id: JobId,
        version: u64,
        time: Duration,
    ) -> Result<Job, RequestError> {
        let deadline = Deadline::after(time);
        loop {
            let Some(notify) = self.of_live(id, ActiveJob::notify) else { return self.job(id) };
            // Registered before the version is read, so that no change in between is missed.
            let mut notified = std::pin::pin!(notify.notified());
            notified.as_mut().enable();
            let is_known = self.of_live(id, |live| live.version == version).unwrap_or(false);
            if !is_known || timeout(deadline.left(), notified).await.is_none() {
                return self.job(id);
            }
        }
    }

    /// Waits until a job is over, or the timeout expires. Other changes of the job do not wake the
    /// request.
    pub(crate) async fn wait_for_end(
        &self,
        id: JobId,
        time: Duration,
    ) -> Result<Job, RequestError> {
        let deadline = Deadline::after(time);
        loop {
            let notify = |live: &mut ActiveJob| Arc::clone(live.end_notify.get_or_insert_default());
            let Some(notify) = self.of_live(id, notify) else { return self.job(id) };
            let mut notified = std::pin::pin!(notify.notified());
            notified.as_mut().enable();
            // The job may have ended before the registration, and may have been retried since.
            let is_same = |live: &mut ActiveJob| {
                live.end_notify.as_ref().is_some_and(|now: &Arc<Notify>| Arc::ptr_eq(now, &notify))
            };
            if self.of_live(id, is_same) == Some(true)
                && timeout(deadline.left(), notified).await.is_none()
            {
                return self.job(id);
            }
        }
    }

    /// Applies `look` to an unfinished job. Returns `None` if the job is over or unknown.
    fn of_live<T>(&self, id: JobId, look: impl FnOnce(&mut ActiveJob) -> T) -> Option<T> {
        let mut engine = self.state.lock();
        engine.live.get_mut(&id.number()).filter(|live| live.id == id).map(look)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::{Context, Wake, Waker};

    use super::*;
    use crate::engine::audit::{AuditedRequest, OperatorAction};
    use crate::handle::{Attempt, FunctionHandler};
    use crate::wire::{CancelMode, CancelRequest, JobPatch, JobState};
    use crate::{Kind, Service, ServiceSettings};

    /// Counts its wake-ups.
    #[derive(Debug, Default)]
    struct Wakes(AtomicUsize);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    /// Regression: each request that waited for the end built the view of the job, under the lock,
    /// at each change of the job.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_request_that_waits_for_the_end_does_nothing_at_other_changes() {
        let folder = tempfile::tempdir().unwrap();
        let never = FunctionHandler::new(|_: Attempt| std::future::pending());
        let settings = ServiceSettings::new(folder.path().join("store"));
        let service = Service::builder(settings).kind("never", Kind::new(never)).start();
        let service = service.await.unwrap();
        let (core, act) =
            (Arc::clone(&service.core), &AuditedRequest::in_process(OperatorAction::PatchJob));
        let job = r#"{"kind":"never","payload":1,"delay_ms":3600000}"#;
        let id = service.submit(job).await.unwrap();
        let version = core.query.job(id).unwrap().version;

        {
            let (wakes, time) = (Arc::new(Wakes::default()), Duration::from_secs(3600));
            let waker = Waker::from(Arc::clone(&wakes));
            let mut context = Context::from_waker(&waker);
            let mut end = pin!(core.query.wait_for_end(id, time));
            let mut change = pin!(core.query.changed(id, version, time));
            assert!(end.as_mut().poll(&mut context).is_pending());
            assert!(change.as_mut().poll(&mut context).is_pending());
            for name in 0..100 {
                let patch = JobPatch { name: Some(name.to_string()), ..JobPatch::default() };
                core.control.patch_job(id, patch, None, act).await.unwrap();
            }
            assert_eq!(
                wakes.0.load(SeqCst),
                1,
                "only the request that waits for a change is woken"
            );
            let changed = change.await.unwrap();
            assert_eq!(changed.name.as_deref(), Some("99"));

            let cancel = CancelRequest { mode: CancelMode::Graceful, reason: None };
            core.control.cancel_job(id, &cancel, act).await.unwrap();
            assert_eq!(end.await.unwrap().state, JobState::Cancelled);
        }
        drop(core);
        service.stop(Duration::ZERO).await;
    }
}
