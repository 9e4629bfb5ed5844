//! End times of finished jobs, by blocks of job numbers, so that a scan for expired jobs reads no
//! others.
//!
//! Each block with finished jobs has a time that is not later than the earliest of their ends. The
//! first scan after a start reads all jobs and records these times. Later scans read a block only
//! if its time has expired, and record its new time from the remaining jobs; a job that ends lowers
//! the time of its block.
//!
//! A block is removed from the table before it is read and added again after the read, and the
//! earlier of two times counts. So a job that ends meanwhile is not forgotten, whether the read has
//! seen it or not.

use std::collections::BTreeMap;
use std::ops::Range;

use parking_lot::Mutex;

use crate::JobNumber;

/// Number of job numbers in a block: the maximum number of rows that a read of a block returns.
const BLOCK: u64 = 4096;

/// Block of job numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct JobNumberBlock(u64);

impl JobNumberBlock {
    pub(super) fn of(job: JobNumber) -> Self {
        JobNumberBlock(job.0 / BLOCK)
    }

    pub(super) fn numbers(self) -> Range<u64> {
        self.0 * BLOCK..(self.0 + 1) * BLOCK
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct JobEndTimes(Mutex<BTreeMap<JobNumberBlock, u64>>);

impl JobEndTimes {
    /// Records that a job of the block ended at `ended_ms` and is kept.
    pub(super) fn note(&self, block: JobNumberBlock, ended_ms: u64) {
        let mut blocks = self.0.lock();
        let earliest = blocks.entry(block).or_insert(ended_ms);
        *earliest = ended_ms.min(*earliest);
    }

    /// Removes and returns a block with a job that may have ended before `before_ms`.
    pub(super) fn take_old(&self, before_ms: u64) -> Option<JobNumberBlock> {
        let mut blocks = self.0.lock();
        let old = blocks.iter().find(|(_, earliest)| **earliest < before_ms)?;
        let block = *old.0;
        blocks.remove(&block);
        Some(block)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_blocks_with_old_jobs_are_looked_at() {
        let ends = JobEndTimes::default();
        let block = |number: u64| JobNumberBlock::of(JobNumber(number));
        assert_eq!(block(5), block(BLOCK - 1));
        for (number, ended) in [(5, 300), (7, 100), (BLOCK, 200), (9 * BLOCK + 1, 50)] {
            ends.note(block(number), ended);
        }
        assert_eq!(ends.take_old(50), None);
        assert_eq!(ends.take_old(101), Some(block(5)));
        // A job ended during the read, and another one stays that ended earlier.
        ends.note(block(6), 400);
        ends.note(block(6), 300);
        assert_eq!(ends.take_old(101), Some(block(9 * BLOCK)));
        assert_eq!(ends.take_old(101), None);
        assert_eq!(ends.take_old(301), Some(block(5)));
        assert_eq!(block(9 * BLOCK + 1).numbers(), 9 * BLOCK..10 * BLOCK);
    }
}
