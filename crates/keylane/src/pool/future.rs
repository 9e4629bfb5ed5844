//! Submits futures, which hold their turn until they end.

use std::hash::BuildHasher;
use std::sync::Arc;

use super::{Pool, Submission};
use crate::complete::{FutureTask, Handle};
use crate::engine::{AdmissionTicket, Key, ReadyWork, WaitLimit};
use crate::error::{SubmitError, SubmitErrorKind};
use crate::order::{Claims, IntoClaims};
use crate::run::TaskBody;

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Submits a future, which holds its turn until it ends. Waits for capacity, as
    /// [`submit`](Self::submit) does.
    ///
    /// It runs on the runtime that was given to [`Builder::runtime`](crate::Builder::runtime), once
    /// it has its keys and the concurrency limit allows it. It is not polled on a worker, and no
    /// worker waits for it. Cancelling its handle drops the future at its next step; its turn ends
    /// then, not before.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    /// let pool = Pool::<u32>::builder().runtime(runtime.handle().clone(), 500).build()?;
    /// let reply = pool.submit_future(7, async { "asked, without a thread that waits" })?;
    /// assert!(reply.wait()?.is_completed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`NoRuntime`](SubmitErrorKind::NoRuntime); the error
    /// contains the future.
    pub fn submit_future<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        future: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.submit_future_with(keys.into_claims(), future, WaitLimit::Endless)
    }

    /// Submits a future, if there is capacity and no other submitter waits for it.
    ///
    /// # Errors
    ///
    /// As for [`submit_future`](Self::submit_future), or [`Full`](SubmitErrorKind::Full).
    pub fn try_submit_future<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        future: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.submit_future_with(keys.into_claims(), future, WaitLimit::None)
    }

    /// Submits a future, waiting for capacity without blocking the thread, and cancel safe, as
    /// [`submit_async`](Self::submit_async).
    ///
    /// # Errors
    ///
    /// As for [`submit_future`](Self::submit_future).
    pub async fn submit_future_async<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        future: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let claims = keys.into_claims();
        match self.engine.admit_async(&claims, 0).await {
            Ok(ticket) => self.enter_future(claims, future, ticket),
            Err(why) => Err(SubmitError::new(why, (claims, future))),
        }
    }

    fn submit_future_with<T, F>(
        &self,
        claims: Claims<K>,
        future: F,
        limit: WaitLimit,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        match self.engine.admit(&claims, 0, limit) {
            Ok(ticket) => self.enter_future(claims, future, ticket),
            Err(why) => Err(SubmitError::new(why, (claims, future))),
        }
    }

    fn enter_future<T, F>(
        &self,
        claims: Claims<K>,
        future: F,
        ticket: AdmissionTicket,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let Some(runtime) = self.engine.settings.runtime.clone() else {
            self.engine.retract(&claims);
            return Err(SubmitError::new(SubmitErrorKind::NoRuntime, (claims, future)));
        };
        let task = Arc::new(FutureTask::new(future, runtime));
        let handle = Handle::new(task.clone());
        match self.engine.enqueue(claims, ReadyWork(TaskBody::shared(task.clone())), ticket) {
            Ok(()) => Ok(handle),
            Err((why, claims, ReadyWork(body))) => {
                let future = task.take_future().expect("a rejected task was never shared");
                drop(body);
                Err(SubmitError::new(why, (claims, future)))
            }
        }
    }
}
