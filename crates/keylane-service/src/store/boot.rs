//! The number of an opening: what fences and the ids of events begin with, so it never repeats or goes back.
//!
//! The file keeps the number of its last opening, which is enough for restarts. A restored backup and a new file into
//! which an export is read know nothing of the openings since, so the number also is at least the system's time in
//! seconds: as long as that clock is not behind, a restored store has a higher number than the lost one. A clock that
//! was put back costs nothing else: the number is still one more than that of the file.
//!
//! Layouts before 7 counted openings from 1, and gave out the fences `n * 2^40 + 1` and up in opening `n`. Fences are
//! now `n * 2^21 + 1` and up. So the first opening in this layout takes `(n + 1) * 2^19` at least, of which the fences are
//! higher than all that were given.
//!
//! With seconds since 1970 below 2^32, fences stay below 2^53, so a JSON number in JavaScript has them exactly.

/// The binary digits of a fence that count the starts of one number.
pub(crate) const FENCE_BITS: u32 = 21;

/// Numbers from here on are of this layout: 1978 in seconds, and more openings than any file has had before.
const LEAST: u64 = 1 << 28;

/// The clock is believed up to here, which is the year 2101: beyond it 2^27 openings still have fences below 2^53.
const MAX_SECONDS: u64 = (1 << 32) - (1 << 27);

/// Returns the number of the opening after that with the number `was`, 0 if there was none.
pub(super) fn next(was: u64, seconds: u64) -> u64 {
    let counted = if was < LEAST { (was + 1) << (40 - FENCE_BITS) } else { was + 1 };
    counted.max(seconds.min(MAX_SECONDS)).max(LEAST)
}

/// The system's time in seconds since 1970; 0 if its clock shows less.
pub(super) fn seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_763_000_000;

    #[test]
    fn numbers_rise_whatever_the_clock_shows() {
        for clock in [0, 5, NOW, NOW + 1, u64::MAX] {
            let mut was = 0;
            for (seconds, opening) in [clock, 0, NOW, clock, u64::MAX, NOW].into_iter().zip(1..) {
                let next = next(was, seconds);
                assert!(next > was, "{was} then {next} at {seconds}, opening {opening}");
                was = next;
            }
        }
    }

    #[test]
    fn fences_are_higher_than_those_of_earlier_layouts() {
        for was in [1, 2, 511, 512, 3_000, 3_357, 3_358, 8_000, 8_190, 100_000, LEAST - 1] {
            let last_before = u128::from(was + 1) << 40;
            let first = (u128::from(next(was, NOW)) << FENCE_BITS) + 1;
            assert!(first > last_before, "opening {was}");
        }
    }

    #[test]
    fn fences_are_below_two_to_the_53() {
        assert!((next(0, NOW) + 1) << FENCE_BITS < 1 << 53);
        let mut was = next(0, u64::MAX);
        for _ in 0..1000 {
            was = next(was, u64::MAX);
        }
        assert!((was + 1) << FENCE_BITS < 1 << 53);
        assert!((next(8_190, NOW) + 1) << FENCE_BITS <= 1 << 53);
    }
}
