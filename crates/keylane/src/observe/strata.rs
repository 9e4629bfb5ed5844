//! Chooses the measured tasks by stratified sampling, so that measuring costs almost nothing.

/// Target time between two measurements in a shard, in nanoseconds: long against the cost of one,
/// about 200 ns. At a lower rate of tasks, each of them is measured.
const APART_NANOS: u64 = 200_000;

/// Maximum length of a stratum, in tasks.
const MAX_ROW: u32 = 256;

/// Strata of consecutive tasks, one of which is measured in each.
///
/// The measured task is at a random position of its stratum, and counts for all of it. The length
/// of a stratum depends only on earlier tasks, so every task counts once on average, for any
/// pattern of the tasks.
#[derive(Debug)]
pub(crate) struct Strata {
    /// Maximum length of a stratum, in tasks.
    most: u32,
    /// Length of the current stratum, in tasks.
    row: u32,
    /// Time of its measurement, in nanoseconds.
    last: u64,
    /// Tasks of that stratum behind the measured one.
    behind: u32,
    chance: XorShift,
}

impl Strata {
    pub(crate) fn new(every: bool, seed: u32) -> Self {
        let most = if every { 1 } else { MAX_ROW };
        Strata { most, row: 1, last: 0, behind: 0, chance: XorShift::new(seed) }
    }

    /// Restarts, with strata of one task, or with growing ones.
    pub(crate) fn set_every(&mut self, every: bool) {
        (self.row, self.behind) = (1, 0);
        self.most = if every { 1 } else { MAX_ROW };
    }

    /// Records a measurement. Returns the number of tasks that the measured one stands for, and the
    /// distance to the next measured one.
    pub(crate) fn next_stratum(&mut self, now: u64) -> (u32, u32) {
        let (weight, behind) = (self.row, self.behind);
        let took = now.saturating_sub(self.last).max(1);
        let fits = APART_NANOS.saturating_mul(u64::from(self.row)) / took;
        let most = self.most.min(self.row.saturating_mul(2));
        self.row = fits.clamp(1, u64::from(most)) as u32;
        self.last = now;
        let position = self.chance.below(self.row);
        self.behind = self.row - 1 - position;
        (weight, behind + position + 1)
    }
}

/// Pseudo-random numbers: Marsaglia's xorshift with 32 bits.
#[derive(Debug)]
pub(crate) struct XorShift(u32);

impl XorShift {
    pub(crate) fn new(seed: u32) -> Self {
        XorShift(seed.wrapping_mul(0x9e37_79b9) | 1)
    }

    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 17;
        self.0 ^= self.0 << 5;
        ((u64::from(self.0) * u64::from(bound)) >> 32) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Measures `tasks` tasks at an interval of `apart`. Returns the number of tasks that the
    /// measured ones stand for, and the measured ones.
    fn measure(strata: &mut Strata, tasks: u64, apart: u64) -> (u64, Vec<u64>) {
        let (mut total, mut which, mut next) = (0, Vec::new(), 0);
        for task in 0..tasks {
            if task == next {
                let (weight, ahead) = strata.next_stratum(1_000_000 + task * apart);
                total += u64::from(weight);
                next += u64::from(ahead);
                which.push(task);
            }
        }
        (total, which)
    }

    #[test]
    fn where_few_tasks_come_each_is_measured_and_where_many_do_one_in_256() {
        let (total, which) = measure(&mut Strata::new(false, 1), 1000, 1_000_000);
        assert_eq!((total, which.len()), (1000, 1000));
        let (total, which) = measure(&mut Strata::new(false, 1), 256_000, 40);
        assert!((980..1040).contains(&which.len()), "{} measured", which.len());
        assert!(total.abs_diff(256_000) <= 512, "they stand for {total}");
        let (_, which) = measure(&mut Strata::new(true, 1), 1000, 40);
        assert_eq!(which.len(), 1000, "`every` measures each task");
    }

    #[test]
    fn no_pattern_of_the_tasks_is_preferred() {
        // Tasks with a period of 64: each position of the period should be measured about equally
        // often.
        let mut met = [0_u32; 64];
        for seed in 0..40 {
            let (_, which) = measure(&mut Strata::new(false, seed), 256_000, 40);
            which.iter().for_each(|task| met[(task % 64) as usize] += 1);
        }
        // 40,000 measurements at 64 positions are 625 each, with a deviation of 25.
        assert!(met.iter().all(|times| (500..750).contains(times)), "{met:?}");
    }
}
