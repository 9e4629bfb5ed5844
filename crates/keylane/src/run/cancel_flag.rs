//! Cancel flag of the task that a thread runs, which its body can poll.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;

use crate::sync::{AtomicBool, Ordering, thread_local};

thread_local! {
    /// Cancel flag of the task that this thread runs.
    static CANCEL: Cell<Option<Arc<dyn CancelFlag>>> = const { Cell::new(None) };
}

/// Source of `is_cancelled` for a body.
pub(crate) trait CancelFlag {
    fn is_cancel_requested(&self) -> bool;

    /// Returns the same owner, of which the type can be found again.
    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync>;
}

impl CancelFlag for AtomicBool {
    fn is_cancel_requested(&self) -> bool {
        self.load(Ordering::Acquire)
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Runs a body, or a part of it, with `task` as the source of `is_cancelled`. Restores the previous
/// source afterwards, also on unwind: there is one if a task runs a stopped pool's task inside its
/// own body.
pub(crate) fn with_cancel_flag<R>(task: Arc<dyn CancelFlag>, part: impl FnOnce() -> R) -> R {
    let _lent = LentCancelFlag::new(task);
    part()
}

/// Source of `is_cancelled` for this thread, until the drop, which restores the previous one.
pub(crate) struct LentCancelFlag {
    /// Previous source, until it is restored.
    outer: Option<Option<Arc<dyn CancelFlag>>>,
    /// The task, where the thread-local is gone.
    task: Option<Arc<dyn CancelFlag>>,
}

impl LentCancelFlag {
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(crate) fn new(task: Arc<dyn CancelFlag>) -> Self {
        let mut task = Some(task);
        let outer = CANCEL.try_with(|cell| cell.replace(task.take())).ok();
        LentCancelFlag { outer, task }
    }

    /// Restores the previous source, and returns the task: a clone would cost two atomic operations
    /// for each task. It has this type.
    #[inline]
    pub(crate) fn take_back<C: Send + Sync + 'static>(mut self) -> Arc<C> {
        let lent = self.restore();
        // Nothing is left to restore.
        std::mem::forget(self);
        let task = lent.and_then(|task| task.into_any().downcast().ok());
        task.expect("a part leaves the source of its thread as it was")
    }

    /// Restores the previous source, and returns the one in between.
    #[inline]
    fn restore(&mut self) -> Option<Arc<dyn CancelFlag>> {
        match self.outer.take() {
            // The thread-local may be gone: the destructor of another one can run later.
            Some(outer) => CANCEL.try_with(|cell| cell.replace(outer)).ok().flatten(),
            None => self.task.take(),
        }
    }
}

impl Drop for LentCancelFlag {
    #[inline]
    fn drop(&mut self) {
        drop(self.restore());
    }
}

/// Sets the source of `is_cancelled` for the bodies that this thread runs from now on.
pub(crate) fn set_cancel_flag(flag: Option<Arc<dyn CancelFlag>>) {
    // The thread-local may be gone: the destructor of another one can run later.
    let _ = CANCEL.try_with(|cell| cell.set(flag));
}

/// Returns whether the running task was asked to stop, by
/// [`Handle::cancel`](crate::Handle::cancel), or because its job was cancelled or has failed.
///
/// A long body should poll this and return early. Outside of a task, and in one without a handle
/// and a job, it is always false.
///
/// ```
/// use keylane::Pool;
///
/// let pool = Pool::<&str>::builder().build()?;
/// let endless = pool.submit("key", || while !keylane::is_cancelled() { std::thread::yield_now() })?;
/// endless.cancel();
/// assert!(endless.wait().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn is_cancelled() -> bool {
    with_current_flag(|flag| flag.is_cancel_requested()).unwrap_or(false)
}

/// Calls `question` with the cancel flag of the task that this thread runs, if it has one.
pub(crate) fn with_current_flag<R>(question: impl FnOnce(&Arc<dyn CancelFlag>) -> R) -> Option<R> {
    let asked = CANCEL.try_with(|cell| {
        let flag = cell.take();
        let answer = flag.as_ref().map(question);
        cell.set(flag);
        answer
    });
    // The thread-local may be gone, if the destructor of another one asks: no task runs then.
    asked.ok().flatten()
}
