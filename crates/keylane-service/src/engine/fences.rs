//! Reservation of fences: only fences that the file has reserved are given out, so none is ever
//! given out twice.
//!
//! Opening number `b` of the store owns the fences from `b * 2^21 + 1` up to `(b + 1) * 2^21`. A
//! process that has given out most of them raises the number in the file and then owns the fences
//! of the next number too. The next process begins above all fences reserved in the file, whatever
//! the clock shows: see `store/boot_number.rs`.

use crate::store::FENCE_BITS;

/// Number of fences left when more are reserved: enough for all starts during that write.
const SPARE: u64 = 1 << (FENCE_BITS - 1);

/// Reserved fences.
#[derive(Debug)]
pub(super) struct FenceReserve {
    /// Highest opening number that is reserved on the disk.
    reserved: u64,
    /// The next number is on its way to the disk.
    is_reserving: bool,
}

/// Returns the first fence of the opening with this number.
pub(super) fn first(boot: u64) -> u64 {
    (boot << FENCE_BITS) + 1
}

impl FenceReserve {
    pub(super) fn new(boot: u64) -> Self {
        FenceReserve { reserved: boot, is_reserving: false }
    }

    /// Returns true if this fence may be given out.
    pub(super) fn has(&self, fence: u64) -> bool {
        fence < first(self.reserved + 1)
    }

    /// Returns the number to reserve now, if this fence is the next one. Returns it once, until the
    /// reservation is on the disk.
    pub(super) fn next_reservation(&mut self, next_fence: u64) -> Option<u64> {
        let are_few = next_fence + SPARE >= first(self.reserved + 1);
        let wanted = (are_few && !self.is_reserving).then_some(self.reserved + 1);
        self.is_reserving |= wanted.is_some();
        wanted
    }

    /// Records that the number is reserved on the disk.
    pub(super) fn note_reserved(&mut self, boot: u64) {
        self.reserved = self.reserved.max(boot);
        self.is_reserving = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_given_that_is_not_reserved_and_more_is_reserved_in_time() {
        let mut fences = FenceReserve::new(7);
        let (first_of_all, last) = (first(7), first(8) - 1);
        assert!(fences.has(first_of_all) && fences.has(last) && !fences.has(last + 1));
        assert_eq!(fences.next_reservation(first_of_all), None);
        assert_eq!(fences.next_reservation(last - SPARE + 1), Some(8));
        // Once, for any number of calls.
        assert_eq!(fences.next_reservation(last), None);
        assert!(!fences.has(last + 1));
        fences.note_reserved(8);
        assert!(fences.has(last + 1) && fences.has(first(9) - 1) && !fences.has(first(9)));
        assert_eq!(fences.next_reservation(last + 1), None);
        assert_eq!(fences.next_reservation(first(9) - 1), Some(9));
    }
}
