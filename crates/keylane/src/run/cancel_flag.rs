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
    lend(task, part).1
}

/// Like [`with_cancel_flag`], for a caller that needs `task` afterwards. It gets it back: a clone
/// would cost two atomic operations for each task.
pub(crate) fn lend_cancel_flag<C, R>(task: Arc<C>, part: impl FnOnce() -> R) -> (Arc<C>, R)
where
    C: CancelFlag + Send + Sync + 'static,
{
    let (task, result) = lend(task, part);
    let task = task.and_then(|task| task.into_any().downcast().ok());
    (task.expect("a part leaves the source of its thread as it was"), result)
}

/// Runs a part with `task` as the source of `is_cancelled`, and returns the task.
fn lend<R>(
    task: Arc<dyn CancelFlag>,
    part: impl FnOnce() -> R,
) -> (Option<Arc<dyn CancelFlag>>, R) {
    /// Previous source, until it is restored.
    struct Restore(Option<Option<Arc<dyn CancelFlag>>>);
    impl Restore {
        /// Restores the previous source, and returns the one in between.
        fn now(&mut self) -> Option<Arc<dyn CancelFlag>> {
            let outer = self.0.take()?;
            // The thread-local may be gone: the destructor of another one can run later.
            CANCEL.try_with(|cell| cell.replace(outer)).ok().flatten()
        }
    }
    impl Drop for Restore {
        fn drop(&mut self) {
            drop(self.now());
        }
    }
    let mut task = Some(task);
    // Where the thread-local is gone, the task stays here.
    let outer = CANCEL.try_with(|cell| cell.replace(task.take()));
    let mut restore = Restore(outer.ok());
    let result = part();
    (task.or_else(|| restore.now()), result)
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
