//! Submitting tasks of which only the latest of a key is wanted.

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

/// The body of a task with a handle, before it is a [`TaskBody`].
type LatestTask<T, F> =
    (Arc<TaskCell<T, std::convert::Infallible, InfallibleFn<F>>>, ReadyWork<TaskBody>);

/// Keeps a task from beginning until the captures of what it has replaced are gone.
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
    /// Submits a task that replaces the latest one of its key, if that still waits: of a burst of updates
    /// only the last is worth the work.
    ///
    /// - What is replaced is the last task of the key that was submitted like this and does not have its
    ///   turn yet. It never runs, its captures are dropped before this returns, and its handle learns
    ///   [`Outcome::Superseded`](crate::Outcome::Superseded). Tasks that were submitted otherwise are
    ///   never replaced, nor are tasks that run.
    /// - The order holds: if anything came between the two that conflicts with them, the new task runs
    ///   after that. If nothing did, it takes over the place in the line.
    /// - It takes over the room of what it replaces, too, so it never waits for any then. Otherwise it
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
    /// [`Closed`](SubmitErrorKind::Closed) or [`KeyClosed`](SubmitErrorKind::KeyClosed); the task
    /// comes back in the error.
    pub fn submit_latest<T, F>(&self, key: K, work: F) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_latest_with(key, work, WaitLimit::Endless)
    }

    /// The same if there is room and nobody waits for it, or there is a task to replace.
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

    /// The same, waiting for room for at most `timeout`.
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

    /// The same, waiting for room without blocking the thread. Needs no particular runtime.
    ///
    /// Cancel safe: dropped before it is ready, it has replaced nothing, and has left the line.
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

    /// The same for a task that nobody will wait for.
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

    /// The same for a task that nobody will wait for, if there is room and nobody waits for it, or there
    /// is a task to replace.
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

    /// Drops what a task that is in has replaced, and returns the task's handle; or what was to be
    /// submitted.
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

    /// Lets the handle of work know that it was replaced, and drops its captures.
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

/// The handle of a task that is in, or what was to be submitted.
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
            let InfallibleFn(work) = cell.take_body().expect("nobody else has seen the cell");
            drop(body);
            Err(SubmitError::new(why, (claims.into_only_key(), work)))
        }
    }
}
