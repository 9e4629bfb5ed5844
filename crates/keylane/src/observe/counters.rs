//! Counts that are kept while the pool runs.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Where the next task without keys goes; spreads them over the shards.
    free: CachePadded<AtomicUsize>,
    /// What did not go well. Each written by any worker or submitter, and seldom.
    outcomes: CachePadded<OutcomeCounters>,
}

#[derive(Debug, Default)]
struct OutcomeCounters {
    /// Tasks that have panicked.
    panicked: AtomicUsize,
    /// Tasks that have returned an error.
    failed: AtomicUsize,
    /// Tasks that were cancelled before they began, or while they were futures.
    cancelled: AtomicUsize,
    /// Tasks that were replaced by a later one of their key.
    superseded: AtomicUsize,
    /// Tasks that were not accepted.
    refused: AtomicUsize,
}

impl Counters {
    pub(crate) fn next_free(&self) -> usize {
        self.free.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn count_panic(&self) {
        self.outcomes.panicked.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_failed(&self) {
        self.outcomes.failed.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_cancelled(&self) {
        self.outcomes.cancelled.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn count_superseded(&self) {
        self.outcomes.superseded.fetch_add(1, Ordering::Relaxed);
    }

    #[cold]
    pub(crate) fn count_refused(&self, tasks: usize) {
        self.outcomes.refused.fetch_add(tasks, Ordering::Relaxed);
    }

    pub(crate) fn panicked(&self) -> u64 {
        self.outcomes.panicked.load(Ordering::Relaxed) as u64
    }

    pub(crate) fn failed(&self) -> u64 {
        self.outcomes.failed.load(Ordering::Relaxed) as u64
    }

    pub(crate) fn cancelled(&self) -> u64 {
        self.outcomes.cancelled.load(Ordering::Relaxed) as u64
    }

    pub(crate) fn superseded(&self) -> u64 {
        self.outcomes.superseded.load(Ordering::Relaxed) as u64
    }

    pub(crate) fn refused(&self) -> u64 {
        self.outcomes.refused.load(Ordering::Relaxed) as u64
    }
}
