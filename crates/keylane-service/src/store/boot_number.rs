//! Boot number of an opening. Fences and event identifiers begin with it, so it never repeats and
//! never decreases.
//!
//! 1. **Restart.** The store records the number of its last opening; the next is higher, whatever
//!    the clock shows.
//! 2. **Restore, import, salvage.** A copy does not know the openings since it was made. The file
//!    `-boot` beside the store has the highest number of any store at that path and stays there
//!    when the store is replaced, so the next number is higher than that too, whatever the clock
//!    shows.
//! 3. **Elsewhere.** Without that file the number is at least the system time in seconds, which is
//!    higher than the lost store's number unless the clock is behind. If the clock shows no more
//!    than the copy's own number, the clock is behind or the store was opened more often than once
//!    a second. Then the number rises by [`STEP`] and a random amount: beyond the numbers that the
//!    lost store reached in 97 days, and different from that of another such copy.
//!
//! The remaining gap is a clock that is behind, though not behind the copy, on a path without its
//! `-boot`.
//!
//! Layouts before 7 counted openings from 1, and assigned the fences `n * 2^40 + 1` and up in
//! opening `n`. Fences are now `n * 2^21 + 1` and up. So the first opening in this layout takes at
//! least `(n + 1) * 2^19`, whose fences are higher than all earlier ones.
//!
//! With seconds since 1970 below 2^32, fences stay below 2^53, so a JSON number in JavaScript has them exactly.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use keylane_storage::{checksum, files};

/// Number of a fence's low bits, which count the starts under one boot number.
pub(crate) const FENCE_BITS: u32 = 21;

/// Lowest number of this layout: 1978 in seconds, and more openings than any earlier file had.
pub(super) const LEAST: u64 = 1 << 28;

/// Highest trusted clock value: the year 2101. Beyond it, 2^27 openings still have fences below
/// 2^53.
pub(super) const MAX_SECONDS: u64 = (1 << 32) - (1 << 27);

/// Minimum step of a copy's number when the clock cannot be trusted: 97 days, in seconds.
const STEP: u64 = 1 << 23;

/// Returns the number of the next opening. `was` is the number in the store, 0 if there was none, and `beside` the
/// number in the file beside it. `random` keeps two copies apart.
pub(super) fn next(was: u64, beside: Option<u64>, seconds: u64, random: u64) -> u64 {
    let counted = if was < LEAST { (was + 1) << (40 - FENCE_BITS) } else { was + 1 };
    let may_be_copy = was >= LEAST && beside.is_none();
    let least = match may_be_copy && seconds <= was {
        true => beyond(was, random),
        false => counted.max(beside.map_or(0, |beside| beside.saturating_add(1))),
    };
    least.max(seconds.min(MAX_SECONDS)).max(LEAST)
}

/// Returns a number that a store with the number `was` has not reached by another copy's openings.
pub(super) fn beyond(was: u64, random: u64) -> u64 {
    let chance = random % STEP;
    let stepped = was.saturating_add(STEP + chance);
    // Near the end of the range only single steps remain, so that fences stay below 2^53.
    if stepped <= MAX_SECONDS { stepped } else { was + 1 }
}

/// File with the highest boot number of any store at a path: magic (4 bytes), number (8), CRC32C of
/// both (4); little-endian. A file with other content counts as absent.
#[derive(Debug)]
pub(super) struct HighestBoot {
    path: PathBuf,
    /// The file; `None` if it could not be opened, which the next write tries again.
    file: Option<File>,
    number: Option<u64>,
}

/// Magic number.
const MAGIC: [u8; 4] = *b"KLB1";

const FILE_BYTES: usize = 16;

impl HighestBoot {
    pub(super) fn open(store: &Path) -> HighestBoot {
        let path = files::beside(store, "-boot");
        let mut file = files::open(&path).ok();
        let number = file.as_mut().and_then(|file| {
            let mut bytes = Vec::new();
            file.take(FILE_BYTES as u64 + 1).read_to_end(&mut bytes).ok()?;
            parse(&bytes)
        });
        HighestBoot { path, file, number }
    }

    pub(super) fn number(&self) -> Option<u64> {
        self.number
    }

    /// Raises the number to at least `number`, and syncs the file.
    pub(super) fn raise(&mut self, number: u64) -> io::Result<()> {
        if self.number.is_some_and(|highest| highest >= number) {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => file,
            None => {
                let file = files::open(&self.path)?;
                files::sync_folder(&self.path)?;
                self.file.insert(file)
            }
        };
        let mut bytes = [&MAGIC[..], &number.to_le_bytes()].concat();
        checksum::seal(&mut bytes, &[]);
        file.seek(SeekFrom::Start(0))?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        self.number = Some(number);
        Ok(())
    }
}

fn parse(bytes: &[u8]) -> Option<u64> {
    let bytes: &[u8; FILE_BYTES] = bytes.try_into().ok()?;
    let number = checksum::unseal(bytes, &[])?.strip_prefix(&MAGIC)?;
    Some(u64::from_le_bytes(number.try_into().ok()?))
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
                for beside in [None, Some(was), Some(was + 5)] {
                    let next = next(was, beside, seconds, 3);
                    let least = was.max(beside.unwrap_or(0));
                    assert!(next > least, "{was} then {next} at {seconds}, opening {opening}");
                }
                was = next(was, Some(was), seconds, 3);
            }
        }
    }

    #[test]
    fn a_copy_goes_beyond_what_the_lost_store_reached_while_its_clock_is_behind() {
        let lost = NOW + 90 * 86_400;
        for clock in [0, NOW - 1, NOW] {
            let (one, other) = (next(NOW, None, clock, 1), next(NOW, None, clock, u64::MAX));
            assert!(one > lost && other > lost && one != other, "{one} {other}");
        }
        // A clock ahead of the copy is trusted, and a restart needs none.
        assert_eq!(next(NOW, None, NOW + 7, 3), NOW + 7);
        assert_eq!(next(NOW, Some(NOW), 0, 3), NOW + 1);
        // The lost store's recorded number is respected as well.
        assert_eq!(next(NOW, Some(lost), NOW + 7, 3), lost + 1);
    }

    #[test]
    fn fences_are_higher_than_those_of_earlier_layouts() {
        for was in [1, 2, 511, 512, 3_000, 3_357, 3_358, 8_000, 8_190, 100_000, LEAST - 1] {
            let last_before = u128::from(was + 1) << 40;
            let first = (u128::from(next(was, None, NOW, 3)) << FENCE_BITS) + 1;
            assert!(first > last_before, "opening {was}");
        }
    }

    #[test]
    fn fences_are_below_two_to_the_53() {
        assert!((next(0, None, NOW, 3) + 1) << FENCE_BITS < 1 << 53);
        let mut was = next(0, None, u64::MAX, 3);
        for _ in 0..1000 {
            was = next(was, None, u64::MAX, 3);
        }
        assert!((was + 1) << FENCE_BITS < 1 << 53);
        assert!((next(8_190, None, NOW, 3) + 1) << FENCE_BITS <= 1 << 53);
        let mut was = NOW;
        for _ in 0..1000 {
            was = next(was, None, 0, 3);
        }
        assert!((was + 1) << FENCE_BITS < 1 << 53);
    }

    #[test]
    fn the_highest_number_is_kept_in_its_file_and_a_damaged_file_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let store = folder.path().join("store");
        let mut highest = HighestBoot::open(&store);
        assert_eq!(highest.number(), None);
        highest.raise(NOW).unwrap();
        highest.raise(NOW - 1).unwrap();
        assert_eq!(HighestBoot::open(&store).number(), Some(NOW));
        std::fs::write(folder.path().join("store-boot"), b"something else").unwrap();
        assert_eq!(HighestBoot::open(&store).number(), None);
    }
}
