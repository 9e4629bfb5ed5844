//! Work on large jobs that is done in slices: entries that wait to enter the order, and sweeps of
//! dropped jobs. `entries.rs` has the protocol.

use super::packed::Packed;
use super::roll::Roll;

/// Subtasks that wait to enter.
#[derive(Debug)]
pub(super) struct Entry {
    /// Slot of the job.
    pub(super) job: u32,
    pub(super) packed: Packed,
    /// The caller may feed more subtasks.
    pub(super) is_open: bool,
}

/// Removal of the tasks of a cancelled or failed job from their lanes.
#[derive(Debug)]
pub(super) struct Sweep {
    /// Slot of the job, kept until the sweep has ended.
    pub(super) job: u32,
    pub(super) roll: Roll,
}

/// Type of work that is done in slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SliceWork {
    /// Removes dropped tasks from their lanes.
    Sweep,
    /// Enters subtasks of the first entry.
    First,
    /// Enters subtasks of an entry that passes others.
    Passing,
}

impl SliceWork {
    /// Types of work in the order in which they take turns after `self`.
    pub(super) fn next(self) -> [SliceWork; 3] {
        match self {
            SliceWork::Sweep => [SliceWork::First, SliceWork::Passing, SliceWork::Sweep],
            SliceWork::First => [SliceWork::Passing, SliceWork::Sweep, SliceWork::First],
            SliceWork::Passing => [SliceWork::Sweep, SliceWork::First, SliceWork::Passing],
        }
    }
}
