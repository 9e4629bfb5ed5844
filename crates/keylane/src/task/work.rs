//! Work of a task: a closure or a future, which may fail or not, and its body.

use std::convert::Infallible;
use std::hash::BuildHasher;

use super::entry::{Entry, RejectedTaskError};
use super::prepared::{PoolContext, PreparedWork};
#[cfg(feature = "tokio")]
use crate::complete::Outcome;
use crate::complete::{FallibleFn, InfallibleFn};
use crate::engine::Key;
use crate::retry::Retry;

/// Mode of a task whose work cannot fail: its value is the one that the work returns. The mode of
/// [`Pool::task`](crate::Pool::task).
#[derive(Debug)]
pub struct Plain;

/// Mode of a task whose work returns a `Result`: an `Err` becomes
/// [`Outcome::Failed`](crate::Outcome::Failed). Set by [`Task::fallible`](super::Task::fallible).
#[derive(Debug)]
pub struct Fallible;

/// Mode of a task whose work returns a `Result` and is called again after an `Err`. Set by
/// [`Task::retry`](super::Task::retry).
#[derive(Debug)]
pub struct Retrying(pub(super) Retry);

/// Kind of work that is a closure. Inferred.
#[derive(Debug)]
pub enum Closure {}

/// Kind of work that is a future. Inferred.
#[cfg(feature = "tokio")]
#[derive(Debug)]
pub enum Async {}

/// Parts of a pool that some work needs.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct WorkNeeds {
    #[cfg_attr(not(feature = "tokio"), expect(dead_code, reason = "closures need no runtime"))]
    pub(super) runtime: bool,
    pub(super) timer: bool,
}

/// Work of a [`Task`](super::Task): a closure without arguments or, with the feature `tokio`, a
/// future.
///
/// `Mode` says whether the work may fail: [`Plain`], [`Fallible`] or [`Retrying`]. `Kind` says whether it is a
/// closure or a future, and is inferred.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the work of a task",
    label = "expected a closure without arguments, or a future",
    note = "the work is a closure such as `move || ..` or, with the feature `tokio`, a future such as `async move {{ .. }}`, and its value is `Send + 'static`",
    note = "after `.fallible()` its value is a `Result`",
    note = "after `.retry(..)` it is a closure that can be called several times, `FnMut`"
)]
pub trait TaskWork<Mode, Kind>: Sized {
    /// Value of the outcome [`Completed`](crate::Outcome::Completed).
    type Value: Send + 'static;

    /// Error of the outcome [`Failed`](crate::Outcome::Failed).
    type Error: Send + 'static;

    /// What the work needs of its pool.
    #[doc(hidden)]
    const NEEDS: WorkNeeds = WorkNeeds { runtime: false, timer: false };

    /// Prepares the work to be run, with a handle.
    #[doc(hidden)]
    fn prepare(
        self,
        mode: &Mode,
        pool: PoolContext<'_>,
    ) -> PreparedWork<Self, Self::Value, Self::Error>
    where
        Self: Send + 'static;

    /// Submits the work without a handle.
    #[doc(hidden)]
    #[inline]
    fn execute_in<K, S>(
        self,
        mode: &Mode,
        entry: Entry<'_, K, S>,
    ) -> Result<(), RejectedTaskError<K, Self>>
    where
        Self: Send + 'static,
        K: Key,
        S: BuildHasher + Send + Sync + 'static,
    {
        entry.submit(self, |work, pool| work.prepare(mode, pool)).map(drop)
    }
}

impl<T, F> TaskWork<Plain, Closure> for F
where
    F: FnOnce() -> T,
    T: Send + 'static,
{
    type Value = T;
    type Error = Infallible;

    fn prepare(self, _: &Plain, _: PoolContext<'_>) -> PreparedWork<F, T, Infallible>
    where
        F: Send + 'static,
    {
        PreparedWork::closure(InfallibleFn(self))
    }

    #[inline]
    fn execute_in<K, S>(
        self,
        _: &Plain,
        entry: Entry<'_, K, S>,
    ) -> Result<(), RejectedTaskError<K, F>>
    where
        F: Send + 'static,
        K: Key,
        S: BuildHasher + Send + Sync + 'static,
    {
        entry.execute(self)
    }
}

impl<T, E, F> TaskWork<Fallible, Closure> for F
where
    F: FnOnce() -> Result<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    type Value = T;
    type Error = E;

    fn prepare(self, _: &Fallible, _: PoolContext<'_>) -> PreparedWork<F, T, E>
    where
        F: Send + 'static,
    {
        PreparedWork::closure(FallibleFn(self))
    }
}

impl<T, E, F> TaskWork<Retrying, Closure> for F
where
    F: FnMut() -> Result<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    type Value = T;
    type Error = E;

    const NEEDS: WorkNeeds = WorkNeeds { runtime: false, timer: true };

    fn prepare(self, mode: &Retrying, _: PoolContext<'_>) -> PreparedWork<F, T, E>
    where
        F: Send + 'static,
    {
        PreparedWork::retrying(self, mode.0)
    }
}

#[cfg(feature = "tokio")]
impl<F> TaskWork<Plain, Async> for F
where
    F: Future<Output: Send + 'static>,
{
    type Value = F::Output;
    type Error = Infallible;

    const NEEDS: WorkNeeds = WorkNeeds { runtime: true, timer: false };

    fn prepare(self, _: &Plain, pool: PoolContext<'_>) -> PreparedWork<F, F::Output, Infallible>
    where
        F: Send + 'static,
    {
        PreparedWork::future(self, pool, Outcome::Completed)
    }
}

#[cfg(feature = "tokio")]
impl<T, E, F> TaskWork<Fallible, Async> for F
where
    F: Future<Output = Result<T, E>>,
    T: Send + 'static,
    E: Send + 'static,
{
    type Value = T;
    type Error = E;

    const NEEDS: WorkNeeds = WorkNeeds { runtime: true, timer: false };

    fn prepare(self, _: &Fallible, pool: PoolContext<'_>) -> PreparedWork<F, T, E>
    where
        F: Send + 'static,
    {
        PreparedWork::future(self, pool, |result| match result {
            Ok(value) => Outcome::Completed(value),
            Err(error) => Outcome::Failed(error),
        })
    }
}
