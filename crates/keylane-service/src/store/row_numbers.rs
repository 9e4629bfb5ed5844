//! Numbers of rows: each row's number names its job and its place within the job.

use crate::ids::JobNumber;

/// Number of bits of a row's number for the place within its job.
const WITHIN_BITS: u32 = 24;

/// Number of places in a job, for chunks and for rows of outcomes.
pub(super) const PLACES: u64 = 1 << WITHIN_BITS;

/// One past the highest number of a job, because SQLite numbers rows up to 2⁶³.
pub(super) const JOBS: u64 = 1 << (63 - WITHIN_BITS);

/// Returns the number of a job's row.
pub(super) fn place(job: JobNumber, within: u32) -> u64 {
    debug_assert!(job.0 < JOBS && u64::from(within) < PLACES);
    (job.0 << WITHIN_BITS) | u64::from(within)
}

/// Returns the job of a row and its place within the job.
pub(super) fn at(place: u64) -> (JobNumber, u32) {
    (JobNumber(place >> WITHIN_BITS), (place & (PLACES - 1)) as u32)
}

/// Returns the first and the last possible row of a job.
pub(super) fn rows_of(job: JobNumber) -> (i64, i64) {
    let first = place(job, 0);
    (first.cast_signed(), (first + PLACES - 1).cast_signed())
}

/// Encodes a signed number with its sign in the lowest bit, so that small magnitudes have short
/// encodings. The result is below 2⁶³.
pub(super) fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

pub(super) fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

/// Splits off the next `length` bytes.
pub(super) fn take<'a>(from: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (bytes, rest) = from.split_at_checked(usize::try_from(length).ok()?)?;
    *from = rest;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn signs_are_kept(number in -(1i64 << 62)..1 << 62) {
            prop_assert_eq!(unzigzag(zigzag(number)), number);
            prop_assert!(zigzag(number) < 1 << 63);
        }

        #[test]
        fn a_place_says_whose_it_is(job in 0..JOBS, within in 0..PLACES as u32) {
            let job = JobNumber(job);
            prop_assert_eq!(at(place(job, within)), (job, within));
            let (first, last) = rows_of(job);
            prop_assert!((first..=last).contains(&place(job, within).cast_signed()));
        }
    }
}
