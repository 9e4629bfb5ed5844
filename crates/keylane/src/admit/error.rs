//! Errors of the gate and the queue: an invalid capacity, or the reason why an operation took no
//! effect.

use std::error::Error;
use std::fmt;

use crate::sync::OwnerOnly;

/// Error of a capacity that is 0 or too large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapacityError {
    /// The capacity is 0, so every caller would wait forever.
    Zero,
    /// The capacity is above [`Gate::MAX_SLOTS`](super::Gate::MAX_SLOTS).
    TooLarge,
}

impl fmt::Display for CapacityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CapacityError::Zero => "`capacity` is 0; use at least 1",
            CapacityError::TooLarge => {
                "`capacity` is above `Gate::MAX_SLOTS`; use a smaller number"
            }
        })
    }
}

impl Error for CapacityError {}

/// Reason why no slot of a [`Gate`](super::Gate) was acquired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AcquireError {
    /// The gate is closed, or was closed during the wait.
    Closed,
    /// Not enough slots are free, or earlier callers wait for them, and the call does not wait.
    Full,
    /// The timeout or deadline passed before the slots were granted.
    TimedOut,
    /// The request is for more slots than the gate has, or has since it was resized.
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

/// Reason why an item was not pushed into a [`FairQueue`](super::FairQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushErrorKind {
    /// The queue is closed, or was closed during the wait.
    Closed,
    /// The queue is full, and the call does not wait.
    Full,
    /// The timeout or deadline passed before the queue had capacity.
    TimedOut,
}

impl fmt::Display for PushErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PushErrorKind::Closed => "the queue is closed",
            PushErrorKind::Full => "the queue is full",
            PushErrorKind::TimedOut => "the queue stayed full until the timeout",
        })
    }
}

/// Error of a push. It returns the rejected item, or a `Vec` of the items that were not pushed, in
/// their order. It is [`Send`] and [`Sync`] if the items are [`Send`].
pub struct PushError<T> {
    kind: PushErrorKind,
    rejected: OwnerOnly<T>,
}

impl<T> PushError<T> {
    pub(super) fn new(kind: PushErrorKind, rejected: T) -> Self {
        PushError { kind, rejected: OwnerOnly::new(rejected) }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> PushError<U> {
        PushError::new(self.kind, change(self.rejected.into_inner()))
    }

    /// Reason for the rejection.
    pub fn kind(&self) -> PushErrorKind {
        self.kind
    }

    /// Returns the rejected item or items.
    pub fn into_inner(self) -> T {
        self.rejected.into_inner()
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

/// Reason why no item was popped from a [`FairQueue`](super::FairQueue).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PopError {
    /// The queue is closed and empty.
    Closed,
    /// The queue is empty, and the call does not wait.
    Empty,
    /// The timeout or deadline passed before an item arrived.
    TimedOut,
}

impl fmt::Display for PopError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PopError::Closed => "the queue is closed and empty",
            PopError::Empty => "the queue is empty",
            PopError::TimedOut => "no item arrived before the timeout",
        })
    }
}

impl Error for PopError {}

/// Reason why no item was moved from one [`FairQueue`](super::FairQueue) to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransferError {
    /// The target queue is closed.
    Closed,
    /// The target queue has not enough capacity for the items.
    Full,
    /// The source queue holds fewer items than requested.
    TooFew,
}

impl fmt::Display for TransferError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TransferError::Closed => "the target queue is closed",
            TransferError::Full => "the target queue has no capacity for all items",
            TransferError::TooFew => "the source queue holds fewer items than requested",
        })
    }
}

impl Error for TransferError {}
