//! Which fences may be given out: only those that the file has reserved, so that none is ever given twice.
//!
//! The number `b` of the store's opening has the fences from `b * 2^21 + 1` up to `(b + 1) * 2^21`. A process that gives
//! out most of them raises the number in the file, and then has those of the next number as well. The next process
//! begins above all that the file has reserved, whatever the clock shows: see `store/boot.rs`.

use crate::store::FENCE_BITS;

/// How many are left when more are reserved: enough for all that starts while that is written.
const SPARE: u64 = 1 << (FENCE_BITS - 1);

/// The fences that are reserved.
#[derive(Debug)]
pub(super) struct Fences {
    /// Highest number of an opening that is reserved on the disk.
    reserved: u64,
    /// Whether the next number is on its way to the disk.
    is_reserving: bool,
}

/// The first fence that a process gives out whose opening of the store has this number.
pub(super) fn first(boot: u64) -> u64 {
    (boot << FENCE_BITS) + 1
}

impl Fences {
    pub(super) fn new(boot: u64) -> Self {
        Fences { reserved: boot, is_reserving: false }
    }

    /// Whether this fence may be given out.
    pub(super) fn has(&self, fence: u64) -> bool {
        fence < first(self.reserved + 1)
    }

    /// The number to be reserved now, if this fence is the next one. Asked again, there is none until that is done.
    pub(super) fn next_reservation(&mut self, next_fence: u64) -> Option<u64> {
        let are_few = next_fence + SPARE >= first(self.reserved + 1);
        let wanted = (are_few && !self.is_reserving).then_some(self.reserved + 1);
        self.is_reserving |= wanted.is_some();
        wanted
    }

    /// The number is on the disk.
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
        let mut fences = Fences::new(7);
        let (first_of_all, last) = (first(7), first(8) - 1);
        assert!(fences.has(first_of_all) && fences.has(last) && !fences.has(last + 1));
        assert_eq!(fences.next_reservation(first_of_all), None);
        assert_eq!(fences.next_reservation(last - SPARE + 1), Some(8));
        // Once, however often it is asked for.
        assert_eq!(fences.next_reservation(last), None);
        assert!(!fences.has(last + 1));
        fences.note_reserved(8);
        assert!(fences.has(last + 1) && fences.has(first(9) - 1) && !fences.has(first(9)));
        assert_eq!(fences.next_reservation(last + 1), None);
        assert_eq!(fences.next_reservation(first(9) - 1), Some(9));
    }
}
