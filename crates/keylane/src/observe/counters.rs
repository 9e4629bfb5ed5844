//! Event counters of a pool.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct PoolCounters {
    /// Counter that spreads tasks without keys over the shards.
    free: CachePadded<AtomicUsize>,
    /// Counters of abnormal outcomes. Written by any worker or submitter, and seldom.
    outcomes: CachePadded<OutcomeCounters>,
}

#[derive(Debug, Default)]
struct OutcomeCounters {
    /// Tasks that panicked.
    panicked: AtomicUsize,
    /// Tasks that returned an error.
    failed: AtomicUsize,
    /// Tasks cancelled before their start, and futures cancelled at any time.
    cancelled: AtomicUsize,
    /// Attempts after the first.
    retried: AtomicUsize,
    /// Tasks replaced by a later one of their key.
    superseded: AtomicUsize,
    /// Tasks that were refused.
    refused: AtomicUsize,
}

impl PoolCounters {
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

    pub(crate) fn count_retried(&self) {
        self.outcomes.retried.fetch_add(1, Ordering::Relaxed);
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

    pub(crate) fn retried(&self) -> u64 {
        self.outcomes.retried.load(Ordering::Relaxed) as u64
    }

    pub(crate) fn superseded(&self) -> u64 {
        self.outcomes.superseded.load(Ordering::Relaxed) as u64
    }

    pub(crate) fn refused(&self) -> u64 {
        self.outcomes.refused.load(Ordering::Relaxed) as u64
    }
}
