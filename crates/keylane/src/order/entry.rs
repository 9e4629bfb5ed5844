//! Entry of an inbox: a submitted task, or its part in one shard.

use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::Arc;

use super::segment_queue::PopGuard;
use super::{ClaimMode, Rollup, TaskMeta, TaskSlot};

/// Entry of an inbox: a whole task, or the part of a rollup that concerns one key.
#[derive(Debug)]
pub(crate) enum InboxEntry<K, W> {
    /// Task with one key.
    Single { meta: TaskMeta, mode: ClaimMode, key: K, work: W },
    /// Task without keys.
    Free { meta: TaskMeta, work: W },
    /// Part of a task with several keys: the claim at index `claim`.
    Part { rollup: Arc<Rollup<K, W>>, claim: usize },
    /// Task with a descriptor and without keys.
    Unkeyed { rollup: Arc<Rollup<K, W>> },
    /// Barrier. It has an entry in every inbox.
    Fence { rollup: Arc<Rollup<K, W>> },
}

impl<K, W> InboxEntry<K, W> {
    /// Moves the work of a [`Single`](InboxEntry::Single) entry into `task_slot`, directly from the
    /// segment. Moving the entry as a whole would store its parts in between and move them a second
    /// time.
    #[inline(always)]
    pub(crate) fn unpack_single(
        entry: PopGuard<'_, Self>,
        task_slot: &mut TaskSlot<K, W>,
    ) -> (TaskMeta, K) {
        let mut entry = ManuallyDrop::new(entry);
        let InboxEntry::Single { meta, key, work, .. } = &mut **entry else {
            unreachable!("the caller has looked at it")
        };
        // SAFETY: the entry is owned, and in a `ManuallyDrop`, so each part is moved out once. The
        // rest of it needs no drop.
        unsafe {
            task_slot.put(ptr::read(work));
            (*meta, ptr::read(key))
        }
    }
}

impl<K: Eq, W> InboxEntry<K, W> {
    /// Returns the entry's sequence number and time.
    pub(crate) fn meta(&self) -> TaskMeta {
        match self {
            InboxEntry::Single { meta, .. } | InboxEntry::Free { meta, .. } => *meta,
            InboxEntry::Part { rollup, .. }
            | InboxEntry::Unkeyed { rollup }
            | InboxEntry::Fence { rollup } => rollup.meta,
        }
    }

    /// Returns half of the hash of the entry's key, the key, and its mode.
    pub(crate) fn claim(&self) -> Option<(u32, &K, ClaimMode)> {
        match self {
            InboxEntry::Single { meta, mode, key, .. } => Some((meta.hash, key, *mode)),
            InboxEntry::Part { rollup, claim } => Some(rollup.claim(*claim)),
            InboxEntry::Free { .. } | InboxEntry::Unkeyed { .. } | InboxEntry::Fence { .. } => None,
        }
    }

    /// Returns whether the entry belongs to a task whose work was replaced or taken.
    pub(crate) fn is_tombstone(&self) -> bool {
        matches!(self, InboxEntry::Part { rollup, .. } if rollup.is_tombstone())
    }

    /// Returns whether the entry is a task with exactly this exclusive key.
    #[inline]
    pub(crate) fn is_exclusive_on(&self, hash: u32, this_key: &K) -> bool {
        matches!(self, InboxEntry::Single { mode: ClaimMode::Exclusive, meta, key, .. }
            if meta.hash == hash && key == this_key)
    }
}

impl<K: Eq, W> InboxEntry<K, W> {
    /// Returns whether the work of the task satisfies `is_target`.
    pub(crate) fn is_for(&self, is_target: impl Fn(&W) -> bool) -> bool {
        match self {
            InboxEntry::Single { work, .. } | InboxEntry::Free { work, .. } => is_target(work),
            InboxEntry::Part { rollup, .. }
            | InboxEntry::Unkeyed { rollup }
            | InboxEntry::Fence { rollup } => rollup.with_work(|work| work.is_some_and(&is_target)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_with_a_small_key_is_one_cache_line() {
        assert_eq!(size_of::<InboxEntry<u64, [usize; 5]>>(), 64);
    }
}
