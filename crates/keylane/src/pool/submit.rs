//! Submits closures with a handle.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use super::{BatchRejected, Pool, Submission};
use crate::complete::{Handle, InfallibleFn, TaskCell, TaskFn};
use crate::engine::{AdmissionTicket, Key, ReadyWork, RejectedTask, WaitLimit};
#[cfg(doc)]
use crate::error::SubmitErrorKind;
use crate::error::{BatchError, SubmitError};
use crate::order::{Claims, IntoClaims};
use crate::run::TaskBody;

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Submits a task. Waits for capacity, first come, first served; never inside a task of this
    /// pool.
    ///
    /// ```
    /// use keylane::{Claims, Pool};
    ///
    /// let pool = Pool::<u64>::builder().build()?;
    /// let sum = pool.submit(7, || 1 + 1)?;
    /// let both = pool.submit([7, 8], || "after everything on 7 and on 8")?;
    /// let read = pool.submit(Claims::shared(7), || "beside other readers of 7")?;
    /// assert_eq!(sum.wait()?.ok(), Some(2));
    /// # drop((both, read));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the error
    /// contains the task.
    pub fn submit<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_with(keys.into_claims(), work, WaitLimit::Endless)
    }

    /// Submits a task, if there is capacity and no other submitter waits for it.
    ///
    /// # Errors
    ///
    /// [`Full`](SubmitErrorKind::Full), [`KeyFull`](SubmitErrorKind::KeyFull),
    /// [`TooLarge`](SubmitErrorKind::TooLarge) or [`Closed`](SubmitErrorKind::Closed); the error
    /// contains the task.
    pub fn try_submit<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_with(keys.into_claims(), work, WaitLimit::None)
    }

    /// Submits a task, waiting for capacity for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](SubmitErrorKind::TimedOut), [`TooLarge`](SubmitErrorKind::TooLarge) or
    /// [`Closed`](SubmitErrorKind::Closed); the error contains the task.
    pub fn submit_timeout<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        timeout: Duration,
        work: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_with(keys.into_claims(), work, WaitLimit::for_at_most(timeout))
    }

    /// Submits a task, waiting for capacity without blocking the thread, in one wait queue with the
    /// blocked threads. Needs no particular runtime.
    ///
    /// Cancel safe: dropped before it is ready, it has submitted nothing, and has left the wait
    /// queue.
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the error
    /// contains the task.
    pub async fn submit_async<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let claims = keys.into_claims();
        match self.engine.admit_async(&claims, 0).await {
            Ok(ticket) => self.enter_with_handle(claims, work, ticket),
            Err(why) => Err(SubmitError::new(why, (claims, work))),
        }
    }

    /// Submits a batch in one pass, waiting for capacity as often as necessary. The tasks of the
    /// batch are in order as if they had been submitted one by one.
    ///
    /// The batch is submitted in pieces of at most 256 tasks, each when the iterator has yielded
    /// it.
    ///
    /// # Errors
    ///
    /// If the pool is closed meanwhile, a task is [too large](SubmitErrorKind::TooLarge), or its
    /// key was [finished](SubmitErrorKind::KeyClosed): the handles of the tasks before it, and the
    /// others, the refused one first. No task behind it is accepted.
    pub fn submit_many<C, T, F>(
        &self,
        batch: impl IntoIterator<Item = (C, F)>,
    ) -> Result<Vec<Handle<T>>, BatchRejected<K, T, F>>
    where
        C: IntoClaims<K>,
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let mut cells = Vec::new();
        let bodies = batch.into_iter().map(|(keys, work)| {
            let cell = Arc::new(TaskCell::new(InfallibleFn(work)));
            cells.push(cell.clone());
            (keys.into_claims(), ReadyWork(TaskBody::shared(cell)))
        });
        let Err((accepted, rejected, why)) = self.engine.enqueue_many(bodies) else {
            return Ok(cells.into_iter().map(Handle::new).collect());
        };
        let rest = cells.split_off(accepted);
        let rejected = rejected.into_iter().zip(rest).map(|((claims, body), cell)| {
            let InfallibleFn(work) = cell.take_body().expect("a rejected cell was never shared");
            drop(body);
            (claims, work)
        });
        let rejected = rejected.collect();
        Err(BatchError::new(cells.into_iter().map(Handle::new).collect(), rejected, why))
    }

    /// Submits work that can fail as [`submit`](Self::submit) does: an `Err` becomes
    /// [`Outcome::Failed`](crate::Outcome::Failed).
    ///
    /// # Errors
    ///
    /// As for [`submit`](Self::submit).
    pub fn submit_fallible<T, E, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T, E>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce() -> Result<T, E> + Send + 'static,
    {
        let claims = keys.into_claims();
        let ticket = match self.engine.admit(&claims, 0, WaitLimit::Endless) {
            Ok(ticket) => ticket,
            Err(why) => return Err(SubmitError::new(why, (claims, work))),
        };
        self.enter_cell(claims, Arc::new(TaskCell::new(work)), ticket)
            .map_err(|(why, claims, work)| SubmitError::new(why, (claims, work)))
    }

    fn submit_with<T, F>(
        &self,
        claims: Claims<K>,
        work: F,
        limit: WaitLimit,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        match self.engine.admit(&claims, 0, limit) {
            Ok(ticket) => self.enter_with_handle(claims, work, ticket),
            Err(why) => Err(SubmitError::new(why, (claims, work))),
        }
    }

    fn enter_with_handle<T, F>(
        &self,
        claims: Claims<K>,
        work: F,
        ticket: AdmissionTicket,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let cell = Arc::new(TaskCell::new(InfallibleFn(work)));
        self.enter_cell(claims, cell, ticket)
            .map_err(|(why, claims, InfallibleFn(work))| SubmitError::new(why, (claims, work)))
    }

    fn enter_cell<T, E, F>(
        &self,
        claims: Claims<K>,
        cell: Arc<TaskCell<T, E, F>>,
        ticket: AdmissionTicket,
    ) -> Result<Handle<T, E>, RejectedTask<K, F>>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: TaskFn<T, E> + Send + 'static,
    {
        let handle = Handle::new(cell.clone());
        match self.engine.enqueue(claims, ReadyWork(TaskBody::shared(cell.clone())), ticket) {
            Ok(()) => Ok(handle),
            Err((why, claims, ReadyWork(body))) => {
                let work = cell.take_body().expect("a rejected cell was never shared");
                drop(body);
                Err((why, claims, work))
            }
        }
    }
}
