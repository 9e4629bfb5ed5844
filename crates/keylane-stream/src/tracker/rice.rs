//! Rice code for gaps: nearly the shortest code for gaps of random positions, with a length that is
//! known in advance.
//!
//! A gap `g` with parameter `k` is `g >> k` ones, a zero, and the lower `k` bits of `g`, the least
//! first. Source: R. F. Rice, "Some practical universal noiseless coding techniques", JPL 79-22,
//! 1979.

/// Maximum parameter: positions have 63 bits.
pub(super) const MAX_PARAMETER: u8 = 62;

/// Returns the maximum length of `count` gaps with the given sum, in bits, with the best parameter.
///
/// With parameter `k` the gaps take `count` times `1 + k`, plus the sum of `gap >> k`, which is at
/// most `sum >> k`. This does not fall when `count` or `sum` grows.
pub(super) fn max_bits(count: u64, sum: u64) -> u64 {
    candidates(count, sum)
        .map(|k| count.saturating_mul(1 + u64::from(k)).saturating_add(sum >> k))
        .min()
        .unwrap_or(0)
}

/// Returns the parameter with the shortest code for these gaps, and its length in bits.
pub(super) fn best(gaps: impl Iterator<Item = u64> + Clone) -> (u8, u64) {
    let (count, sum) = gaps.clone().fold((0, 0), |(count, sum), gap| (count + 1, sum + gap));
    candidates(count, sum)
        .map(|k| (k, gaps.clone().map(|gap| (gap >> k) + 1 + u64::from(k)).sum()))
        .min_by_key(|(_, bits)| *bits)
        .unwrap_or((0, 0))
}

/// Returns the parameters among which `count * (1 + k) + (sum >> k)` is least.
///
/// Let m be the mean. From k = log₂ m on, `sum >> k` is at most `count`, so one more low bit costs
/// as much as it can save. Up to k = log₂ m − 2, `sum >> k` is at least four times `count`, of
/// which one more low bit saves half, more than it costs.
fn candidates(count: u64, sum: u64) -> impl Iterator<Item = u8> {
    let mean = sum.checked_div(count);
    let log = mean.map(|mean| mean.max(1).ilog2() as u8);
    log.into_iter().flat_map(|log| log.saturating_sub(1)..=(log + 1).min(MAX_PARAMETER))
}

/// Bit writer, least significant bit first.
#[derive(Default)]
pub(super) struct RiceWriter {
    pub(super) bytes: Vec<u8>,
    used: u32,
}

impl RiceWriter {
    fn bit(&mut self, bit: bool) {
        if self.used.is_multiple_of(8) {
            self.bytes.push(0);
        }
        let last =
            self.bytes.last_mut().expect("a byte was pushed for the first bit of each eight");
        *last |= u8::from(bit) << (self.used % 8);
        self.used = (self.used + 1) % 8;
    }

    pub(super) fn gap(&mut self, gap: u64, k: u8) {
        (0..gap >> k).for_each(|_| self.bit(true));
        self.bit(false);
        (0..k).for_each(|low| self.bit(gap >> low & 1 == 1));
    }
}

/// Inverse of [`RiceWriter`]. Returns `None` at the end of the bytes.
pub(super) struct RiceReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> RiceReader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        RiceReader { bytes, at: 0 }
    }

    fn bit(&mut self) -> Option<bool> {
        let byte = self.bytes.get(self.at / 8)?;
        let bit = byte >> (self.at % 8) & 1 == 1;
        self.at += 1;
        Some(bit)
    }

    pub(super) fn gap(&mut self, k: u8) -> Option<u64> {
        let mut high = 0u64;
        while self.bit()? {
            high += 1;
        }
        if high.leading_zeros() < u32::from(k) {
            return None;
        }
        (0..k).try_fold(high << k, |gap, low| Some(gap | u64::from(self.bit()?) << low))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_was_written_is_read(gaps in prop::collection::vec(0u64..5000, 0..300)) {
            let (k, bits) = best(gaps.iter().copied());
            let mut writer = RiceWriter::default();
            gaps.iter().for_each(|gap| writer.gap(*gap, k));
            prop_assert_eq!(writer.bytes.len() as u64, bits.div_ceil(8));
            let mut reader = RiceReader::new(&writer.bytes);
            for gap in gaps {
                prop_assert_eq!(reader.gap(k), Some(gap));
            }
        }

        #[test]
        fn never_more_bits_than_was_said(gaps in prop::collection::vec(0u64..1 << 40, 1..50)) {
            let max = max_bits(gaps.len() as u64, gaps.iter().sum());
            prop_assert!(best(gaps.iter().copied()).1 <= max);
        }

        #[test]
        fn the_best_parameter_is_among_the_candidates(
            count in 1u64..1 << 24,
            sum in 0u64..1 << 62,
        ) {
            let all = (0..=MAX_PARAMETER).map(|k| count * (1 + u64::from(k)) + (sum >> k));
            prop_assert_eq!(Some(max_bits(count, sum)), all.min());
        }

        #[test]
        fn what_ends_never_makes_it_longer(
            count in 1u64..1 << 20, sum in 0u64..1 << 40, shorter in 0u64..1 << 30,
        ) {
            // An inner position: two gaps become one, with the position between them.
            prop_assert!(max_bits(count - 1, sum + 1) <= max_bits(count, sum));
            // An outer position: a gap disappears.
            prop_assert!(max_bits(count - 1, sum.saturating_sub(shorter)) <= max_bits(count, sum));
        }
    }

    #[test]
    fn a_gap_that_does_not_fit_is_refused() {
        // Four, with 62 bits behind it, needs 65 bits.
        let mut bytes = [0; 16];
        bytes[0] = 0b1111;
        assert_eq!(RiceReader::new(&bytes).gap(62), None);
        assert_eq!(RiceReader::new(&bytes).gap(61), Some(4 << 61));
    }
}
