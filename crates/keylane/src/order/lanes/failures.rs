//! Counts the consecutive failures of each key.

use hashbrown::hash_table::Entry;

use super::*;

/// Key whose last task has failed, with its count.
#[derive(Debug)]
pub(super) struct Failures<K> {
    hash: u32,
    key: K,
    in_a_row: u32,
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Counts a failed task, and returns the number of consecutive failures of its key.
    pub(crate) fn count_failure(&mut self, hash: u32, key: &K) -> u32 {
        let is_it = |it: &Failures<K>| it.hash == hash && it.key == *key;
        match self.failures.entry(spread(hash), is_it, |it| spread(it.hash)) {
            Entry::Occupied(mut found) => {
                let count = &mut found.get_mut().in_a_row;
                *count = count.saturating_add(1);
                *count
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Failures { hash, key: key.clone(), in_a_row: 1 });
                1
            }
        }
    }

    /// Resets the count of a key, and returns whether it had one.
    pub(crate) fn forget_failures(&mut self, hash: u32, key: &K) -> bool {
        let is_it = |it: &Failures<K>| it.hash == hash && it.key == *key;
        let Ok(found) = self.failures.find_entry(spread(hash), is_it) else { return false };
        found.remove();
        if self.failures.is_empty() {
            // Return the memory of a burst.
            self.failures = HashTable::new();
        }
        true
    }
}
