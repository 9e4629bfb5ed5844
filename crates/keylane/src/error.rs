//! Errors of building a pool, of submissions, and of shutdowns.

use std::fmt;
use std::io;

use crate::sync::OwnerOnly;

/// Reason for which a task was not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SubmitErrorKind {
    /// The pool was closed or shut down.
    Closed,
    /// The pool has no capacity left, and the caller did not wait.
    Full,
    /// One of the task's keys has its maximum of unfinished tasks, or other submitters wait for it,
    /// and the caller did not wait: see
    /// [`Builder::capacity_per_key`](crate::Builder::capacity_per_key).
    KeyFull,
    /// The task's cost exceeds the bound on the cost of all tasks: see
    /// [`Builder::capacity_bytes`](crate::Builder::capacity_bytes).
    TooLarge,
    /// One of the task's keys was finished, and accepts no more tasks: see
    /// [`Task::last`](crate::Task::last).
    KeyClosed,
    /// The pool had no capacity left before the caller's timeout.
    TimedOut,
    /// A panic has left the pool inconsistent, so it has ended: the `Eq`, `Hash` or `Clone` of a key
    /// has panicked in a pool with `capacity_per_key`, states of keys or self-checks, or a worker
    /// has died. Tasks that had not begun were
    /// dropped, and their handles return that they were cancelled. Fix the key's type, and build a
    /// new pool.
    Poisoned,
    /// The task needs the pool's timer, and the operating system refused its thread.
    NoTimer,
    /// The task is a future, and the pool was built without a runtime.
    #[cfg(feature = "tokio")]
    NoRuntime,
}

impl SubmitErrorKind {
    /// Returns whether the pool or the key had no capacity left.
    pub(crate) fn is_full(self) -> bool {
        matches!(self, Self::Full | Self::KeyFull | Self::TimedOut)
    }
}

impl fmt::Display for SubmitErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SubmitErrorKind::Closed => "the pool is closed",
            SubmitErrorKind::Full => "the pool is full",
            SubmitErrorKind::KeyFull => {
                "the key has as many unfinished tasks as `capacity_per_key` allows"
            }
            SubmitErrorKind::TooLarge => "the cost of the task exceeds the pool's `capacity_bytes`",
            SubmitErrorKind::KeyClosed => "the key was finished",
            SubmitErrorKind::TimedOut => "the pool had no capacity left before the timeout",
            SubmitErrorKind::Poisoned => {
                "the pool is poisoned: a panic of a key's `Eq`, `Hash` or `Clone` has left it \
                 inconsistent; fix the key's type and build a new pool"
            }
            SubmitErrorKind::NoTimer => {
                "the operating system refused the thread of the pool's timer; submit the task later"
            }
            #[cfg(feature = "tokio")]
            SubmitErrorKind::NoRuntime => {
                "the pool was built without a runtime for futures; see `Builder::runtime`"
            }
        })
    }
}

/// Error of a submission. It contains the task.
///
/// It is [`Send`] and [`Sync`] if the task is [`Send`], so `?` converts it to `anyhow::Error` and
/// to `Box<dyn Error + Send + Sync>`.
pub struct SubmitError<T> {
    kind: SubmitErrorKind,
    rejected: OwnerOnly<T>,
}

impl<T> SubmitError<T> {
    pub(crate) fn new(kind: SubmitErrorKind, rejected: T) -> Self {
        SubmitError { kind, rejected: OwnerOnly::new(rejected) }
    }

    /// Returns the reason for which the task was not accepted.
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

/// Error of a batch that was not accepted to its end: the pool was closed, or one of its tasks is
/// too large.
pub struct BatchError<A, T> {
    accepted: A,
    rejected: OwnerOnly<Vec<T>>,
    /// Number of rejected tasks.
    count: usize,
    kind: SubmitErrorKind,
}

impl<A, T> BatchError<A, T> {
    pub(crate) fn new(accepted: A, rejected: Vec<T>, kind: SubmitErrorKind) -> Self {
        let count = rejected.len();
        BatchError { accepted, rejected: OwnerOnly::new(rejected), count, kind }
    }

    /// Returns the reason for which the first rejected task was refused. Those behind it were not
    /// tried.
    pub fn kind(&self) -> SubmitErrorKind {
        self.kind
    }

    /// Returns the accepted part: the handles of `submit_many`, the number of tasks of the other
    /// calls.
    pub fn accepted(&self) -> &A {
        &self.accepted
    }

    /// Returns the accepted part, and the rejected tasks.
    pub fn into_inner(self) -> (A, Vec<T>) {
        (self.accepted, self.rejected.into_inner())
    }
}

impl<A, T> fmt::Debug for BatchError<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BatchError")
            .field("kind", &self.kind)
            .field("rejected", &self.count)
            .finish_non_exhaustive()
    }
}

impl<A, T> fmt::Display for BatchError<A, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {} tasks of the batch were not accepted", self.kind, self.count)
    }
}

impl<A, T> std::error::Error for BatchError<A, T> {}

/// Reason for which a shutdown or a wait for an idle pool ended before the pool was empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WaitError {
    /// The timeout passed. Accepted tasks continue, and a pool that was shut down stays closed.
    TimedOut,
    /// The caller is a task of the pool, and would wait for its own end.
    FromInside,
    /// A panic has left the pool inconsistent, so it has ended, and not all accepted tasks have
    /// run: see [`SubmitErrorKind::Poisoned`].
    Poisoned,
}

impl fmt::Display for WaitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WaitError::TimedOut => "the timeout passed with unfinished tasks",
            WaitError::FromInside => {
                "a task cannot wait for the end of all tasks of its own pool: wait on another thread"
            }
            WaitError::Poisoned => {
                "the pool is poisoned: a panic inside it has dropped tasks that had not begun"
            }
        })
    }
}

impl std::error::Error for WaitError {}

/// Reason for which a pool could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// The number of workers is not between 1 and [`MAX_WORKERS`](crate::MAX_WORKERS).
    Workers(usize),
    /// The capacity is not between 1 and [`MAX_CAPACITY`](crate::MAX_CAPACITY) tasks.
    Capacity(usize),
    /// The maximum number of waiting tasks per key is zero.
    PerKey,
    /// The capacity is not between 1 and [`MAX_CAPACITY_BYTES`](crate::MAX_CAPACITY_BYTES) bytes.
    Bytes(usize),
    /// The quantum is zero tasks.
    QuantumTasks,
    /// The number of failures that stop a key is zero.
    Failures,
    /// The concurrency of futures is zero, or more than the permits of a tokio semaphore.
    #[cfg(feature = "tokio")]
    Concurrency(usize),
    /// The operating system refused to start a thread.
    Thread(io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Workers(n) => {
                write!(f, "`workers` is {n}: it must be 1 to {}", crate::MAX_WORKERS)
            }
            BuildError::Capacity(n) => {
                write!(f, "`capacity` is {n}: it must be 1 to {} tasks", crate::MAX_CAPACITY)
            }
            #[cfg(feature = "tokio")]
            BuildError::Concurrency(n) => {
                let most = crate::complete::MAX_FUTURES;
                write!(f, "`concurrency` is {n} futures: it must be 1 to {most}")
            }
            BuildError::PerKey => f.write_str("`capacity_per_key` is 0: it must be at least 1"),
            BuildError::Bytes(n) => {
                write!(
                    f,
                    "`capacity_bytes` is {n}: it must be 1 to {} bytes",
                    crate::MAX_CAPACITY_BYTES
                )
            }
            BuildError::QuantumTasks => f.write_str("`quantum` is 0 tasks: it must be at least 1"),
            BuildError::Failures => {
                f.write_str("`OnFailure::StopKey` has `after` 0: it must be at least 1")
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
