//! Pseudorandom numbers for jitter.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Source of pseudorandom numbers, good enough for jitter: SplitMix64 (Steele, Lea and Flood, "Fast
/// Splittable Pseudorandom Number Generators", 2014). Equal seeds give equal numbers.
#[derive(Debug)]
pub(super) struct JitterSource(AtomicU64);

impl JitterSource {
    pub(super) fn seeded(seed: u64) -> Self {
        JitterSource(AtomicU64::new(seed))
    }

    pub(super) fn next(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.0.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the reference implementation, with seed 1234567.
    #[test]
    fn the_numbers_are_those_of_the_reference() {
        let random = JitterSource::seeded(1_234_567);
        let first = [random.next(), random.next(), random.next()];
        assert_eq!(
            first,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }
}
