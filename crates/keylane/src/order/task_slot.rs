//! Slot through which a worker receives its next task, without an extra copy of the work.

use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr;

use super::TaskMeta;
use crate::unwind::KeyPanic;

/// A worker's next task. The work moves from the backlog to this slot and runs here: each further
/// copy of a cache line would cost as much as everything else that is done for the task.
#[derive(Debug)]
pub(crate) struct TaskSlot<K, W> {
    /// Initialized if and only if `full`.
    work: MaybeUninit<W>,
    full: bool,
    /// Key of the task, unless the lane has it.
    pub(crate) key: Option<K>,
    /// Sequence number and time of the task.
    pub(crate) meta: TaskMeta,
    /// Payload of a panic of the task's key: the task must not run.
    failure: Option<KeyPanic>,
}

impl<K, W> Default for TaskSlot<K, W> {
    fn default() -> Self {
        TaskSlot {
            work: MaybeUninit::uninit(),
            full: false,
            key: None,
            meta: TaskMeta::default(),
            failure: None,
        }
    }
}

impl<K, W> TaskSlot<K, W> {
    #[inline(always)]
    pub(crate) fn put(&mut self, work: W) {
        debug_assert!(!self.full);
        self.work.write(work);
        self.full = true;
    }

    /// Returns the work, to be consumed in place.
    #[inline(always)]
    pub(crate) fn open(&mut self) -> SlotRef<'_, W> {
        assert!(self.full, "nothing was put into the task_slot");
        self.full = false;
        // SAFETY: `full` was set, so `work` is initialized. It is cleared now, so only the
        // `SlotRef` uses the value from here on.
        SlotRef(unsafe { self.work.assume_init_mut() })
    }

    /// Fails the task, which holds its lanes. Marks it as measured, so that its worker need not look
    /// at each task for a failure.
    #[cold]
    pub(crate) fn fail(&mut self, payload: KeyPanic) {
        self.failure = Some(payload);
        self.meta.time |= TaskMeta::MEASURED;
    }

    /// Returns the payload if the task has failed.
    pub(crate) fn take_failure(&mut self) -> Option<KeyPanic> {
        self.failure.take()
    }

    /// Returns the work, if the slot has any.
    pub(crate) fn peek(&self) -> Option<&W> {
        // SAFETY: `work` is initialized while `full` is set, and is borrowed for no longer than the
        // slot.
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

/// Owner of the work in a [`TaskSlot`].
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
