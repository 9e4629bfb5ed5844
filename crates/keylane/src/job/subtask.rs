//! What a subtask is: a closure, which runs on the worker, or a future, which goes on elsewhere.

use crate::complete::TaskFn;

/// A subtask's hold on its place, for one that goes on when its worker has left it.
#[cfg(feature = "tokio")]
pub(super) type KeepFuture<T, E> = super::future::RunningFuture<T, E>;
/// Without a runtime there is none.
#[cfg(not(feature = "tokio"))]
pub(super) type KeepFuture<T, E> =
    (std::convert::Infallible, std::marker::PhantomData<fn() -> (T, E)>);

/// Something that is run once, for a `T` or an `E`.
pub(super) trait SubtaskBody<T, E>: Send + 'static {
    /// It needs a turn that can be kept, and so an entry in the lanes even without keys.
    const IS_FUTURE: bool;

    /// Runs it. Nothing comes back if it goes on, and will end through what `keep` gives.
    fn run(self, keep: impl FnOnce() -> KeepFuture<T, E>) -> Option<Result<T, E>>;
}

/// A closure.
pub(super) struct Closure<F>(pub(super) F);

impl<T, E, F: TaskFn<T, E> + Send + 'static> SubtaskBody<T, E> for Closure<F> {
    const IS_FUTURE: bool = false;

    #[inline]
    fn run(self, _: impl FnOnce() -> KeepFuture<T, E>) -> Option<Result<T, E>> {
        Some(self.0.call())
    }
}
