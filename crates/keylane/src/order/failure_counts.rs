//! Counts the consecutive failures of each key.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::lane_index::spread;
use crate::unwind::drop_catch_unwind;

/// Key whose last task has failed, with its count.
#[derive(Debug)]
struct KeyFailures<K> {
    hash: u32,
    key: K,
    in_a_row: u32,
}

/// Consecutive failures of the keys whose last task has failed.
#[derive(Debug)]
pub(super) struct FailureCounts<K>(HashTable<KeyFailures<K>>);

impl<K> FailureCounts<K> {
    pub(super) fn new() -> Self {
        FailureCounts(HashTable::new())
    }
}

impl<K: Eq + Clone> FailureCounts<K> {
    /// Counts a failed task, and returns the number of consecutive failures of its key.
    pub(super) fn count(&mut self, hash: u32, key: &K) -> u32 {
        let is_it = |it: &KeyFailures<K>| it.hash == hash && it.key == *key;
        match self.0.entry(spread(hash), is_it, |it| spread(it.hash)) {
            Entry::Occupied(mut found) => {
                let count = &mut found.get_mut().in_a_row;
                *count = count.saturating_add(1);
                *count
            }
            Entry::Vacant(vacant) => {
                vacant.insert(KeyFailures { hash, key: key.clone(), in_a_row: 1 });
                1
            }
        }
    }

    /// Resets the count of a key, and returns whether it had one.
    pub(super) fn forget(&mut self, hash: u32, key: &K) -> bool {
        let is_it = |it: &KeyFailures<K>| it.hash == hash && it.key == *key;
        let Ok(found) = self.0.find_entry(spread(hash), is_it) else { return false };
        drop_catch_unwind(found.remove().0);
        if self.0.is_empty() {
            // Return the memory of a burst.
            self.0 = HashTable::new();
        }
        true
    }
}
