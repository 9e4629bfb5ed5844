//! The choice to keep a turn, for handlers that have mostly done the work when they return.

use std::fmt;

use super::{ExecContext, Turn};

/// The turn of the message that a handler is called with, which ends when the handler returns, unless it is
/// [kept](Self::keep).
///
/// A handler that is given this costs no more than one that never keeps a turn: the worker goes on with the
/// key's next message itself.
pub struct TaskContext<'a>(&'a mut dyn ExecContext);

impl<'a> TaskContext<'a> {
    pub(crate) fn new(ctx: &'a mut dyn ExecContext) -> Self {
        TaskContext(ctx)
    }

    /// Keeps the turn beyond the return of the handler, until what is returned is dropped. If that is dropped
    /// before the handler returns, the turn ends when the handler does.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::{Pool, TaskContext};
    ///
    /// let (keep, kept) = channel();
    /// let pool = Pool::<u32>::builder().build_handler_keeping_turns(
    ///     move |account: &u32, amount: i64, turn: TaskContext<'_>| match amount {
    ///         0.. => println!("{account}: {amount:+}"),
    ///         // Somebody is asked first; nothing else of this account happens meanwhile.
    ///         _ => keep.send(turn.keep()).unwrap(),
    ///     },
    /// )?;
    /// pool.send(7, 20)?;
    /// pool.send(7, -10)?;
    /// pool.send(7, 30)?; // when the answer is there
    /// drop(kept.recv()?);
    /// pool.shutdown()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keep(self) -> Turn {
        self.0.keep_turn()
    }
}

impl fmt::Debug for TaskContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskContext").finish_non_exhaustive()
    }
}
