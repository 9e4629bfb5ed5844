//! Kinds of subtasks: closures, which run on the worker, and futures, which run on the runtime.

use crate::complete::TaskFn;

/// State that a future takes along when it leaves its worker.
#[cfg(feature = "tokio")]
pub(super) type KeepFuture<T, E> = super::future::RunningFuture<T, E>;
/// Uninhabited: without a runtime there are no futures.
#[cfg(not(feature = "tokio"))]
pub(super) type KeepFuture<T, E> =
    (std::convert::Infallible, std::marker::PhantomData<fn() -> (T, E)>);

/// Body of a subtask, run once for a `T` or an `E`.
pub(super) trait SubtaskBody<T, E>: Send + 'static {
    /// Whether the body is a future, which needs a turn that can be kept, and so an entry in the
    /// lanes even without keys.
    const IS_FUTURE: bool;

    /// Runs the body. Returns `None` if it continues as a future with the state that `keep`
    /// returns.
    fn run(self, keep: impl FnOnce() -> KeepFuture<T, E>) -> Option<Result<T, E>>;
}

/// Body that is a closure.
pub(super) struct ClosureBody<F>(pub(super) F);

impl<T, E, F: TaskFn<T, E> + Send + 'static> SubtaskBody<T, E> for ClosureBody<F> {
    const IS_FUTURE: bool = false;

    #[inline]
    fn run(self, _: impl FnOnce() -> KeepFuture<T, E>) -> Option<Result<T, E>> {
        Some(self.0.call())
    }
}

#[cfg(feature = "tokio")]
impl<T, E, F> SubtaskBody<T, E> for super::future::FutureSubtask<F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    const IS_FUTURE: bool = true;

    fn run(self, keep: impl FnOnce() -> KeepFuture<T, E>) -> Option<Result<T, E>> {
        self.spawn(keep);
        None
    }
}
