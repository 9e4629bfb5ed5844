//! Where a worker is handed its next task.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr;

use super::TaskMeta;

/// A worker's next task. Its work is moved from the backlog to here, and from here it runs: every
/// further copy of a cache line would cost as much as all else that is done for it.
#[derive(Debug)]
pub(crate) struct TaskSlot<K, W> {
    /// Initialized if and only if `full`.
    work: MaybeUninit<W>,
    full: bool,
    /// The task's key, unless the lane has it.
    pub(crate) key: Option<K>,
    /// The task's place in the order, and its time.
    pub(crate) meta: TaskMeta,
}

impl<K, W> Default for TaskSlot<K, W> {
    fn default() -> Self {
        TaskSlot { work: MaybeUninit::uninit(), full: false, key: None, meta: TaskMeta::default() }
    }
}

impl<K, W> TaskSlot<K, W> {
    #[inline(always)]
    pub(crate) fn put(&mut self, work: W) {
        debug_assert!(!self.full);
        self.work.write(work);
        self.full = true;
    }

    /// The work, to be consumed where it lies.
    #[inline(always)]
    pub(crate) fn open(&mut self) -> SlotRef<'_, W> {
        assert!(self.full, "nothing was put into the task_slot");
        self.full = false;
        // SAFETY: it was full, so `work` is initialized; it is no longer, so nobody but the
        // `SlotRef` will use what is there.
        SlotRef(unsafe { self.work.assume_init_mut() })
    }

    /// The work, if there is any.
    pub(crate) fn peek(&self) -> Option<&W> {
        // SAFETY: `work` is initialized if it is full, and is borrowed as long as the hand.
        self.full.then(|| unsafe { self.work.assume_init_ref() })
    }

    #[inline(always)]
    pub(crate) fn take(&mut self) -> W {
        self.open().take()
    }
}

impl<K, W> Drop for TaskSlot<K, W> {
    fn drop(&mut self) {
        if self.full {
            drop(self.open());
        }
    }
}

/// Owns what lies in a hand.
pub(crate) struct SlotRef<'a, W>(&'a mut W);

impl<W> SlotRef<'_, W> {
    #[inline(always)]
    pub(crate) fn take(self) -> W {
        // SAFETY: `self` owns the value and is forgotten, so it is moved out once.
        let work = unsafe { ptr::read(self.0) };
        std::mem::forget(self);
        work
    }
}

impl<W> Deref for SlotRef<'_, W> {
    type Target = W;

    fn deref(&self) -> &W {
        self.0
    }
}

impl<W> DerefMut for SlotRef<'_, W> {
    fn deref_mut(&mut self) -> &mut W {
        self.0
    }
}

impl<W> Drop for SlotRef<'_, W> {
    fn drop(&mut self) {
        // SAFETY: `self` owns the value; `take` forgets `self`.
        unsafe { ptr::drop_in_place(self.0) }
    }
}
