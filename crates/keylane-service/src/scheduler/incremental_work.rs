//! Work on large jobs that is done in slices: entries that wait to enter the order, and sweeps of
//! dropped jobs. `large_jobs.rs` has the protocol.

use super::packed_subtasks::PackedSubtasks;
use super::unfinished_tasks::UnfinishedTasks;

/// Subtasks that wait to enter.
#[derive(Debug)]
pub(super) struct PendingEntry {
    /// Slot of the job.
    pub(super) job: u32,
    pub(super) packed: PackedSubtasks,
    /// The caller may feed more subtasks.
    pub(super) is_open: bool,
}

/// Removal of the tasks of a cancelled or failed job from their lanes.
#[derive(Debug)]
pub(super) struct TaskSweep {
    /// Slot of the job, kept until the sweep has ended.
    pub(super) job: u32,
    pub(super) roll: UnfinishedTasks,
}

/// Type of work that is done in slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IncrementalWork {
    /// Removes dropped tasks from their lanes.
    Sweep,
    /// Enters subtasks of the first entry.
    First,
    /// Enters subtasks of an entry that passes others.
    Passing,
    /// Brings shared places to the front of a lane.
    Advance,
}

impl IncrementalWork {
    /// Types of work in the order in which they take turns after `self`.
    pub(super) fn next(self) -> [IncrementalWork; 4] {
        use IncrementalWork::{Advance, First, Passing, Sweep};
        match self {
            Sweep => [First, Passing, Advance, Sweep],
            First => [Passing, Advance, Sweep, First],
            Passing => [Advance, Sweep, First, Passing],
            Advance => [Sweep, First, Passing, Advance],
        }
    }
}
