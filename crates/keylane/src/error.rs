//! Why a pool was not built, or a task not accepted.

use std::fmt;
use std::io;

use crate::sync::Exclusive;

/// Why a task was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitErrorKind {
    /// The pool was closed, drained or stopped.
    Closed,
    /// The pool has no room, and the caller did not want to wait.
    Full,
    /// One of the task's keys has as many unfinished tasks as it may have, or others wait there, and
    /// the caller did not want to wait: see
    /// [`Builder::capacity_per_key`](crate::Builder::capacity_per_key).
    KeyFull,
    /// The task weighs more than all tasks together may: see
    /// [`Builder::capacity_bytes`](crate::Builder::capacity_bytes).
    TooLarge,
    /// One of the task's keys was finished, and is to take no more: see
    /// [`Pool::close_key`](crate::Pool::close_key).
    KeyClosed,
    /// There was no room in the time that the caller gave.
    TimedOut,
    /// A panic has left the pool half changed, so it has ended: the `Eq`, `Hash`, `Clone` or drop of a
    /// key has panicked inside it, or a worker has died. What had not begun was dropped, and its handles
    /// were told that it was cancelled. Fix the key's type, and build a new pool.
    Poisoned,
    /// The task is a future, and the pool was built without a runtime.
    #[cfg(feature = "tokio")]
    NoRuntime,
}

impl SubmitErrorKind {
    /// Whether there was no room.
    pub(crate) fn is_full(self) -> bool {
        matches!(self, Self::Full | Self::KeyFull | Self::TimedOut)
    }
}

impl fmt::Display for SubmitErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SubmitErrorKind::Closed => "the pool is closed",
            SubmitErrorKind::Full => "the pool is full",
            SubmitErrorKind::KeyFull => "the key has as many unfinished tasks as it may have",
            SubmitErrorKind::TooLarge => "the task weighs more than all tasks together may",
            SubmitErrorKind::KeyClosed => "the key was finished",
            SubmitErrorKind::TimedOut => "the pool had no room in time",
            SubmitErrorKind::Poisoned => {
                "the pool is poisoned: a panic of a key's `Eq`, `Hash`, `Clone` or drop has left it \
                 half changed; fix the key's type and build a new pool"
            }
            #[cfg(feature = "tokio")]
            SubmitErrorKind::NoRuntime => {
                "the pool was built without a runtime for futures; see `Builder::runtime`"
            }
        })
    }
}

/// A task was not accepted. It comes back in the error.
///
/// It is [`Send`] and [`Sync`] if the task is [`Send`], so `?` converts it to `anyhow::Error` and to
/// `Box<dyn Error + Send + Sync>`.
pub struct SubmitError<T> {
    kind: SubmitErrorKind,
    rejected: Exclusive<T>,
}

impl<T> SubmitError<T> {
    pub(crate) fn new(kind: SubmitErrorKind, rejected: T) -> Self {
        SubmitError { kind, rejected: Exclusive::new(rejected) }
    }

    /// Why it was not accepted.
    pub fn kind(&self) -> SubmitErrorKind {
        self.kind
    }

    /// Returns the rejected task.
    pub fn into_inner(self) -> T {
        self.rejected.into_inner()
    }
}

impl<T> fmt::Debug for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubmitError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SubmitError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<T> std::error::Error for SubmitError<T> {}

/// A batch was not accepted to its end: the pool was closed, or one of its tasks is too large.
pub struct BatchError<A, T> {
    accepted: A,
    rejected: Vec<T>,
    kind: SubmitErrorKind,
}

impl<A, T> BatchError<A, T> {
    pub(crate) fn new(accepted: A, rejected: Vec<T>, kind: SubmitErrorKind) -> Self {
        BatchError { accepted, rejected, kind }
    }

    /// Why the first of those that were not accepted was refused. Those behind it were not tried.
    pub fn kind(&self) -> SubmitErrorKind {
        self.kind
    }

    /// What was accepted: the handles of `submit_many`, the number of tasks of the others.
    pub fn accepted(&self) -> &A {
        &self.accepted
    }

    /// What was accepted, and the tasks that were not.
    pub fn into_inner(self) -> (A, Vec<T>) {
        (self.accepted, self.rejected)
    }
}

impl<A, T> fmt::Debug for BatchError<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchError")
            .field("kind", &self.kind)
            .field("rejected", &self.rejected.len())
            .finish_non_exhaustive()
    }
}

impl<A, T> fmt::Display for BatchError<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} tasks of the batch were not accepted", self.kind, self.rejected.len())
    }
}

impl<A, T> std::error::Error for BatchError<A, T> {}

/// Why a drain ended before the pool was empty. The pool is closed in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShutdownError {
    /// The time was over. What was accepted goes on.
    TimedOut,
    /// The caller is a task of the pool, and would wait for its own end.
    FromInside,
    /// A panic has left the pool half changed, so it has ended, and not all that was accepted has run: see
    /// [`SubmitErrorKind::Poisoned`].
    Poisoned,
}

impl fmt::Display for ShutdownError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShutdownError::TimedOut => "tasks were unfinished when the time to drain was over",
            ShutdownError::FromInside => "a task can't wait until its own pool is empty",
            ShutdownError::Poisoned => {
                "the pool is poisoned: a panic inside it has dropped tasks that had not begun"
            }
        })
    }
}

impl std::error::Error for ShutdownError {}

/// Why a pool could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// There must be at least one worker, and at most [`MAX_WORKERS`](crate::MAX_WORKERS).
    Workers(usize),
    /// There must be room for at least one task, and for at most
    /// [`MAX_CAPACITY`](crate::MAX_CAPACITY).
    Capacity(usize),
    /// A key must have room for at least one task.
    PerKey,
    /// There must be room for at least one byte, and for at most [`MAX_CAPACITY_BYTES`](crate::MAX_CAPACITY_BYTES).
    Bytes(usize),
    /// A turn must last for at least one task.
    QuantumTasks,
    /// A key can't be stopped after no failure at all.
    Failures,
    /// At least one future must be allowed to run at a time, and no more than a semaphore of tokio's
    /// has permits.
    #[cfg(feature = "tokio")]
    Concurrency(usize),
    /// The operating system has refused a thread.
    Thread(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Workers(n) => {
                write!(f, "{n} workers: a pool has 1 to {} of them", crate::MAX_WORKERS)
            }
            BuildError::Capacity(n) => {
                write!(
                    f,
                    "a capacity of {n}: a pool has room for 1 to {} tasks",
                    crate::MAX_CAPACITY
                )
            }
            #[cfg(feature = "tokio")]
            BuildError::Concurrency(n) => {
                let most = crate::complete::MAX_FUTURES;
                write!(f, "a concurrency of {n} futures: it must be 1 to {most}")
            }
            BuildError::PerKey => {
                f.write_str("a bound of 0 tasks for each key would admit nobody, ever")
            }
            BuildError::Bytes(n) => {
                write!(
                    f,
                    "a capacity of {n} bytes: a pool has room for 1 to {}",
                    crate::MAX_CAPACITY_BYTES
                )
            }
            BuildError::QuantumTasks => f.write_str("a quantum of 0 tasks: it must be at least 1"),
            BuildError::Failures => {
                f.write_str("a key stops after 0 failures: it must be at least 1")
            }
            BuildError::Thread(_) => f.write_str("the operating system refused a worker thread"),
        }
    }
}

impl std::error::Error for BuildError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            BuildError::Thread(error) => Some(error),
            _ => None,
        }
    }
}
