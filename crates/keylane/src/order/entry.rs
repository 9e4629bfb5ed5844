//! A submitted task, as it stands in an inbox.

use std::sync::Arc;

use super::{Mode, Rollup};

/// What the order remembers of a task besides its key: three words of half the usual size, so that
/// an entry with an 8-byte key and 40 bytes of work is one cache line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Label {
    /// Half of the key's hash; the other half chose the shard.
    pub(crate) hash: u32,
    /// The place in the order of submission, as a Lamport clock: of two tasks that conflict, the
    /// later one has the larger number. Wraps round.
    pub(crate) seq: u32,
    /// When the task was submitted, in milliseconds of the pool's coarse clock. Wraps round.
    pub(crate) time: u32,
}

/// One line of an inbox: a whole task, or the part of a rollup that concerns one key.
#[derive(Debug)]
pub(crate) enum Entry<K, W> {
    /// A task with one key.
    Single { label: Label, mode: Mode, key: K, work: W },
    /// A task without keys.
    Free { label: Label, work: W },
    /// The claim with this index of a task with several keys.
    Part { rollup: Arc<Rollup<K, W>>, claim: usize },
    /// A barrier: it stands in every inbox.
    Fence { rollup: Arc<Rollup<K, W>> },
}

impl<K: Eq, W> Entry<K, W> {
    /// Whether this is a task with exactly this exclusive key.
    #[inline]
    pub(crate) fn is_exclusive_on(&self, hash: u32, this_key: &K) -> bool {
        matches!(self, Entry::Single { mode: Mode::Exclusive, label, key, .. }
            if label.hash == hash && key == this_key)
    }
}

impl<K: Eq, W> Entry<K, W> {
    /// Whether the work of the task is of this kind.
    pub(crate) fn is_for(&self, is_target: impl Fn(&W) -> bool) -> bool {
        match self {
            Entry::Single { work, .. } | Entry::Free { work, .. } => is_target(work),
            Entry::Part { rollup, .. } | Entry::Fence { rollup } => {
                rollup.with_work(|work| work.is_some_and(&is_target))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_with_a_small_key_is_one_cache_line() {
        assert_eq!(size_of::<Entry<u64, [usize; 5]>>(), 64);
    }
}
