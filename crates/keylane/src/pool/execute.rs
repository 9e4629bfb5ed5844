//! Submits closures without a handle.

use std::hash::BuildHasher;
use std::time::Duration;

use super::{Pool, Submission};
use crate::engine::{AdmissionTicket, IntoWork, Key, WaitLimit};
#[cfg(doc)]
use crate::error::SubmitErrorKind;
use crate::error::{BatchError, SubmitError};
use crate::order::{Claims, IntoClaims};
use crate::run::{ExecContext, RunBody, TaskBody};

/// Closure without a handle.
struct Detached<F>(F);

impl<F: FnOnce() + Send + 'static> RunBody for Detached<F> {
    #[inline]
    fn run(self, _: &mut dyn ExecContext) {
        (self.0)();
    }
}

impl<F: FnOnce() + Send + 'static> IntoWork<TaskBody> for Detached<F> {
    #[inline(always)]
    fn into_work(self) -> TaskBody {
        TaskBody::new(self)
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Submits a task without a handle. Waits for capacity, as [`submit`](Self::submit) does.
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the error
    /// contains the task.
    #[inline]
    pub fn execute<F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.execute_with(keys.into_claims(), work, WaitLimit::Endless)
    }

    /// Submits a task without a handle, if there is capacity and no other submitter waits for it.
    ///
    /// # Errors
    ///
    /// [`Full`](SubmitErrorKind::Full), [`KeyFull`](SubmitErrorKind::KeyFull),
    /// [`TooLarge`](SubmitErrorKind::TooLarge) or [`Closed`](SubmitErrorKind::Closed); the error
    /// contains the task.
    #[inline]
    pub fn try_execute<F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.execute_with(keys.into_claims(), work, WaitLimit::None)
    }

    /// Submits a task without a handle, waiting for capacity for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](SubmitErrorKind::TimedOut), [`TooLarge`](SubmitErrorKind::TooLarge) or
    /// [`Closed`](SubmitErrorKind::Closed); the error contains the task.
    pub fn execute_timeout<F>(
        &self,
        keys: impl IntoClaims<K>,
        timeout: Duration,
        work: F,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.execute_with(keys.into_claims(), work, WaitLimit::for_at_most(timeout))
    }

    /// Submits a task without a handle, waiting for capacity without blocking the thread, and
    /// cancel safe, as [`submit_async`](Self::submit_async).
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the error
    /// contains the task.
    pub async fn execute_async<F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        let claims = keys.into_claims();
        match self.engine.admit_async(&claims, 0).await {
            Ok(ticket) => self.enter_detached(claims, work, ticket),
            Err(why) => Err(SubmitError::new(why, (claims, work))),
        }
    }

    /// Submits a batch without handles in one pass, waiting for capacity as often as necessary. The
    /// tasks of the batch are in order as if they had been submitted one by one.
    ///
    /// The batch is submitted in pieces of at most 256 tasks, each when the iterator has yielded
    /// it.
    ///
    /// # Errors
    ///
    /// If the pool is closed meanwhile, a task is [too large](SubmitErrorKind::TooLarge), or its
    /// key was [finished](SubmitErrorKind::KeyClosed): the number of accepted tasks before it, and
    /// the others, the refused one first. No task behind it is accepted.
    pub fn execute_many<C, F>(
        &self,
        batch: impl IntoIterator<Item = (C, F)>,
    ) -> Result<usize, BatchError<usize, Submission<K, F>>>
    where
        C: IntoClaims<K>,
        F: FnOnce() + Send + 'static,
    {
        let batch = batch.into_iter().map(|(keys, work)| (keys.into_claims(), Detached(work)));
        self.engine.enqueue_many(batch).map_err(|(accepted, rejected, why)| {
            let rejected = rejected.into_iter().map(|(claims, Detached(work))| (claims, work));
            BatchError::new(accepted, rejected.collect(), why)
        })
    }

    #[inline(always)]
    fn execute_with<F>(
        &self,
        claims: Claims<K>,
        work: F,
        limit: WaitLimit,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.engine
            .submit(claims, Detached(work), limit)
            .map_err(|(why, claims, Detached(work))| SubmitError::new(why, (claims, work)))
    }

    #[inline(always)]
    fn enter_detached<F>(
        &self,
        claims: Claims<K>,
        work: F,
        ticket: AdmissionTicket,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.engine
            .enqueue(claims, Detached(work), ticket)
            .map_err(|(why, claims, Detached(work))| SubmitError::new(why, (claims, work)))
    }
}
