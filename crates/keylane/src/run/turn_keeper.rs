//! Optional keeping of a turn, at no cost for handlers that usually finish their work before they
//! return.

use std::fmt;

use super::{ExecContext, Turn};

/// Turn of the message that a handler processes. It ends when the handler returns, unless it is
/// [kept](Self::keep).
///
/// A handler with this argument costs no more than one that never keeps a turn: the worker
/// continues with the key's next message itself.
pub struct TaskContext<'a>(&'a mut dyn ExecContext);

impl<'a> TaskContext<'a> {
    pub(crate) fn new(ctx: &'a mut dyn ExecContext) -> Self {
        TaskContext(ctx)
    }

    /// Keeps the turn beyond the return of the handler, until the returned [`Turn`] is dropped. If
    /// that is dropped before the handler returns, the turn ends when the handler does.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::{Pool, TaskContext, handler};
    ///
    /// let (keep, kept) = channel();
    /// let handle = move |account: &u32, amount: i64, task: TaskContext<'_>| match amount {
    ///     0.. => println!("{account}: {amount:+}"),
    ///     // Needs an approval first; later messages of this account wait for it.
    ///     _ => keep.send(task.keep()).unwrap(),
    /// };
    /// let pool = Pool::<u32>::builder().build_handler(handler::with_context(handle))?;
    /// pool.send(7, 20)?;
    /// pool.send(7, -10)?;
    /// pool.send(7, 30)?; // runs after the approval
    /// drop(kept.recv()?);
    /// pool.shutdown()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep(self) -> Turn {
        self.0.keep_turn()
    }

    /// Ends the message as failed, which counts as a failure of its key where failures
    /// [count](crate::OnFailure).
    ///
    /// ```
    /// use keylane::{OnFailure, Pool, TaskContext, handler};
    ///
    /// let check = |_: &u32, amount: i64, task: TaskContext<'_>| match amount {
    ///     ..0 => task.fail(),
    ///     _ => println!("{amount}"),
    /// };
    /// let check = handler::with_context(check);
    /// let on_failure = OnFailure::StopKey { after: 1 };
    /// let pool = Pool::<u32>::builder().on_failure(on_failure).build_handler(check)?;
    /// pool.send_many([(7, -30), (8, 100)])?;
    /// pool.wait_idle()?;
    /// assert_eq!(pool.keys().list_stopped()[0].key, 7);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fail(self) {
        self.0.failed();
    }

    pub(crate) fn into_inner(self) -> &'a mut dyn ExecContext {
        self.0
    }
}

impl fmt::Debug for TaskContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").finish_non_exhaustive()
    }
}
