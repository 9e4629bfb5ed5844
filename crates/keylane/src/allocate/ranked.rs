//! Knows the least of the keys that slots have, while keys come, change and go.
//!
//! A binary heap that knows where each slot is in it, so that a slot's key is changed or taken out
//! in O(log n) without a search. It allocates only when room for more slots is made.

/// A slot that is not in the heap.
const ABSENT: u32 = u32::MAX;

#[derive(Clone, Debug)]
pub(super) struct Ranked<K> {
    /// A binary heap, the least key first.
    heap: Vec<(K, u32)>,
    /// Where each slot is in `heap`.
    places: Vec<u32>,
}

impl<K: Ord + Copy> Ranked<K> {
    pub(super) fn new() -> Self {
        Ranked { heap: Vec::new(), places: Vec::new() }
    }

    /// Room for so many slots: those below this number can have keys.
    pub(super) fn make_room(&mut self, slots: usize) {
        self.places.resize(slots, ABSENT);
        self.heap.reserve(slots - self.heap.len());
    }

    /// The slot with the least key.
    pub(super) fn first(&self) -> Option<(K, u32)> {
        self.heap.first().copied()
    }

    /// The two slots with the least keys, the least first.
    pub(super) fn first_two(&self) -> [Option<(K, u32)>; 2] {
        [self.first(), self.heap.iter().skip(1).take(2).min().copied()]
    }

    /// Gives the slot this key, or none.
    pub(super) fn set(&mut self, slot: u32, key: Option<K>) {
        match (self.place(slot), key) {
            (None, None) => {}
            (None, Some(key)) => {
                self.heap.push((key, slot));
                self.rise(self.heap.len() - 1);
            }
            (Some(place), Some(key)) => {
                let old = std::mem::replace(&mut self.heap[place].0, key);
                if key < old {
                    self.rise(place);
                } else if old < key {
                    self.sink(place);
                }
            }
            (Some(place), None) => {
                self.places[slot as usize] = ABSENT;
                self.heap.swap_remove(place);
                if place < self.heap.len() {
                    // What was last may belong above this place as well as below it.
                    let place = self.rise(place);
                    self.sink(place);
                }
            }
        }
    }

    fn place(&self, slot: u32) -> Option<usize> {
        let place = self.places[slot as usize];
        (place != ABSENT).then_some(place as usize)
    }

    /// Moves up what is at `place` while it is less than what is above it, and says where it ends.
    fn rise(&mut self, mut place: usize) -> usize {
        while place > 0 {
            let above = (place - 1) / 2;
            if self.heap[above].0 <= self.heap[place].0 {
                break;
            }
            self.swap(above, place);
            place = above;
        }
        self.note(place);
        place
    }

    fn sink(&mut self, mut place: usize) {
        loop {
            let below = 2 * place + 1;
            let children = self.heap.iter().enumerate().skip(below).take(2);
            let Some((least, _)) = children.min_by_key(|(_, (key, _))| *key) else { break };
            if self.heap[place].0 <= self.heap[least].0 {
                break;
            }
            self.swap(place, least);
            place = least;
        }
        self.note(place);
    }

    fn swap(&mut self, one: usize, other: usize) {
        self.heap.swap(one, other);
        self.note(one);
        self.note(other);
    }

    fn note(&mut self, place: usize) {
        self.places[self.heap[place].1 as usize] = place as u32;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_first_is_always_the_least(
            changes in prop::collection::vec((0..12_u32, prop::option::of(0..9_u64)), 0..200),
        ) {
            let mut ranked = Ranked::new();
            ranked.make_room(12);
            let mut model = BTreeMap::new();
            for (slot, key) in changes {
                // Keys are told apart by the slot, as a job's serial tells them apart.
                let key = key.map(|key| (key, slot));
                ranked.set(slot, key);
                match key {
                    Some(key) => model.insert(slot, key),
                    None => model.remove(&slot),
                };
                let least = model.iter().map(|(slot, key)| (*key, *slot)).min();
                prop_assert_eq!(ranked.first(), least);
                let mut all: Vec<_> = model.iter().map(|(slot, key)| (*key, *slot)).collect();
                all.sort_unstable();
                prop_assert_eq!(ranked.first_two(), [all.first().copied(), all.get(1).copied()]);
            }
        }
    }
}
