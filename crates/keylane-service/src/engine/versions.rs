//! Versions of jobs and schedules. None is given out twice, whatever the system's clock shows.
//!
//! 1. **One counter.** Every change of a job takes the next number under the lock of the engine
//!    state, so the versions of a job rise within a process.
//! 2. **Over processes.** The counter begins at the first fence of this opening of the store, and
//!    the dispatcher reserves openings for it as it does for fences (`fences.rs`). So it is above
//!    all numbers of earlier openings, also of a restored or imported store.
//! 3. **The end.** The version of a finished job is in its status on the disk. It is chosen when the
//!    end is recorded, and shown when it is on the disk. The changes that are shown in between take
//!    the numbers just below it, which are set aside for them.
//!
//! Stores of earlier layouts have no versions of finished jobs. Their version is the time of the end
//! in microseconds, which is below all numbers of this counter.

use super::fences;
use crate::wire::Timestamp;

/// Number of changes of a closing job, other than ends of its subtasks, that have a version each.
pub(super) const SPARE: u64 = 16;

/// Source of versions.
#[derive(Debug)]
pub(super) struct VersionCounter {
    /// First version of this opening.
    first: u64,
    next: u64,
}

impl VersionCounter {
    pub(super) fn new(boot: u64) -> Self {
        VersionCounter { first: fences::first(boot), next: fences::first(boot) }
    }

    /// Returns a version above all earlier ones.
    pub(super) fn take(&mut self) -> u64 {
        self.take_above(0)
    }

    /// Returns a version with `count` unused ones below it.
    pub(super) fn take_above(&mut self, count: u64) -> u64 {
        let version = self.next + count;
        self.next = version + 1;
        version
    }

    /// Returns the version that would be next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns a version above all those of earlier openings, the same at each call.
    pub(super) fn first(&self) -> u64 {
        self.first
    }
}

/// Returns the version of a job that ended in a store of an earlier layout.
pub(super) fn of_end_time(ended: Timestamp) -> u64 {
    (ended.0 + 1000) * 1000
}
