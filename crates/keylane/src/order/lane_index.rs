//! Finds the open lane of a key.
//!
//! Lanes are few: a key has one only while a task of it runs or waits behind one that does, so there
//! are about as many as workers. A handful is found faster by looking at all of them than by way of
//! a hash table, which takes over when a shard has many, as it may when rollups wait.

use hashbrown::HashTable;

/// So many lanes are looked at one by one.
const MAX_LINEAR: usize = 12;

/// The slots of the open lanes, by the half hash of their keys.
#[derive(Debug)]
pub(crate) struct LaneIndex {
    /// All of them, unless there are more than `MAX_LINEAR`, or have been since the table was last empty.
    few: Vec<(u32, usize)>,
    /// All of them otherwise.
    many: HashTable<(u32, usize)>,
}

/// Where a slot stands, as long as nothing is added or removed.
pub(crate) struct IndexPlace(usize);

impl LaneIndex {
    pub(crate) fn new() -> Self {
        LaneIndex { few: Vec::with_capacity(MAX_LINEAR), many: HashTable::new() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.few.is_empty() && self.many.is_empty()
    }

    /// How many slots there are.
    pub(crate) fn len(&self) -> usize {
        self.few.len() + self.many.len()
    }

    /// The slot with this hash that `is_it` recognizes.
    #[inline]
    pub(crate) fn find(&self, hash: u32, is_it: impl Fn(usize) -> bool) -> Option<usize> {
        if self.many.is_empty() {
            return self.few.iter().find(|(h, slot)| *h == hash && is_it(*slot)).map(|it| it.1);
        }
        self.many.find(spread(hash), |(h, slot)| *h == hash && is_it(*slot)).map(|it| it.1)
    }

    /// Where a slot that is there stands, if it may have another hash: no other has that one, as far
    /// as is easily seen.
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

    /// Gives the slot at a place that has just been found another hash.
    #[inline(always)]
    pub(crate) fn rename(&mut self, IndexPlace(at): IndexPlace, hash: u32) {
        self.few[at].0 = hash;
    }

    /// Adds a slot that is not there.
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

    /// Removes a slot that is there.
    #[inline]
    pub(crate) fn remove(&mut self, hash: u32, slot: usize) {
        if self.many.is_empty() {
            let at = self.few.iter().position(|it| it.1 == slot).expect("it is there");
            self.few.swap_remove(at);
        } else {
            self.remove_from_many(hash, slot);
        }
    }

    #[cold]
    fn remove_from_many(&mut self, hash: u32, slot: usize) {
        match self.many.find_entry(spread(hash), |it| it.1 == slot) {
            Ok(entry) => drop(entry.remove()),
            Err(_) => unreachable!("it is there"),
        }
        if self.many.is_empty() {
            // A burst's memory is given back.
            self.many = HashTable::new();
        }
    }
}

/// Spreads the half hash over the bits that a hash table looks at.
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
