//! The body of a task with a handle: it is tried once, and may fail.

use std::convert::Infallible;

/// Something that is run once and may fail.
pub(crate) trait TaskFn<T, E> {
    fn call(self) -> Result<T, E>;
}

impl<T, E, F: FnOnce() -> Result<T, E>> TaskFn<T, E> for F {
    fn call(self) -> Result<T, E> {
        self()
    }
}

/// A closure that can't fail.
pub(crate) struct InfallibleFn<F>(pub(crate) F);

impl<T, F: FnOnce() -> T> TaskFn<T, Infallible> for InfallibleFn<F> {
    fn call(self) -> Result<T, Infallible> {
        Ok((self.0)())
    }
}
