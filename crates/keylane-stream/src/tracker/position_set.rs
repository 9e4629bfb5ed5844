//! Set of positions in flight, with constant-time insertion at the end and removal anywhere.

use foldhash::fast::RandomState;
use slab::Slab;
use std::collections::HashMap;

use crate::Position;

/// Number of positions per block.
const BLOCK_POSITIONS: u64 = u64::BITS as u64;

/// A set of positions: higher positions are appended, any position can be removed, each in constant
/// time, and iteration is in ascending order.
///
/// Positions are in blocks of 64. The blocks that are not empty form a linked list in a slab, with
/// a table from block numbers to slab keys. With few gaps the table is small, and appending rarely
/// uses it. A ring of bits would span the lowest to the highest position, and a stuck record makes
/// that as long as the stream.
#[derive(Clone, Debug, Default)]
pub(super) struct PositionSet {
    blocks: Slab<PositionBlock>,
    by_block: HashMap<u64, usize, RandomState>,
    /// Slab keys of the lowest and the highest block.
    ends: Option<(usize, usize)>,
    len: usize,
}

/// Up to 64 positions.
#[derive(Clone, Debug)]
struct PositionBlock {
    block: u64,
    /// Bits of the positions in the set, the lowest position in the lowest bit. Never 0.
    bits: u64,
    lower: Option<usize>,
    higher: Option<usize>,
}

impl PositionBlock {
    fn positions(&self) -> impl Iterator<Item = Position> {
        let base = self.block * BLOCK_POSITIONS;
        let left = |bits: u64| (bits != 0).then_some(bits);
        let rest = std::iter::successors(left(self.bits), move |bits| left(bits & (bits - 1)));
        rest.map(move |bits| Position::new(base + u64::from(bits.trailing_zeros())))
    }

    fn first(&self) -> Position {
        Position::new(self.block * BLOCK_POSITIONS + u64::from(self.bits.trailing_zeros()))
    }

    fn last(&self) -> Position {
        Position::new(self.block * BLOCK_POSITIONS + u64::from(self.bits.ilog2()))
    }
}

/// Returns the block number of a position, and its bit.
fn block_and_bit(position: Position) -> (u64, u64) {
    (position.get() / BLOCK_POSITIONS, 1 << (position.get() % BLOCK_POSITIONS))
}

impl PositionSet {
    /// Appends a position, which must be higher than all others.
    pub(super) fn push(&mut self, position: Position) {
        let (block, bit) = block_and_bit(position);
        self.len += 1;
        if let Some((_, last)) = self.ends {
            let last = &mut self.blocks[last];
            debug_assert!(last.last() < position);
            if last.block == block {
                last.bits |= bit;
                return;
            }
        }
        self.push_block(block, bit);
    }

    fn push_block(&mut self, block: u64, bits: u64) {
        let lower = self.ends.map(|(_, last)| last);
        let key = self.blocks.insert(PositionBlock { block, bits, lower, higher: None });
        if let Some(last) = lower {
            self.blocks[last].higher = Some(key);
        }
        self.ends = Some((self.ends.map_or(key, |(first, _)| first), key));
        self.by_block.insert(block, key);
    }

    /// Removes a position. Returns whether it was in the set.
    pub(super) fn remove(&mut self, position: Position) -> bool {
        let (block, bit) = block_and_bit(position);
        let Some(&key) = self.by_block.get(&block) else { return false };
        let block = &mut self.blocks[key];
        if block.bits & bit == 0 {
            return false;
        }
        block.bits &= !bit;
        self.len -= 1;
        if block.bits == 0 {
            self.remove_block(key);
        }
        true
    }

    fn remove_block(&mut self, key: usize) {
        let block = self.blocks.remove(key);
        self.by_block.remove(&block.block);
        if let Some(lower) = block.lower {
            self.blocks[lower].higher = block.higher;
        }
        if let Some(higher) = block.higher {
            self.blocks[higher].lower = block.lower;
        }
        self.ends = self.ends.and_then(|(first, last)| {
            let first = if first == key { block.higher? } else { first };
            let last = if last == key { block.lower? } else { last };
            Some((first, last))
        });
        self.shrink();
    }

    /// Releases memory after a burst, when the blocks fill less than an eighth of the table.
    fn shrink(&mut self) {
        const MIN_CAPACITY: usize = 1024;
        let capacity = self.by_block.capacity();
        if capacity > MIN_CAPACITY && self.blocks.len() < capacity / 8 {
            let mut smaller = PositionSet { len: self.len, ..PositionSet::default() };
            self.iter_links().for_each(|block| smaller.push_block(block.block, block.bits));
            *self = smaller;
        }
    }

    pub(super) fn contains(&self, position: Position) -> bool {
        let (block, bit) = block_and_bit(position);
        self.by_block.get(&block).is_some_and(|key| self.blocks[*key].bits & bit != 0)
    }

    pub(super) fn first(&self) -> Option<Position> {
        self.ends.map(|(first, _)| self.blocks[first].first())
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Iterates over the positions in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = Position> {
        self.iter_links().flat_map(PositionBlock::positions)
    }

    fn iter_links(&self) -> impl Iterator<Item = &PositionBlock> {
        let first = self.ends.map(|(first, _)| &self.blocks[first]);
        std::iter::successors(first, |block| Some(&self.blocks[block.higher?]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn is_a_sorted_set(steps in prop::collection::vec((any::<bool>(), 0u64..200), 0..400)) {
            let (mut positions, mut set, mut next) = (PositionSet::default(), BTreeSet::new(), 0);
            for (add, number) in steps {
                if add {
                    next += number + 1;
                    positions.push(Position::new(next));
                    set.insert(Position::new(next));
                } else {
                    let position = Position::new(next.saturating_sub(number));
                    prop_assert_eq!(positions.remove(position), set.remove(&position));
                }
                prop_assert!(positions.iter().eq(set.iter().copied()));
                prop_assert_eq!(positions.first(), set.first().copied());
                prop_assert_eq!(positions.len(), set.len());
            }
        }
    }

    #[test]
    fn a_burst_leaves_no_memory_behind() {
        let mut positions = PositionSet::default();
        let far_apart = |number| Position::new(number * BLOCK_POSITIONS);
        (0..100_000).for_each(|number| positions.push(far_apart(number)));
        (1..100_000).for_each(|number| assert!(positions.remove(far_apart(number))));
        assert!(positions.by_block.capacity() < 2048, "{}", positions.by_block.capacity());
        assert!(positions.iter().eq([Position::ZERO]));
        assert_eq!(positions.len(), 1);
    }
}
