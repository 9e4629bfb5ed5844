//! The body of a task with a handle: it is tried once, and may fail.

use std::convert::Infallible;

/// Something that is run once and may fail.
pub(crate) trait Attempt<T, E> {
    fn attempt(self) -> Result<T, E>;
}

impl<T, E, F: FnOnce() -> Result<T, E>> Attempt<T, E> for F {
    fn attempt(self) -> Result<T, E> {
        self()
    }
}

/// A closure that can't fail.
pub(crate) struct Sure<F>(pub(crate) F);

impl<T, F: FnOnce() -> T> Attempt<T, Infallible> for Sure<F> {
    fn attempt(self) -> Result<T, Infallible> {
        Ok((self.0)())
    }
}
