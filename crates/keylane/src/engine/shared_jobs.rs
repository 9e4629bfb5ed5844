//! State of the jobs of an engine, shared by its workers.

use crossbeam_utils::CachePadded;

use super::jobs::JobTable;
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// Bit of `offers`: a worker that asks may get an assignment.
pub(super) const ASSIGNABLE: usize = 1;
/// Added to `offers` for each open batch.
pub(super) const OPEN_BATCH: usize = 2;

/// Jobs of an engine, shared by its workers.
pub(crate) struct SharedJobs<K, W> {
    /// Number of jobs that are not over. Changed under `table`; read by workers, between slices,
    /// without it.
    pub(super) jobs: CachePadded<AtomicUsize>,
    /// Reasons for a worker not to fall asleep. `ASSIGNABLE` is set if a worker that asks may get
    /// an assignment: written at the end of every section of `table`. `OPEN_BATCH` is added for
    /// each batch of a job from which others may take: by the worker that has it, and subtracted by
    /// the thread that empties it.
    pub(super) offers: CachePadded<AtomicUsize>,
    /// Incremented by each section that tells workers in the middle of a batch to ask again. Read
    /// by those.
    pub(super) changes: CachePadded<AtomicUsize>,
    /// Number of unfinished barriers. Incremented before one enters its inboxes, decremented when
    /// its last fence is down.
    pub(super) barriers: CachePadded<AtomicUsize>,
    /// Job table, created with the first job. Innermost: no other lock is taken under it.
    pub(super) table: Mutex<JobTable<K, W>>,
}

impl<K, W> SharedJobs<K, W> {
    pub(crate) fn new() -> Self {
        SharedJobs {
            jobs: CachePadded::new(AtomicUsize::new(0)),
            offers: CachePadded::new(AtomicUsize::new(0)),
            changes: CachePadded::new(AtomicUsize::new(0)),
            barriers: CachePadded::new(AtomicUsize::new(0)),
            table: Mutex::new(JobTable::new()),
        }
    }

    /// Returns whether there are jobs, so that a worker must ask for its assignment.
    #[inline(always)]
    pub(crate) fn has_jobs(&self) -> bool {
        // Relaxed: a worker that misses a new job reads `offers` before it sleeps (step 3).
        self.jobs.load(Ordering::Relaxed) != 0
    }

    /// Returns whether a worker that asks may get an assignment.
    pub(crate) fn offers(&self) -> bool {
        self.offers.load(Ordering::Acquire) != 0
    }

    /// Returns whether a worker that asks may get an assignment, ordered with every section that
    /// sets it.
    pub(crate) fn offers_synced(&self) -> bool {
        self.offers.fetch_or(0, Ordering::AcqRel) != 0
    }

    /// Returns the result of the last section. Exact under the lock of `table`.
    pub(super) fn is_assignable(&self) -> bool {
        self.offers.load(Ordering::Relaxed) & ASSIGNABLE != 0
    }

    /// Returns whether a worker has a batch from which others may take.
    pub(crate) fn has_open_batches(&self) -> bool {
        self.offers.load(Ordering::Relaxed) >= OPEN_BATCH
    }

    /// Returns the value that `is_interrupted` compares with.
    pub(crate) fn changes(&self) -> usize {
        self.changes.load(Ordering::Relaxed)
    }

    pub(super) fn interrupt_batches(&self) {
        // Relaxed: a late value only lets a batch run longer.
        self.changes.fetch_add(1, Ordering::Relaxed);
    }
}
