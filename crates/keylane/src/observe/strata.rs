//! Chooses which tasks are measured: one of each row of them, at random, the rows as long as it takes
//! for measuring to cost next to nothing.

/// About how much time there is from one measurement to the next, in one shard: long against the
/// 200 ns or so that one costs. Where fewer tasks come each of them is measured.
const APART_NANOS: u64 = 200_000;

/// The longest row.
const MAX_ROW: u32 = 256;

/// Rows of tasks, of each of which one is measured.
///
/// The place in the row is random, and what is measured counts for the whole row. A row's length depends
/// only on what came before it, so every task counts once on average, whatever pattern there is in what
/// comes.
#[derive(Debug)]
pub(crate) struct Strata {
    /// The longest that a row may become.
    most: u32,
    /// The length of the row that was last begun.
    row: u32,
    /// When its task was measured, in nanoseconds.
    last: u64,
    /// Tasks of that row behind the one that was measured.
    behind: u32,
    chance: Chance,
}

impl Strata {
    pub(crate) fn new(every: bool, seed: u32) -> Self {
        let most = if every { 1 } else { MAX_ROW };
        Strata { most, row: 1, last: 0, behind: 0, chance: Chance::new(seed) }
    }

    /// Begins anew, with rows of one from now on, or with rows that grow.
    pub(crate) fn set_every(&mut self, every: bool) {
        (self.row, self.behind) = (1, 0);
        self.most = if every { 1 } else { MAX_ROW };
    }

    /// A task is measured now. Returns for how many it stands, and how many tasks after it the next one
    /// is that will be measured.
    pub(crate) fn next_stratum(&mut self, now: u64) -> (u32, u32) {
        let (stands_for, behind) = (self.row, self.behind);
        let took = now.saturating_sub(self.last).max(1);
        let fits = APART_NANOS.saturating_mul(u64::from(self.row)) / took;
        let most = self.most.min(self.row.saturating_mul(2));
        self.row = fits.clamp(1, u64::from(most)) as u32;
        self.last = now;
        let place = self.chance.below(self.row);
        self.behind = self.row - 1 - place;
        (stands_for, behind + place + 1)
    }
}

/// Numbers without a pattern that matters here: Marsaglia's xorshift with 32 bits.
#[derive(Debug)]
pub(crate) struct Chance(u32);

impl Chance {
    pub(crate) fn new(seed: u32) -> Self {
        Chance(seed.wrapping_mul(0x9e37_79b9) | 1)
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

    /// What the measured ones stand for, and which they are, of `tasks` that come `apart`.
    fn measure(strata: &mut Strata, tasks: u64, apart: u64) -> (u64, Vec<u64>) {
        let (mut total, mut which, mut next) = (0, Vec::new(), 0);
        for task in 0..tasks {
            if task == next {
                let (stands_for, ahead) = strata.next_stratum(1_000_000 + task * apart);
                total += u64::from(stands_for);
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
        assert_eq!(which.len(), 1000, "every one means every one");
    }

    #[test]
    fn no_pattern_of_the_tasks_is_preferred() {
        // Tasks that come in a rhythm of 64, of which every place is to be met about as often.
        let mut met = [0_u32; 64];
        for seed in 0..40 {
            let (_, which) = measure(&mut Strata::new(false, seed), 256_000, 40);
            which.iter().for_each(|task| met[(task % 64) as usize] += 1);
        }
        // 40,000 in 64 places are 625 each, with a deviation of 25.
        assert!(met.iter().all(|times| (500..750).contains(times)), "{met:?}");
    }
}
