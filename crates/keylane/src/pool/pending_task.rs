//! Accepted tasks that never began: returned by a stop, or taken from a key.

use std::fmt;

use crate::order::Claims;
use crate::run::{TaskBody, noop_context};

/// Task that was accepted and never began: its pool was stopped, or it was
/// [taken](crate::control::Keys::take) from its key.
///
/// Dropped, it ends as [`Cancelled`](crate::Outcome::Cancelled).
pub struct PendingTask<K> {
    pub(super) claims: Claims<K>,
    pub(super) body: TaskBody,
}

impl<K> PendingTask<K> {
    /// Returns the task's keys.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let (old, new) = (Pool::<u32>::builder().build()?, Pool::<u32>::builder().build()?);
    /// old.keys().pause(&7);
    /// let moved = old.submit(7, || "in the new pool")?;
    /// for task in old.keys().take(&7) {
    ///     let claims = task.claims().clone();
    ///     new.execute(claims, move || task.run())?;
    /// }
    /// assert_eq!(moved.join()?, "in the new pool");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn claims(&self) -> &Claims<K> {
        &self.claims
    }

    /// Runs the task on this thread, and completes its handle.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// let task = pool.submit(7, || std::thread::current().id())?;
    /// for pending in pool.keys().take(&7) {
    ///     pending.run();
    /// }
    /// assert_eq!(task.join()?, std::thread::current().id());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the body panics and the task has no handle.
    pub fn run(self) {
        self.body.run(&mut noop_context());
    }
}

impl<K> fmt::Debug for PendingTask<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingTask").finish_non_exhaustive()
    }
}
