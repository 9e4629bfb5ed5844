//! Keys that an inbox watches, with their latest and end tasks. `inbox_markers.rs` has the rules.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;

use super::Rollup;
use super::lane_index::spread;

/// Keys that an inbox watches.
#[derive(Debug)]
pub(super) struct KeyMarkers<K, W>(pub(super) HashTable<KeyMarker<K, W>>);

/// Key that is watched for its latest task, its end, or both.
#[derive(Debug)]
pub(super) struct KeyMarker<K, W> {
    pub(super) hash: u32,
    pub(super) key: K,
    /// Newest latest task of the key, until it has ended.
    pub(super) latest: Option<LatestMark<K, W>>,
    /// End of the key: until the end task has ended, or, if it refuses later tasks, until the key
    /// is reopened.
    pub(super) end: Option<EndMark<K, W>>,
}

#[derive(Debug)]
pub(super) struct LatestMark<K, W> {
    pub(super) task: Arc<Rollup<K, W>>,
    /// Whether a conflicting task has come behind it, so that no later task can take its position.
    pub(super) sealed: bool,
}

#[derive(Debug)]
pub(super) struct EndMark<K, W> {
    /// End task. Absent once it has ended.
    pub(super) task: Option<Arc<Rollup<K, W>>>,
    /// Whether later tasks of the key are refused.
    pub(super) refuses: bool,
}

/// Replacement of a latest task.
pub(crate) struct Replacement<K, W> {
    /// Replaced work, which will not run.
    pub(crate) work: W,
    /// New task.
    pub(crate) task: Arc<Rollup<K, W>>,
    /// `None` if the new task took the position of the old one. Otherwise the new task was
    /// appended, a tombstone remains in the old position, and the value tells whether the caller
    /// must notify the workers.
    pub(crate) appended: Option<bool>,
}

impl<K, W> Default for KeyMarkers<K, W> {
    fn default() -> Self {
        KeyMarkers(HashTable::new())
    }
}

impl<K: Eq, W> KeyMarkers<K, W> {
    pub(super) fn find(&self, hash: u32, key: &K) -> Option<&KeyMarker<K, W>> {
        self.0.find(spread(hash), |it| it.hash == hash && it.key == *key)
    }

    pub(super) fn find_mut(&mut self, hash: u32, key: &K) -> Option<&mut KeyMarker<K, W>> {
        self.0.find_mut(spread(hash), |it| it.hash == hash && it.key == *key)
    }

    pub(super) fn open(&mut self, hash: u32, key: K) -> &mut KeyMarker<K, W> {
        let is_it = |it: &KeyMarker<K, W>| it.hash == hash && it.key == key;
        match self.0.entry(spread(hash), is_it, |it| spread(it.hash)) {
            TableEntry::Occupied(found) => found.into_mut(),
            TableEntry::Vacant(vacant) => {
                vacant.insert(KeyMarker { hash, key, latest: None, end: None }).into_mut()
            }
        }
    }
}
