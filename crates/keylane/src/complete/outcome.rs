//! How a task ended.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;

/// How a task ended.
///
/// ```
/// use keylane::{Outcome, Pool};
///
/// let pool = Pool::<u32>::builder().build()?;
/// let answer = pool.submit(7, || 6 * 7)?;
/// assert_eq!(answer.wait()?.done(), Some(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<T, E = Infallible> {
    /// The body returned this.
    Done(T),
    /// The body returned an error.
    Failed(E),
    /// The body panicked. Its key went on with the next task.
    Panicked(PanicPayload),
    /// The task was cancelled before it began, its future was cancelled, or its pool was stopped.
    Cancelled,
    /// A later task took its place before it began: see
    /// [`Pool::submit_latest`](crate::Pool::submit_latest).
    Superseded,
}

impl<T, E> Outcome<T, E> {
    /// What the body returned, if it returned a value.
    pub fn done(self) -> Option<T> {
        match self {
            Outcome::Done(value) => Some(value),
            _ => None,
        }
    }

    /// Whether the body returned a value.
    pub fn is_done(&self) -> bool {
        matches!(self, Outcome::Done(_))
    }

    /// Whether the task was cancelled.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Outcome::Cancelled)
    }

    /// Whether a later task took its place.
    pub fn is_superseded(&self) -> bool {
        matches!(self, Outcome::Superseded)
    }

    /// What the body returned.
    ///
    /// # Panics
    ///
    /// If it did not return a value. If it panicked, with the same payload.
    #[track_caller]
    pub fn unwrap(self) -> T
    where
        E: fmt::Debug,
    {
        match self {
            Outcome::Done(value) => value,
            Outcome::Panicked(payload) => std::panic::resume_unwind(payload.into_inner()),
            Outcome::Failed(error) => panic!("the task failed: {error:?}"),
            Outcome::Cancelled => panic!("the task was cancelled"),
            Outcome::Superseded => panic!("the task was superseded"),
        }
    }
}

/// What a task panicked with.
pub struct PanicPayload(Box<dyn Any + Send>);

impl PanicPayload {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        PanicPayload(payload)
    }

    /// The message, if it was one, as it is for `panic!("...")`.
    pub fn message(&self) -> Option<&str> {
        panic_message(&*self.0)
    }

    /// The payload itself, as `std::panic::catch_unwind` gives it.
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0
    }
}

/// The message of a panic's payload.
pub(crate) fn panic_message(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

impl fmt::Debug for PanicPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PanicPayload").field(&self.message().unwrap_or("not a message")).finish()
    }
}
