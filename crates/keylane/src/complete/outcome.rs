//! Final states of a task.

use std::any::Any;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;

use crate::sync::OwnerOnly;

/// Final state of a task.
///
/// ```
/// use keylane::{Outcome, Pool};
///
/// let pool = Pool::<u32>::builder().build()?;
/// let answer = pool.submit(7, || 6 * 7)?;
/// assert_eq!(answer.wait()?.ok(), Some(42));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<T, E = Infallible> {
    /// The body returned a value.
    Completed(T),
    /// The body returned an error.
    Failed(E),
    /// The body panicked. Its key continued with the next task.
    Panicked(PanicPayload),
    /// The task was cancelled before it started or between two attempts, its future was cancelled,
    /// or its pool was stopped.
    Cancelled,
    /// A later task replaced this one before it started: see
    /// [`Task::latest`](crate::Task::latest).
    Superseded,
}

impl<T, E> Outcome<T, E> {
    /// Returns the value of the body, if it returned one.
    pub fn ok(self) -> Option<T> {
        match self {
            Outcome::Completed(value) => Some(value),
            _ => None,
        }
    }

    /// Returns the value of the body, or an error that says how the task ended otherwise.
    ///
    /// ```
    /// use keylane::{Pool, TaskError};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// assert_eq!(pool.submit(7, || 6 * 7)?.wait()?.into_result()?, 42);
    /// pool.keys().pause(&7);
    /// let cancelled = pool.submit(7, || 6 * 7)?;
    /// cancelled.cancel();
    /// assert!(matches!(cancelled.wait()?.into_result(), Err(TaskError::Cancelled)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Every outcome but [`Completed`](Outcome::Completed).
    pub fn into_result(self) -> Result<T, TaskError<E>> {
        match self {
            Outcome::Completed(value) => Ok(value),
            Outcome::Failed(error) => Err(TaskError::Failed(error)),
            Outcome::Panicked(payload) => Err(TaskError::Panicked(payload)),
            Outcome::Cancelled => Err(TaskError::Cancelled),
            Outcome::Superseded => Err(TaskError::Superseded),
        }
    }

    /// Returns whether the body returned a value.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// assert!(pool.submit(7, || 6 * 7)?.wait()?.is_completed());
    /// let number = pool.task(7).fallible().submit(|| "seven".parse::<u32>())?;
    /// assert!(!number.wait()?.is_completed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_completed(&self) -> bool {
        matches!(self, Outcome::Completed(_))
    }

    /// Returns whether the task was cancelled.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// let task = pool.submit(7, || println!("never printed"))?;
    /// drop(pool); // drops the tasks that have not begun
    /// assert!(task.wait()?.is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Outcome::Cancelled)
    }

    /// Returns whether a later task replaced this one.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.keys().pause(&"screen");
    /// let old = pool.task("screen").latest().submit(|| "old")?;
    /// let new = pool.task("screen").latest().submit(|| "new")?;
    /// assert!(old.wait()?.is_superseded());
    /// pool.keys().resume(&"screen");
    /// assert!(!new.wait()?.is_superseded());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_superseded(&self) -> bool {
        matches!(self, Outcome::Superseded)
    }

    /// Returns the value of the body.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// assert_eq!(pool.submit(7, || 6 * 7)?.wait()?.unwrap(), 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the body did not return a value. If it panicked, with the same payload.
    #[track_caller]
    pub fn unwrap(self) -> T
    where
        E: fmt::Debug,
    {
        match self {
            Outcome::Completed(value) => value,
            Outcome::Panicked(payload) => std::panic::resume_unwind(payload.into_inner()),
            Outcome::Failed(error) => panic!("the task failed: {error:?}"),
            Outcome::Cancelled => panic!("the task was cancelled"),
            Outcome::Superseded => panic!("the task was superseded"),
        }
    }
}

/// Why a task has no value, from [`Handle::join`](crate::Handle::join).
///
/// It implements [`Error`], [`Send`] and [`Sync`] if the task's own error does, so `?` converts it
/// to `anyhow::Error` and to `Box<dyn Error + Send + Sync>`.
#[derive(Debug)]
#[non_exhaustive]
pub enum TaskError<E = Infallible> {
    /// The body returned this error.
    Failed(E),
    /// The body panicked.
    Panicked(PanicPayload),
    /// The task was cancelled.
    Cancelled,
    /// A later task replaced this task before it began.
    Superseded,
    /// Waiting would never have ended: see [`WouldDeadlock`](crate::WouldDeadlock).
    WouldDeadlock,
}

impl<E: fmt::Display> fmt::Display for TaskError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskError::Failed(error) => write!(f, "the task failed: {error}"),
            TaskError::Panicked(payload) => match payload.message() {
                Some(message) => write!(f, "the task panicked: {message}"),
                None => f.write_str("the task panicked"),
            },
            TaskError::Cancelled => f.write_str("the task was cancelled"),
            TaskError::Superseded => f.write_str("a later task replaced the task"),
            TaskError::WouldDeadlock => f.write_str(
                "the task is ordered behind the caller, or no worker would be left to run it",
            ),
        }
    }
}

impl<E: Error + 'static> Error for TaskError<E> {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TaskError::Failed(error) => Some(error),
            _ => None,
        }
    }
}

/// Payload of a task's panic.
// In a box, because each cell of a task with a handle has room for one: cells of more than 120 bytes
// make glibc take a lock to free them, and `submit` two to three times slower.
pub struct PanicPayload(Box<PanicParts>);

struct PanicParts {
    message: Option<String>,
    payload: OwnerOnly<Box<dyn Any + Send>>,
}

impl PanicPayload {
    pub(crate) fn new(payload: Box<dyn Any + Send>) -> Self {
        let message = panic_message(&*payload).map(str::to_owned);
        PanicPayload(Box::new(PanicParts { message, payload: OwnerOnly::new(payload) }))
    }

    /// Returns the message, if the payload is one, as it is for `panic!("...")`.
    ///
    /// ```
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let task = pool.submit(7, || -> u32 { panic!("out of range") })?;
    /// let Outcome::Panicked(payload) = task.wait()? else { unreachable!() };
    /// assert_eq!(payload.message(), Some("out of range"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn message(&self) -> Option<&str> {
        self.0.message.as_deref()
    }

    /// Returns the payload, as `std::panic::catch_unwind` does.
    ///
    /// ```
    /// use std::panic::panic_any;
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let task = pool.submit(7, || -> u32 { panic_any(404_u16) })?;
    /// let Outcome::Panicked(payload) = task.wait()? else { unreachable!() };
    /// assert_eq!(payload.into_inner().downcast_ref(), Some(&404_u16));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> Box<dyn Any + Send> {
        self.0.payload.into_inner()
    }
}

/// Message of a panic's payload, if it is text.
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
