//! Tells free workers which shards have something to offer: a bit each, in one word.

use crossbeam_utils::CachePadded;

use crate::sync::{AtomicU64, Ordering};

/// The most shards that a pool can have: one bit each.
pub(crate) const MAX_SHARDS: usize = u64::BITS as usize;

/// One bit for each shard that may have a task for a free worker.
///
/// A set bit may be out of date, an unset bit may not: whoever adds something to offer sets the bit
/// afterwards, and whoever clears it looks into the shard afterwards.
#[derive(Debug)]
pub(crate) struct Board(CachePadded<AtomicU64>);

impl Board {
    pub(crate) fn new() -> Self {
        Board(CachePadded::new(AtomicU64::new(0)))
    }

    /// Sets the shard's bit, and says whether it was unset.
    #[inline]
    pub(crate) fn set(&self, shard: usize) -> bool {
        let bit = 1 << shard;
        self.0.load(Ordering::Acquire) & bit == 0
            && self.0.fetch_or(bit, Ordering::AcqRel) & bit == 0
    }

    #[inline]
    pub(crate) fn clear(&self, shard: usize) {
        let bit = 1 << shard;
        if self.0.load(Ordering::Acquire) & bit != 0 {
            self.0.fetch_and(!bit, Ordering::AcqRel);
        }
    }

    /// The first shard with an offer, from `start` round to before it.
    #[inline]
    pub(crate) fn first_from(&self, start: usize) -> Option<usize> {
        let bits = self.0.load(Ordering::Acquire);
        if bits == 0 {
            return None;
        }
        let turned = bits.rotate_right(start as u32 % u64::BITS);
        Some((start + turned.trailing_zeros() as usize) % MAX_SHARDS)
    }

    /// Whether any shard has an offer.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Acquire) != 0
    }

    /// Whether any shard but this has an offer.
    #[inline]
    pub(crate) fn any_but(&self, shard: usize) -> bool {
        self.0.load(Ordering::Relaxed) & !(1 << shard) != 0
    }

    /// Whether any shard has an offer, read so that it is ordered with every `set`: a `set` that
    /// this read misses comes after it, and sees all that was done before it.
    #[inline]
    pub(crate) fn any_for_certain(&self) -> bool {
        self.0.fetch_or(0, Ordering::AcqRel) != 0
    }
}
