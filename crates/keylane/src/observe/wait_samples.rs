//! Submission times of the tasks of a shard whose wait is measured.

use hashbrown::HashTable;

use super::strata::Strata;

/// Minimum of stored samples before all are discarded: tasks that were removed from their lane and
/// never started leave theirs behind.
const MIN_CAPACITY: usize = 1 << 12;

#[derive(Debug)]
pub(crate) struct WaitSamples {
    strata: Strata,
    samples: HashTable<WaitSample>,
    /// Maximum of stored samples.
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct WaitSample {
    /// Number of the task in the order of its shard.
    seq: u32,
    /// Number of tasks that it stands for.
    weight: u32,
    /// Submission time, in nanoseconds since the pool was built.
    at: u64,
}

impl WaitSamples {
    /// Creates the samples of a shard in a pool with this capacity. With `every`, each task is
    /// measured.
    pub(crate) fn new(every: bool, shard: usize, capacity: usize) -> Self {
        let limit = capacity.max(MIN_CAPACITY);
        WaitSamples { strata: Strata::new(every, shard as u32), samples: HashTable::new(), limit }
    }

    /// Measures every task from now on, or a sample; the next task is always measured.
    pub(crate) fn set_every(&mut self, every: bool) {
        self.strata.set_every(every);
    }

    /// Records the submission of a measured task. Returns the distance to the next measured one.
    pub(crate) fn begin(&mut self, seq: u32, now: u64) -> u32 {
        let (weight, ahead) = self.strata.next_stratum(now);
        if self.samples.len() >= self.limit {
            self.samples.clear();
        }
        let sample = WaitSample { seq, weight, at: now };
        self.samples.insert_unique(spread(seq), sample, |sample| spread(sample.seq));
        ahead
    }

    /// Records the start of a task. Returns its submission time, and the number of tasks that it
    /// stands for, if it is measured.
    pub(crate) fn end(&mut self, seq: u32) -> Option<(u64, u32)> {
        let entry = self.samples.find_entry(spread(seq), |sample| sample.seq == seq).ok()?;
        let (WaitSample { at, weight, .. }, _) = entry.remove();
        if self.samples.is_empty() && self.samples.capacity() > MIN_CAPACITY {
            // Frees the memory of a burst.
            self.samples = HashTable::new();
        }
        Some((at, weight))
    }
}

fn spread(seq: u32) -> u64 {
    u64::from(seq).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_measured_once_for_any_order_of_starts() {
        let mut waits = WaitSamples::new(true, 0, 10);
        (0..100).for_each(|seq| assert_eq!(waits.begin(seq, u64::from(seq) * 7), 1));
        for seq in (0..100).rev() {
            assert_eq!(waits.end(seq), Some((u64::from(seq) * 7, 1)));
            assert_eq!(waits.end(seq), None);
        }
    }

    #[test]
    fn samples_of_tasks_that_never_start_are_limited() {
        let mut waits = WaitSamples::new(true, 0, 10);
        (0..100_000).for_each(|seq| _ = waits.begin(seq, 0));
        assert!(waits.samples.len() <= MIN_CAPACITY);
        assert!(waits.end(99_999).is_some());
    }
}
