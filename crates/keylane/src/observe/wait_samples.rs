//! When those waiting tasks of a shard were submitted whose wait is measured.

use hashbrown::HashTable;

use super::strata::Strata;

/// Moments that are kept at the least, before all are thrown away: tasks that were taken out of their
/// line and never began leave theirs behind.
const MIN_CAPACITY: usize = 1 << 12;

#[derive(Debug)]
pub(crate) struct WaitSamples {
    strata: Strata,
    samples: HashTable<Sample>,
    /// How many are kept at the most.
    limit: usize,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    /// The task's place in the order of its shard.
    seq: u32,
    /// How many tasks it stands for.
    stands_for: u32,
    /// When it was submitted, in nanoseconds of the pool's time.
    at: u64,
}

impl WaitSamples {
    /// For a shard of a pool with this capacity. With `every` no task is left out.
    pub(crate) fn new(every: bool, shard: usize, capacity: usize) -> Self {
        let limit = capacity.max(MIN_CAPACITY);
        WaitSamples { strata: Strata::new(every, shard as u32), samples: HashTable::new(), limit }
    }

    /// From now on no task is left out, or the usual ones are; the next one is measured.
    pub(crate) fn set_every(&mut self, every: bool) {
        self.strata.set_every(every);
    }

    /// A task is submitted now, and its wait will be measured. Returns how many tasks after it the next
    /// such task is.
    pub(crate) fn begin(&mut self, seq: u32, now: u64) -> u32 {
        let (stands_for, ahead) = self.strata.next_stratum(now);
        if self.samples.len() >= self.limit {
            self.samples.clear();
        }
        let sample = Sample { seq, stands_for, at: now };
        self.samples.insert_unique(spread(seq), sample, |sample| spread(sample.seq));
        ahead
    }

    /// The task begins now. Returns when it was submitted, and how many tasks it stands for.
    pub(crate) fn end(&mut self, seq: u32) -> Option<(u64, u32)> {
        let entry = self.samples.find_entry(spread(seq), |sample| sample.seq == seq).ok()?;
        let (Sample { at, stands_for, .. }, _) = entry.remove();
        if self.samples.is_empty() && self.samples.capacity() > MIN_CAPACITY {
            // A burst's memory is given back.
            self.samples = HashTable::new();
        }
        Some((at, stands_for))
    }
}

fn spread(seq: u32) -> u64 {
    u64::from(seq).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_measured_once_in_whatever_order_the_tasks_begin() {
        let mut waits = WaitSamples::new(true, 0, 10);
        (0..100).for_each(|seq| assert_eq!(waits.begin(seq, u64::from(seq) * 7), 1));
        for seq in (0..100).rev() {
            assert_eq!(waits.end(seq), Some((u64::from(seq) * 7, 1)));
            assert_eq!(waits.end(seq), None);
        }
    }

    #[test]
    fn tasks_that_never_begin_leave_no_more_than_so_much_behind() {
        let mut waits = WaitSamples::new(true, 0, 10);
        (0..100_000).for_each(|seq| _ = waits.begin(seq, 0));
        assert!(waits.samples.len() <= MIN_CAPACITY);
        assert!(waits.end(99_999).is_some());
    }
}
