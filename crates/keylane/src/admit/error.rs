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

/// Reason why an operation of a [`FairQueue`](super::FairQueue) moved no item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum QueueError {
    /// The queue is closed, or was closed during the wait. A pop returns the items that a closed
    /// queue still has first. Of a transfer, the target is closed.
    Closed,
    /// The queue has no capacity for all items, and the call does not wait. Of a transfer, the
    /// target has none.
    Full,
    /// The queue is empty, and the call does not wait.
    Empty,
    /// The timeout or deadline passed before the queue had capacity, or an item.
    TimedOut,
    /// The source of a transfer holds fewer items than requested.
    TooFew,
}

impl fmt::Display for QueueError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QueueError::Closed => "the queue is closed",
            QueueError::Full => "the queue has no capacity for all items",
            QueueError::Empty => "the queue is empty",
            QueueError::TimedOut => "the timeout passed before the queue had capacity or an item",
            QueueError::TooFew => "the queue holds fewer items than requested",
        })
    }
}

impl Error for QueueError {}

/// Error of a push. It returns the rejected item, or a `Vec` of the items that were not pushed, in
/// their order. It is [`Send`] and [`Sync`] if the items are [`Send`].
pub struct PushError<T> {
    kind: QueueError,
    rejected: OwnerOnly<T>,
}

impl<T> PushError<T> {
    pub(super) fn new(kind: QueueError, rejected: T) -> Self {
        PushError { kind, rejected: OwnerOnly::new(rejected) }
    }

    pub(super) fn map<U>(self, change: impl FnOnce(T) -> U) -> PushError<U> {
        PushError::new(self.kind, change(self.rejected.into_inner()))
    }

    /// Reason for the rejection.
    pub fn kind(&self) -> QueueError {
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
