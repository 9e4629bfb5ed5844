//! Ready set of the shards: one bit for each shard that may have a task for a free worker, and the
//! approximate load of each.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, AtomicUsize, Ordering};

/// Maximum number of shards of a pool: one bit each.
pub(crate) const MAX_SHARDS: usize = u64::BITS as usize;

/// One bit for each shard that may have a task for a free worker.
///
/// A set bit may be stale, a cleared bit may not: a thread sets the bit after it adds a task, and
/// checks the shard after it clears the bit.
#[derive(Debug)]
pub(crate) struct ReadyBitmap {
    bits: CachePadded<AtomicU64>,
    /// Approximate number of tasks in each shard when a worker last left it. A hint: it affects
    /// only the choice between shards whose bit is set.
    loads: Box<[AtomicUsize]>,
}

impl ReadyBitmap {
    pub(crate) fn new(shards: usize) -> Self {
        ReadyBitmap {
            bits: CachePadded::new(AtomicU64::new(0)),
            loads: (0..shards).map(|_| AtomicUsize::new(0)).collect(),
        }
    }

    /// Records the approximate number of tasks left in a shard.
    pub(crate) fn set_load(&self, shard: usize, load: usize) {
        self.loads[shard].store(load, Ordering::Relaxed);
    }

    /// Returns the shard with the highest load of those whose bit is set, except `last`.
    #[cold]
    pub(crate) fn heaviest_except(&self, last: usize) -> Option<usize> {
        let bits = self.bits.load(Ordering::Acquire) & !(1 << last);
        let ready = (0..self.loads.len()).filter(|shard| bits & 1 << shard != 0);
        ready.max_by_key(|&shard| self.loads[shard].load(Ordering::Relaxed))
    }

    /// Sets the bit of a shard. Returns whether it was clear.
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

    /// Returns the first shard whose bit is set, searching from `start` and wrapping around.
    #[inline]
    pub(crate) fn next_from(&self, start: usize) -> Option<usize> {
        let bits = self.bits.load(Ordering::Acquire);
        if bits == 0 {
            return None;
        }
        let turned = bits.rotate_right(start as u32 % u64::BITS);
        Some((start + turned.trailing_zeros() as usize) % MAX_SHARDS)
    }

    /// Bits of all shards.
    pub(crate) fn ready_bits(&self) -> u64 {
        self.bits.load(Ordering::Acquire)
    }

    /// Returns whether any bit is set.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.bits.load(Ordering::Acquire) != 0
    }

    /// Returns whether the bit of any other shard is set.
    #[inline]
    pub(crate) fn any_except(&self, shard: usize) -> bool {
        self.bits.load(Ordering::Relaxed) & !(1 << shard) != 0
    }

    /// Returns whether any bit is set, with a read-modify-write: a `set` that this read misses is
    /// ordered after it and sees everything done before it.
    #[inline]
    pub(crate) fn any_synced(&self) -> bool {
        self.bits.fetch_or(0, Ordering::AcqRel) != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_heaviest_shard_with_a_set_bit_is_chosen() {
        let bitmap = ReadyBitmap::new(8);
        assert_eq!(bitmap.heaviest_except(0), None);
        for (shard, load) in [(1, 5), (3, 9), (6, 7)] {
            bitmap.set_load(shard, load);
        }
        bitmap.set(1);
        bitmap.set(6);
        assert_eq!(bitmap.heaviest_except(0), Some(6), "shard 3 has more, but its bit is clear");
        assert_eq!(bitmap.heaviest_except(6), Some(1));
        bitmap.set_load(6, 0);
        assert_eq!(bitmap.heaviest_except(0), Some(1));
    }

    #[test]
    fn the_bit_of_a_shard_says_nothing_about_the_others() {
        let bitmap = ReadyBitmap::new(8);
        bitmap.set(3);
        assert!(bitmap.any() && bitmap.any_except(2) && !bitmap.any_except(3));
        bitmap.set(7);
        assert!(bitmap.any_except(3));
    }
}
