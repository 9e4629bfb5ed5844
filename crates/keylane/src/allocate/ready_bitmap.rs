//! Tells free workers which shards have something to offer: a bit each, in one word; and which of
//! them has most.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// The most shards that a pool can have: one bit each.
pub(crate) const MAX_SHARDS: usize = u64::BITS as usize;

/// One bit for each shard that may have a task for a free worker.
///
/// A set bit may be out of date, an unset bit may not: whoever adds something to offer sets the bit
/// afterwards, and whoever clears it looks into the shard afterwards.
#[derive(Debug)]
pub(crate) struct ReadyBitmap {
    bits: CachePadded<AtomicU64>,
    /// About how many tasks each shard had when a worker last left it. Nothing but a worker's choice
    /// between shards with a bit depends on it.
    loads: Box<[AtomicUsize]>,
}

impl ReadyBitmap {
    pub(crate) fn new(shards: usize) -> Self {
        ReadyBitmap {
            bits: CachePadded::new(AtomicU64::new(0)),
            loads: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Notes about how many tasks a shard has left.
    pub(crate) fn set_load(&self, shard: usize, load: usize) {
        self.loads[shard].store(load, Ordering::Relaxed);
    }

    /// The shard with an offer that has most, but for the one that was served last.
    #[cold]
    pub(crate) fn heaviest_except(&self, last: usize) -> Option<usize> {
        let bits = self.bits.load(Ordering::Acquire) & !(1 << last);
        let offering = (0..self.loads.len()).filter(|shard| bits & 1 << shard != 0);
        offering.max_by_key(|&shard| self.loads[shard].load(Ordering::Relaxed))
    }

    /// Sets the shard's bit, and says whether it was unset.
    #[inline]
    pub(crate) fn set(&self, shard: usize) -> bool {
        let bit = 1 << shard;
        self.bits.load(Ordering::Acquire) & bit == 0
            && self.bits.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    #[inline]
    pub(crate) fn clear(&self, shard: usize) {
        let bit = 1 << shard;
        if self.bits.load(Ordering::Acquire) & bit != 0 {
            self.bits.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// The first shard with an offer, from `start` round to before it.
    #[inline]
    pub(crate) fn next_from(&self, start: usize) -> Option<usize> {
        let bits = self.bits.load(Ordering::Acquire);
        if bits == 0 {
            return None;
        }
        let turned = bits.rotate_right(start as u32 % u64::BITS);
        Some((start + turned.trailing_zeros() as usize) % MAX_SHARDS)
    }

    /// The shards with an offer, a bit each.
    pub(crate) fn ready_bits(&self) -> u64 {
        self.bits.load(Ordering::Acquire)
    }

    /// Whether any shard has an offer.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.bits.load(Ordering::Acquire) != 0
    }

    /// Whether any shard but this has an offer.
    #[inline]
    pub(crate) fn any_except(&self, shard: usize) -> bool {
        self.bits.load(Ordering::Relaxed) & !(1 << shard) != 0
    }

    /// Whether any shard has an offer, read so that it is ordered with every `set`: a `set` that
    /// this read misses comes after it, and sees all that was done before it.
    #[inline]
    pub(crate) fn any_synced(&self) -> bool {
        self.bits.fetch_or(0, Ordering::AcqRel) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_is_chosen_among_those_that_offer() {
        let bitmap = ReadyBitmap::new(8);
        assert_eq!(bitmap.heaviest_except(0), None);
        for (shard, load) in [(1, 5), (3, 9), (6, 7)] {
            bitmap.set_load(shard, load);
        }
        bitmap.set(1);
        bitmap.set(6);
        assert_eq!(bitmap.heaviest_except(0), Some(6), "the third has more, and offers nothing");
        assert_eq!(bitmap.heaviest_except(6), Some(1));
        bitmap.set_load(6, 0);
        assert_eq!(bitmap.heaviest_except(0), Some(1));
    }
}
