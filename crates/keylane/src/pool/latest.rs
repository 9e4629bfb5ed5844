//! Submits tasks that replace the latest one of their key.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use super::{Closures, Pool};
use crate::complete::{Handle, InfallibleFn, TaskCell};
use crate::engine::{
    Engine, Key, LatestResult, ReadyWork, RejectedTask, SharedRollup, Superseded, WaitLimit,
};
use crate::error::SubmitError;
#[cfg(doc)]
use crate::error::SubmitErrorKind;
use crate::run::{EndTurn, TaskBody, Turn, TurnResult};
use crate::unwind::call_catch_unwind;

/// Cell of a task with a handle, and its body.
type LatestTask<T, F> =
    (Arc<TaskCell<T, std::convert::Infallible, InfallibleFn<F>>>, ReadyWork<TaskBody>);

/// Keeps a task from beginning until the captures of the replaced work are dropped.
struct Replacing<K: Key, S> {
    engine: Arc<Engine<K, Closures, S>>,
    by: SharedRollup<K, TaskBody>,
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> EndTurn for Replacing<K, S> {
    fn end(self: Box<Self>, _: TurnResult) {
        self.engine.intact_quietly(|| self.engine.end_replacing(&self.by));
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Submits a task that replaces the latest one of its key, if that still waits: of a burst of
    /// updates only the last is worth the work.
    ///
    /// - Replaced is the last task of the key that was submitted by this call and does not have its
    ///   turn yet. It never runs, its captures are dropped before this returns, and its handle
    ///   returns [`Outcome::Superseded`](crate::Outcome::Superseded). Tasks that were submitted by
    ///   other calls are never replaced, nor are tasks that run.
    /// - The order holds: if a task that conflicts with them came between the two, the new task
    ///   runs after that. Otherwise it takes over the position of the replaced one.
    /// - It takes over the capacity of the replaced task, too, and then never waits. Otherwise it
    ///   waits like any task. A submission that fails changes nothing.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.keys().pause(&"screen");
    /// let old = pool.submit_latest("screen", || "drawn at 10:00:00")?;
    /// let new = pool.submit_latest("screen", || "drawn at 10:00:01")?;
    /// pool.keys().resume(&"screen");
    /// assert!(old.wait()?.is_superseded());
    /// assert_eq!(new.wait()?.ok(), Some("drawn at 10:00:01"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`KeyClosed`](SubmitErrorKind::KeyClosed); the error
    /// contains the task.
    pub fn submit_latest<T, F>(&self, key: K, work: F) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_latest_with(key, work, WaitLimit::Endless)
    }

    /// Replaces the latest task as [`submit_latest`](Self::submit_latest) does, if there is one to
    /// replace, or there is capacity and no other submitter waits for it.
    ///
    /// # Errors
    ///
    /// As for [`submit_latest`](Self::submit_latest), or [`Full`](SubmitErrorKind::Full) or
    /// [`KeyFull`](SubmitErrorKind::KeyFull).
    pub fn try_submit_latest<T, F>(&self, key: K, work: F) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_latest_with(key, work, WaitLimit::None)
    }

    /// Replaces the latest task as [`submit_latest`](Self::submit_latest) does, waiting for
    /// capacity for at most `timeout`.
    ///
    /// # Errors
    ///
    /// As for [`submit_latest`](Self::submit_latest), or [`TimedOut`](SubmitErrorKind::TimedOut).
    pub fn submit_latest_timeout<T, F>(
        &self,
        key: K,
        timeout: Duration,
        work: F,
    ) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_latest_with(key, work, WaitLimit::for_at_most(timeout))
    }

    /// Replaces the latest task as [`submit_latest`](Self::submit_latest) does, waiting for
    /// capacity without blocking the thread. Needs no particular runtime.
    ///
    /// Cancel safe: dropped before it is ready, it has replaced nothing, and has left the wait
    /// queue.
    ///
    /// # Errors
    ///
    /// As for [`submit_latest`](Self::submit_latest).
    pub async fn submit_latest_async<T, F>(
        &self,
        key: K,
        work: F,
    ) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (cell, body) = new_latest_task(work);
        let result = self.engine.submit_latest_async(key, body).await;
        self.handle_of_latest(cell, result)
    }

    /// Replaces the latest task as [`submit_latest`](Self::submit_latest) does, by one without a
    /// handle.
    ///
    /// # Errors
    ///
    /// As for [`submit_latest`](Self::submit_latest).
    pub fn execute_latest<F>(&self, key: K, work: F) -> Result<(), SubmitError<(K, F)>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.submit_latest(key, work).map(drop)
    }

    /// Replaces the latest task as [`try_submit_latest`](Self::try_submit_latest) does, by one
    /// without a handle.
    ///
    /// # Errors
    ///
    /// As for [`try_submit_latest`](Self::try_submit_latest).
    pub fn try_execute_latest<F>(&self, key: K, work: F) -> Result<(), SubmitError<(K, F)>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.try_submit_latest(key, work).map(drop)
    }

    fn submit_latest_with<T, F>(
        &self,
        key: K,
        work: F,
        limit: WaitLimit,
    ) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (cell, body) = new_latest_task(work);
        let result = self.engine.submit_latest(key, body, limit);
        self.handle_of_latest(cell, result)
    }

    /// Drops the work that an accepted task has replaced, and returns the task's handle; or the
    /// error with the rejected task.
    fn handle_of_latest<T, F>(
        &self,
        cell: Arc<TaskCell<T, std::convert::Infallible, InfallibleFn<F>>>,
        result: LatestResult<K, TaskBody, ReadyWork<TaskBody>>,
    ) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        handle_of_latest(
            cell,
            result.map(|replaced| replaced.map(|it| self.drop_replaced(it)).unwrap_or_default()),
        )
    }

    /// Completes the handle of replaced work, and drops its captures.
    fn drop_replaced(&self, Superseded { work, by }: Superseded<K, TaskBody>) {
        let turn = Turn::new(Replacing { engine: self.engine.clone(), by });
        call_catch_unwind(|| work.supersede(turn));
    }
}

pub(super) fn new_latest_task<T, F>(work: F) -> LatestTask<T, F>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    let cell = Arc::new(TaskCell::new(InfallibleFn(work)));
    (cell.clone(), ReadyWork(TaskBody::shared(cell)))
}

/// Returns the handle of an accepted task, or the error with the rejected one.
pub(super) fn handle_of_latest<K: Key, T, F>(
    cell: Arc<TaskCell<T, std::convert::Infallible, InfallibleFn<F>>>,
    result: Result<(), RejectedTask<K, ReadyWork<TaskBody>>>,
) -> Result<Handle<T>, SubmitError<(K, F)>>
where
    T: Send + 'static,
    F: FnOnce() -> T + Send + 'static,
{
    match result {
        Ok(()) => Ok(Handle::new(cell)),
        Err((why, claims, ReadyWork(body))) => {
            let InfallibleFn(work) = cell.take_body().expect("a rejected cell was never shared");
            drop(body);
            Err(SubmitError::new(why, (claims.into_only_key(), work)))
        }
    }
}
