//! A bound on what all unfinished tasks weigh together, in bytes or whatever else the user counts.
//!
//! A fair count of [`Slots`], one for each byte: a large request heads the line like any other and
//! holds back those behind it until it has all that it asks for, so that it does not starve.

use std::sync::Arc;
use std::time::Instant;

use super::slots::{MAX_SLOTS, Refused, Slots};
use crate::sync::Thread;

#[derive(Debug)]
pub(crate) struct ByteBound {
    slots: Slots,
    /// The bound. Never changed.
    most: usize,
}

/// Bytes that a task has taken. Dropping them gives them back.
#[derive(Debug)]
pub(crate) struct Cost {
    bound: Arc<ByteBound>,
    bytes: usize,
}

impl ByteBound {
    /// The largest bound.
    pub(crate) const MOST: usize = MAX_SLOTS;

    pub(crate) fn new(most: usize) -> Arc<Self> {
        Arc::new(ByteBound { slots: Slots::new(most), most })
    }

    /// The bound.
    pub(crate) fn most(&self) -> usize {
        self.most
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

    pub(crate) fn try_take(self: &Arc<Self>, bytes: usize) -> Result<Cost, Refused> {
        self.slots.try_acquire(bytes).map(|()| self.taken(bytes))
    }

    /// Waits for so many bytes, which are no more than the bound, first come, first served.
    pub(crate) fn take(
        self: &Arc<Self>,
        bytes: usize,
        deadline: Option<Instant>,
    ) -> Result<Cost, Refused> {
        match self.slots.try_acquire(bytes) {
            Err(Refused::Full) => match self.slots.stand_in_line(bytes)? {
                None => Ok(()),
                Some(standing) => standing.wait(deadline),
            },
            settled => settled,
        }?;
        Ok(self.taken(bytes))
    }

    /// The same for a task. Dropped before it is ready, it has taken nothing.
    pub(crate) async fn take_async(self: &Arc<Self>, bytes: usize) -> Result<Cost, Refused> {
        match self.slots.try_acquire(bytes) {
            Err(Refused::Full) => self.slots.acquire_async(bytes).await?,
            settled => settled?,
        }
        Ok(self.taken(bytes))
    }

    /// Takes bytes even beyond the bound, for a task that a task submits.
    pub(crate) fn force(self: &Arc<Self>, bytes: usize) -> Result<Cost, Refused> {
        if self.slots.is_closed() {
            return Err(Refused::Closed);
        }
        Ok(self.force_for_accepted(bytes))
    }

    /// The same for a subtask of a job that was accepted before the bound was closed.
    pub(crate) fn force_for_accepted(self: &Arc<Self>, bytes: usize) -> Cost {
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
