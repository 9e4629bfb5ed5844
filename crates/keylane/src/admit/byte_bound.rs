//! A bound on what all unfinished tasks weigh together, in bytes or whatever else the user counts.
//!
//! A fair count of [`Semaphore`], one for each byte: a large request heads the line like any other and
//! holds back those behind it until it has all that it asks for, so that it does not starve.

use std::sync::Arc;
use std::time::Instant;

use super::semaphore::{MAX_SLOTS, Semaphore, TryAcquireError};
use crate::sync::Thread;

#[derive(Debug)]
pub(crate) struct ByteBound {
    slots: Semaphore,
    /// The bound. Never changed.
    limit: usize,
}

/// Bytes that a task has taken. Dropping them gives them back.
#[derive(Debug)]
pub(crate) struct Cost {
    bound: Arc<ByteBound>,
    bytes: usize,
}

impl ByteBound {
    /// The largest bound.
    pub(crate) const MAX: usize = MAX_SLOTS;

    pub(crate) fn new(limit: usize) -> Arc<Self> {
        Arc::new(ByteBound { slots: Semaphore::new(limit), limit })
    }

    /// The bound.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Bytes that are taken.
    pub(crate) fn in_use(&self) -> usize {
        self.slots.in_use()
    }

    /// How many wait for bytes.
    pub(crate) fn waiting(&self) -> usize {
        self.slots.waiting()
    }

    /// Those who wait, in their order: the thread, if it is one, and what it wants.
    pub(crate) fn waiters(&self) -> Vec<(Option<Thread>, usize)> {
        self.slots.waiters()
    }

    pub(crate) fn try_acquire(self: &Arc<Self>, bytes: usize) -> Result<Cost, TryAcquireError> {
        self.slots.try_acquire(bytes).map(|()| self.taken(bytes))
    }

    /// Waits for so many bytes, which are no more than the bound, first come, first served.
    pub(crate) fn acquire(
        self: &Arc<Self>,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<Cost, TryAcquireError> {
        match self.slots.try_acquire(bytes) {
            Err(TryAcquireError::Full) => match self.slots.enqueue_thread(bytes)? {
                None => Ok(()),
                Some(queued) => queued.wait(deadline),
            },
            settled => settled,
        }?;
        Ok(self.taken(bytes))
    }

    /// The same for a task. Dropped before it is ready, it has taken nothing.
    pub(crate) async fn acquire_async(
        self: &Arc<Self>,
        bytes: usize,
    ) -> Result<Cost, TryAcquireError> {
        match self.slots.try_acquire(bytes) {
            Err(TryAcquireError::Full) => self.slots.acquire_async(bytes).await?,
            settled => settled?,
        }
        Ok(self.taken(bytes))
    }

    /// Takes bytes even beyond the bound, for a task that a task submits.
    pub(crate) fn force(self: &Arc<Self>, bytes: usize) -> Result<Cost, TryAcquireError> {
        if self.slots.is_closed() {
            return Err(TryAcquireError::Closed);
        }
        Ok(self.force_accepted(bytes))
    }

    /// The same for a subtask of a job that was accepted before the bound was closed.
    pub(crate) fn force_accepted(self: &Arc<Self>, bytes: usize) -> Cost {
        self.slots.force(bytes);
        self.taken(bytes)
    }

    /// Speaks for bytes that were taken: by this caller just now, or by one that
    /// [left them with its task](Cost::leave).
    pub(crate) fn taken(self: &Arc<Self>, bytes: usize) -> Cost {
        Cost { bound: self.clone(), bytes }
    }

    /// Refuses whoever waits, and whoever comes.
    pub(crate) fn close(&self) {
        self.slots.close();
    }
}

impl Cost {
    /// Leaves the bytes taken. Whoever knows how many they are gives them back.
    pub(crate) fn leave(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Cost {
    fn drop(&mut self) {
        self.bound.slots.release(self.bytes);
    }
}
