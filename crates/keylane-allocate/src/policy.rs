//! Policies of the job scheduler: the ranking by which free workers are assigned.

/// Policy that ranks the jobs. [`JobScheduler`](super::JobScheduler) documents the properties that all
/// policies share.
///
/// docs/performance.md has measurements of the mean time and the properties of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPolicy {
    /// The four rules to the letter. Rule 2 admits jobs in the order of arrival. An admitted job
    /// stays admitted until it ends, and keeps at least one worker while it can use one.
    ///
    /// Fair to active jobs: all of them progress, whatever else arrives. With as many long jobs as
    /// workers, the next job waits for a whole job, however short it is. Where many jobs arrive at
    /// a high load, use another policy.
    Arrival,
    /// Least mean time of all jobs: within 10 % of the optimum at any load. Prefers the jobs with
    /// the least requirement, whenever they arrive, and holds places for two of them: the first
    /// gets all workers that it can use, and the second keeps at least one, so that no job takes
    /// all. With fewer than six workers there is one place, because one worker would be too large a
    /// part of them.
    ///
    /// Workers that these two jobs cannot use go to the others. One decision in
    /// [`TURN`](Self::TURN) goes to the job that has waited longest.
    Balanced,
    /// Shortest remaining processing time first, with numbers of subtasks in place of times, and
    /// one place for any number of workers.
    Shortest,
}

/// Smallest number of workers with a second place. Measured: with four workers a second place costs
/// a seventh of the mean time at a load of 95 %; with six, less than a tenth.
const WORKERS_FOR_TWO: usize = 6;

impl JobPolicy {
    /// Number of consecutive decisions that may pass over the waiting jobs, outside of
    /// [`Arrival`](Self::Arrival). Then the job that has waited longest gets the worker.
    ///
    /// Rare enough to cost short jobs at most 1 % of their time. Counted in decisions, so that it
    /// fits subtasks of any length.
    pub const TURN: u32 = 128;

    /// Number of jobs that get their first worker before any job gets its second.
    pub(super) fn places(self, workers: usize) -> usize {
        match self {
            JobPolicy::Balanced if workers >= WORKERS_FOR_TWO => 2,
            _ => 1,
        }
    }
}
