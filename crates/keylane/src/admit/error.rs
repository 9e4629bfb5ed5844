//! Why a gate or a queue was not made, and why nothing was had from it.

use std::error::Error;
use std::fmt;

/// A gate without slots or a queue without room was asked for, or too much to count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapacityError {
    /// The bound is to be 0: whoever came would wait for ever.
    Zero,
    /// The bound is to be above [`Gate::MAX_SLOTS`](super::Gate::MAX_SLOTS).
    TooLarge,
}

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CapacityError::Zero => {
                "a capacity of 0 would admit nobody, ever; it must be at least 1"
            }
            CapacityError::TooLarge => "the capacity is above `Gate::MAX_SLOTS`",
        })
    }
}

impl Error for CapacityError {}

/// Why no slot of a [`Gate`](super::Gate) was had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The gate is closed, or was while the caller waited.
    Closed,
    /// Not enough slots are free, or others wait for them, and the caller did not want to wait.
    Full,
    /// The caller's turn did not come in the time that it gave.
    TimedOut,
    /// More slots were asked for than the gate has, or has since it was resized.
    TooLarge,
}

impl fmt::Display for AcquireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            AcquireError::Closed => "the gate is closed",
            AcquireError::Full => "the gate has not enough free slots",
            AcquireError::TimedOut => "no slots were free in time",
            AcquireError::TooLarge => "more slots were asked for than the gate has",
        })
    }
}

impl Error for AcquireError {}

/// Why something was not pushed into a [`FairQueue`](super::FairQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushErrorKind {
    /// The queue is closed, or was while the caller waited.
    Closed,
    /// There is no room, and the caller did not want to wait.
    Full,
    /// There was no room in the time that the caller gave.
    TimedOut,
}

impl fmt::Display for PushErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushErrorKind::Closed => "the queue is closed",
            PushErrorKind::Full => "the queue is full",
            PushErrorKind::TimedOut => "the queue had no room in time",
        })
    }
}

/// Something was not pushed. It comes back in the error: the item, or a `Vec` of those that were not
/// pushed, in their order.
pub struct PushError<T> {
    kind: PushErrorKind,
    rejected: T,
}

impl<T> PushError<T> {
    pub(super) fn new(kind: PushErrorKind, rejected: T) -> Self {
        PushError { kind, rejected }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> PushError<U> {
        PushError { kind: self.kind, rejected: change(self.rejected) }
    }

    /// Why it was not pushed.
    pub fn kind(&self) -> PushErrorKind {
        self.kind
    }

    /// What was to be pushed.
    pub fn into_inner(self) -> T {
        self.rejected
    }
}

impl<T> fmt::Debug for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PushError").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for PushError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl<T> Error for PushError<T> {}

/// Why nothing was popped from a [`FairQueue`](super::FairQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PopError {
    /// The queue is closed, and there is nothing left in it.
    Closed,
    /// There is no item, and the caller did not want to wait.
    Empty,
    /// There was no item in the time that the caller gave.
    TimedOut,
}

impl fmt::Display for PopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PopError::Closed => "the queue is closed and empty",
            PopError::Empty => "the queue is empty",
            PopError::TimedOut => "no item came in time",
        })
    }
}

impl Error for PopError {}

/// Why nothing was moved from one [`FairQueue`](super::FairQueue) to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferError {
    /// The other queue is closed.
    Closed,
    /// The other queue has no room for so many.
    Full,
    /// There are fewer items than were to be moved.
    TooFew,
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransferError::Closed => "the other queue is closed",
            TransferError::Full => "the other queue has no room for all of them",
            TransferError::TooFew => "there are fewer items than were to be moved",
        })
    }
}

impl Error for TransferError {}
