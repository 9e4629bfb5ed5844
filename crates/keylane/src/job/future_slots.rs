//! Futures of a job that are on the runtime.

use slab::Slab;
use tokio::task::AbortHandle;

/// Futures of a job.
#[derive(Default)]
pub(super) struct JobFutures {
    pub(super) slots: Slab<FutureSlot>,
    /// Number of futures whose turns have not ended.
    pub(super) live: usize,
    /// Set when the scheduler has no more subtasks of the job: the end of the last future then
    /// publishes the result.
    pub(super) finished: bool,
}

/// State of a future.
pub(super) enum FutureSlot {
    /// Being launched. Exits: `Running`; `Ended`, if it ends before the launch is complete.
    New,
    /// Can be aborted. Exit: removed.
    Running(AbortHandle),
    /// Ended. Exit: removed by its launch.
    Ended,
}

impl JobFutures {
    /// Records that the job has ended in the scheduler. Returns true if no future remains.
    pub(super) fn finish(&mut self) -> bool {
        self.finished = true;
        self.live == 0
    }
}
