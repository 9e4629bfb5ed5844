//! Limits the total cost of all unfinished tasks, in bytes or another unit of the user.
//!
//! Built on [`Semaphore`] with one slot for each byte: a large request at the head of the wait
//! queue blocks later ones until it has all its bytes, so that it does not starve.

use std::sync::Arc;
use std::time::Instant;

use super::semaphore::{MAX_SLOTS, Semaphore, TryAcquireError};
use crate::sync::Thread;

#[derive(Debug)]
pub(crate) struct ByteBound {
    slots: Semaphore,
    /// Maximum cost, in bytes. Never changes.
    limit: usize,
}

/// Bytes held by a task. Dropping this releases them.
#[derive(Debug)]
pub(crate) struct HeldBytes {
    bound: Arc<ByteBound>,
    bytes: usize,
}

impl ByteBound {
    /// Largest possible limit, in bytes.
    pub(crate) const MAX: usize = MAX_SLOTS;

    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(ByteBound { slots: Semaphore::new(limit), limit })
    }

    /// Maximum cost, in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Number of bytes in use.
    pub(crate) fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// Number of callers that wait for bytes.
    pub(crate) fn waiting(&self) -> usize {
        self.slots.waiting()
    }

    /// Returns the waiters in queue order: the thread of each, unless it is an async task, and the
    /// number of bytes it wants.
    pub(crate) fn waiters(&self) -> Vec<(Option<Thread>, usize)> {
        self.slots.waiters()
    }

    pub(crate) fn try_acquire(
        self: &Arc<Self>,
        bytes: usize,
    ) -> Result<HeldBytes, TryAcquireError> {
        self.slots.try_acquire(bytes).map(|()| self.taken(bytes))
    }

    /// Waits for `bytes` bytes, in the order of arrival. `bytes` is at most the limit.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<HeldBytes, TryAcquireError> {
        match self.slots.try_acquire(bytes) {
            Err(TryAcquireError::Full) => match self.slots.enqueue_thread(bytes)? {
                None => Ok(()),
                Some(queued) => queued.wait(deadline),
            },
            result => result,
        }?;
        Ok(self.taken(bytes))
    }

    /// Waits for `bytes` bytes as a future. Dropped before it is ready, it holds none.
    pub(crate) async fn acquire_async(
        self: &Arc<Self>,
        bytes: usize,
    ) -> Result<HeldBytes, TryAcquireError> {
        match self.slots.try_acquire(bytes) {
            Err(TryAcquireError::Full) => self.slots.acquire_async(bytes).await?,
            result => result?,
        }
        Ok(self.taken(bytes))
    }

    /// Takes bytes, exceeding the limit if they are not free. For tasks submitted from inside a
    /// task.
    pub(crate) fn force(self: &Arc<Self>, bytes: usize) -> Result<HeldBytes, TryAcquireError> {
        if self.slots.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        Ok(self.force_accepted(bytes))
    }

    /// Takes bytes even if the bound is closed. For subtasks of a job accepted before the close.
    pub(crate) fn force_accepted(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        self.slots.force(bytes);
        self.taken(bytes)
    }

    /// Wraps bytes that are already taken: by this caller just now, or by one that [detached
    /// them](HeldBytes::leave).
    pub(crate) fn taken(self: &Arc<Self>, bytes: usize) -> HeldBytes {
        HeldBytes { bound: self.clone(), bytes }
    }

    /// Refuses all current and future waiters.
    pub(crate) fn close(&self) {
        self.slots.close();
    }
}

impl HeldBytes {
    /// Detaches the bytes without releasing them. The task that keeps their number releases them
    /// with [`ByteBound::taken`].
    pub(crate) fn leave(mut self) {
        self.bytes = 0;
    }
}

impl Drop for HeldBytes {
    fn drop(&mut self) {
        self.bound.slots.release(self.bytes);
    }
}
