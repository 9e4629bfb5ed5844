//! Decides how many short subtasks of a job a worker takes at once, from the time that they have taken.

use keylane_allocate::JobId;

/// Maximum of subtasks in a batch.
const MAX_BATCH: usize = 64;

/// Target time of a batch, in nanoseconds: long against the critical section of the scheduler
/// before it and its two clock reads, short against noticeable delays if one of its subtasks takes
/// long.
const BATCH_NANOS: u64 = 50_000;

/// Number of subtasks that a worker takes at once from its current job, if no other job wants a
/// worker.
pub(crate) struct BatchSize {
    job: Option<JobId>,
    subtasks: usize,
}

impl BatchSize {
    pub(crate) fn new() -> Self {
        BatchSize { job: None, subtasks: 1 }
    }

    /// Size of the next batch of a job. Starts at 1 for another job, whose subtasks may take
    /// longer.
    pub(crate) fn of(&mut self, job: JobId) -> usize {
        if self.job != Some(job) {
            *self = BatchSize { job: Some(job), subtasks: 1 };
        }
        self.subtasks
    }

    /// Adapts the size to a batch of `ran` subtasks that took `took` nanoseconds. It at most
    /// doubles.
    pub(crate) fn record(&mut self, ran: u64, took: u64) {
        let fits = BATCH_NANOS * ran / took.max(1);
        let most = MAX_BATCH.min(self.subtasks * 2);
        self.subtasks = fits.clamp(1, most as u64) as usize;
    }
}
