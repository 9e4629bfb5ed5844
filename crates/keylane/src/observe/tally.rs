//! Counts that are kept while the pool runs.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicUsize, Ordering};

#[derive(Debug)]
pub(crate) struct Tally {
    /// Where the next task without keys goes; spreads them over the shards.
    free: CachePadded<AtomicUsize>,
    /// Tasks that have panicked. Written by any worker.
    panicked: CachePadded<AtomicUsize>,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            free: CachePadded::new(AtomicUsize::new(0)),
            panicked: CachePadded::new(AtomicUsize::new(0)),
        }
    }
}

impl Tally {
    pub(crate) fn next_free(&self) -> usize {
        self.free.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn count_panic(&self) {
        self.panicked.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn panicked(&self) -> usize {
        self.panicked.load(Ordering::Relaxed)
    }
}
