//! Body of a task with a handle: called once, and may fail.

use std::convert::Infallible;

/// Function that is called once and may fail.
pub(crate) trait TaskFn<T, E> {
    /// Closure that the submitter gave.
    type Work;

    fn call(self) -> Result<T, E>;

    /// Returns the closure of a task that was rejected.
    fn into_work(self) -> Self::Work;
}

/// Closure that may fail.
pub(crate) struct FallibleFn<F>(pub(crate) F);

impl<T, E, F: FnOnce() -> Result<T, E>> TaskFn<T, E> for FallibleFn<F> {
    type Work = F;

    fn call(self) -> Result<T, E> {
        (self.0)()
    }

    fn into_work(self) -> F {
        self.0
    }
}

/// Closure that cannot fail.
pub(crate) struct InfallibleFn<F>(pub(crate) F);

impl<T, F: FnOnce() -> T> TaskFn<T, Infallible> for InfallibleFn<F> {
    type Work = F;

    fn call(self) -> Result<T, Infallible> {
        Ok((self.0)())
    }

    fn into_work(self) -> F {
        self.0
    }
}
