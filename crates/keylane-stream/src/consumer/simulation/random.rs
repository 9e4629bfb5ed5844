//! Seeded choices.

use std::ops::Range;

/// Sequence of random numbers: SplitMix64. Equal seeds give equal sequences.
#[derive(Clone, Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// Creates a sequence of its own for a part of the simulation.
    pub(super) fn of(seed: u64, part: &[u64]) -> Self {
        let mut mixed = seed;
        for number in part {
            mixed = Random(mixed ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93)).next();
        }
        Random(mixed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn within(&mut self, range: Range<u64>) -> u64 {
        range.start + self.next() % (range.end - range.start)
    }

    /// Returns true in `percent` of the cases.
    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.within(0..100) < percent
    }

    pub(super) fn pick<'a, T>(&mut self, from: &'a [T]) -> Option<&'a T> {
        (!from.is_empty()).then(|| &from[self.within(0..from.len() as u64) as usize])
    }
}
