//! Body of a task with a handle: called once, and may fail.

use std::convert::Infallible;

/// Function that is called once and may fail.
pub(crate) trait TaskFn<T, E> {
    fn call(self) -> Result<T, E>;
}

impl<T, E, F: FnOnce() -> Result<T, E>> TaskFn<T, E> for F {
    fn call(self) -> Result<T, E> {
        self()
    }
}

/// Closure that cannot fail.
pub(crate) struct InfallibleFn<F>(pub(crate) F);

impl<T, F: FnOnce() -> T> TaskFn<T, Infallible> for InfallibleFn<F> {
    fn call(self) -> Result<T, Infallible> {
        Ok((self.0)())
    }
}
