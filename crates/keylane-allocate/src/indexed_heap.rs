//! Indexed binary heap: returns the least key while keys of slots are added, changed and removed.
//!
//! It stores the position of each slot, so that changing or removing its key takes O(log n) without
//! a search. It allocates only in `reserve_slots`.

/// Position of a slot without a key.
const ABSENT: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct IndexedHeap<K> {
    /// Binary min-heap of keys and their slots.
    heap: Vec<(K, u32)>,
    /// Position of each slot in `heap`.
    positions: Vec<u32>,
}

impl<K: Ord + Copy> IndexedHeap<K> {
    pub(super) fn new() -> Self {
        IndexedHeap { heap: Vec::new(), positions: Vec::new() }
    }

    /// Reserves memory for keys of the slots below `slots`.
    pub(super) fn reserve_slots(&mut self, slots: usize) {
        self.positions.resize(slots, ABSENT);
        self.heap.reserve(slots - self.heap.len());
    }

    /// Least key and its slot.
    pub(super) fn first(&self) -> Option<(K, u32)> {
        self.heap.first().copied()
    }

    /// Two least keys and their slots, in ascending order.
    pub(super) fn first_two(&self) -> [Option<(K, u32)>; 2] {
        [self.first(), self.heap.iter().skip(1).take(2).min().copied()]
    }

    /// Sets or removes the key of a slot.
    pub(super) fn set(&mut self, slot: u32, key: Option<K>) {
        match (self.position(slot), key) {
            (None, None) => {}
            (None, Some(key)) => {
                self.heap.push((key, slot));
                self.sift_up(self.heap.len() - 1);
            }
            (Some(position), Some(key)) => {
                let old = std::mem::replace(&mut self.heap[position].0, key);
                if key < old {
                    self.sift_up(position);
                } else if old < key {
                    self.sift_down(position);
                }
            }
            (Some(position), None) => {
                self.positions[slot as usize] = ABSENT;
                self.heap.swap_remove(position);
                if position < self.heap.len() {
                    // The moved last entry may belong above or below this position.
                    let position = self.sift_up(position);
                    self.sift_down(position);
                }
            }
        }
    }

    fn position(&self, slot: u32) -> Option<usize> {
        let position = self.positions[slot as usize];
        (position != ABSENT).then_some(position as usize)
    }

    /// Moves an entry up while it is less than its parent. Returns its final position.
    fn sift_up(&mut self, mut position: usize) -> usize {
        while position > 0 {
            let parent = (position - 1) / 2;
            if self.heap[parent].0 <= self.heap[position].0 {
                break;
            }
            self.swap(parent, position);
            position = parent;
        }
        self.record_position(position);
        position
    }

    fn sift_down(&mut self, mut position: usize) {
        loop {
            let first_child = 2 * position + 1;
            let children = self.heap.iter().enumerate().skip(first_child).take(2);
            let Some((least, _)) = children.min_by_key(|(_, (key, _))| *key) else { break };
            if self.heap[position].0 <= self.heap[least].0 {
                break;
            }
            self.swap(position, least);
            position = least;
        }
        self.record_position(position);
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.record_position(one);
        self.record_position(other);
    }

    fn record_position(&mut self, position: usize) {
        self.positions[self.heap[position].1 as usize] = position as u32;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_always_the_least(
            changes in prop::collection::vec((0..12_u32, prop::option::of(0..9_u64)), 0..200),
        ) {
            let mut heap = IndexedHeap::new();
            heap.reserve_slots(12);
            let mut model = BTreeMap::new();
            for (slot, key) in changes {
                // Keys are told apart by the slot, as a job's serial tells them apart.
                let key = key.map(|key| (key, slot));
                heap.set(slot, key);
                match key {
                    Some(key) => model.insert(slot, key),
                    None => model.remove(&slot),
                };
                let least = model.iter().map(|(slot, key)| (*key, *slot)).min();
                prop_assert_eq!(heap.first(), least);
                let mut all: Vec<_> = model.iter().map(|(slot, key)| (*key, *slot)).collect();
                all.sort_unstable();
                prop_assert_eq!(heap.first_two(), [all.first().copied(), all.get(1).copied()]);
            }
        }
    }
}
