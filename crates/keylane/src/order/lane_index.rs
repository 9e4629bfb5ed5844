//! Finds the open lane of a key, in a short list or a hash table.
//!
//! Open lanes are few: a key has one only while one of its tasks runs or waits behind one that
//! does, so there are about as many as workers. A linear search through a handful is faster than a
//! hash table, which takes over when a shard has many lanes, as it may when rollups wait.

use hashbrown::HashTable;

/// Largest number of lanes that are searched linearly.
const MAX_LINEAR: usize = 12;

/// Slots of the open lanes, by the half hash of their keys.
#[derive(Debug)]
pub(crate) struct LaneIndex {
    /// All slots, unless there are more than `MAX_LINEAR`, or were since the table was last empty.
    few: Vec<(u32, usize)>,
    /// All slots otherwise.
    many: HashTable<(u32, usize)>,
}

/// Position of a slot in the index, valid until a slot is added or removed.
pub(crate) struct IndexPlace(usize);

impl LaneIndex {
    pub(crate) fn new() -> Self {
        LaneIndex { few: Vec::with_capacity(MAX_LINEAR), many: HashTable::new() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }

    /// Returns the number of slots.
    pub(crate) fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    /// Returns the slot with this hash that satisfies `is_it`.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        if self.many.is_empty() {
            return self.few.iter().find(|(h, slot)| *h == hash && is_it(*slot)).map(|it| it.1);
        }
        self.many.find(spread(hash), |(h, slot)| *h == hash && is_it(*slot)).map(|it| it.1)
    }

    /// Returns the position of `slot`, if it may be renamed to `hash`: only in the linear list, and
    /// only if no slot has that hash.
    #[inline(always)]
    pub(crate) fn place_for(&self, slot: usize, hash: u32) -> Option<IndexPlace> {
        let mut place = None;
        if self.many.is_empty() {
            for (at, it) in self.few.iter().enumerate() {
                if it.0 == hash {
                    return None;
                }
                if it.1 == slot {
                    place = Some(IndexPlace(at));
                }
            }
        }
        place
    }

    /// Assigns another hash to the slot at a position that has just been found.
    #[inline(always)]
    pub(crate) fn rename(&mut self, IndexPlace(at): IndexPlace, hash: u32) {
        self.few[at].0 = hash;
    }

    /// Adds a slot that is not in the index.
    #[inline]
    pub(crate) fn insert(&mut self, hash: u32, slot: usize) {
        if self.many.is_empty() && self.few.len() < MAX_LINEAR {
            self.few.push((hash, slot));
        } else {
            self.insert_into_many(hash, slot);
        }
    }

    #[cold]
    fn insert_into_many(&mut self, hash: u32, slot: usize) {
        for it in self.few.drain(..).chain([(hash, slot)]) {
            self.many.insert_unique(spread(it.0), it, |it| spread(it.0));
        }
    }

    /// Removes a slot that is in the index.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u32, slot: usize) {
        if self.many.is_empty() {
            let at = self.few.iter().position(|it| it.1 == slot).expect("the slot is in the index");
            self.few.swap_remove(at);
        } else {
            self.remove_from_many(hash, slot);
        }
    }

    #[cold]
    fn remove_from_many(&mut self, hash: u32, slot: usize) {
        match self.many.find_entry(spread(hash), |it| it.1 == slot) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => unreachable!("the slot is in the index"),
        }
        if self.many.is_empty() {
            // Return the memory of a burst.
            self.many = HashTable::new();
        }
    }
}

/// Spreads the half hash over the bits that a hash table uses.
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_is_there_whether_few_or_many() {
        let mut index = LaneIndex::new();
        for round in [3, MAX_LINEAR, MAX_LINEAR + 1, 100, 2] {
            for slot in 0..round {
                assert_eq!(index.find(slot as u32 % 7, |it| it == slot), None);
                index.insert(slot as u32 % 7, slot);
            }
            for slot in 0..round {
                assert_eq!(index.find(slot as u32 % 7, |it| it == slot), Some(slot));
            }
            for slot in (0..round).rev() {
                index.remove(slot as u32 % 7, slot);
                assert_eq!(index.find(slot as u32 % 7, |it| it == slot), None);
            }
            assert!(index.is_empty());
        }
    }
}
