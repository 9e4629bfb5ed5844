//! Keys that an inbox watches, with their latest and end tasks. `inbox_markers.rs` has the rules.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;

use super::Rollup;
use super::lane_index::spread;
use crate::unwind::drop_catch_unwind;

/// Keys that an inbox watches.
#[derive(Debug)]
pub(super) struct KeyMarkers<K, W> {
    pub(super) table: HashTable<KeyMarker<K, W>>,
    /// Number of markers ever added.
    added: u64,
}

/// Marker in its inbox, found by a comparison of keys, and from then on without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MarkerId(u64);

/// Key that is watched for its latest task, its end, or both.
#[derive(Debug)]
pub(super) struct KeyMarker<K, W> {
    pub(super) hash: u32,
    pub(super) key: K,
    pub(super) id: MarkerId,
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
    /// Tombstone that remains, if the new task was appended.
    pub(crate) tombstone: Option<Arc<Rollup<K, W>>>,
}

impl<K, W> Default for KeyMarkers<K, W> {
    fn default() -> Self {
        KeyMarkers { table: HashTable::new(), added: 0 }
    }
}

impl<K: Eq, W> KeyMarkers<K, W> {
    pub(super) fn find(&self, hash: u32, key: &K) -> Option<&KeyMarker<K, W>> {
        self.table.find(spread(hash), |it| it.hash == hash && it.key == *key)
    }

    /// Returns the marker with this id, or adds one for the key.
    pub(super) fn open(
        &mut self,
        hash: u32,
        found: Option<MarkerId>,
        key: K,
    ) -> &mut KeyMarker<K, W> {
        match self.table.entry(spread(hash), |it| Some(it.id) == found, |it| spread(it.hash)) {
            TableEntry::Occupied(place) => {
                drop_catch_unwind(key);
                place.into_mut()
            }
            TableEntry::Vacant(vacant) => {
                self.added += 1;
                let id = MarkerId(self.added);
                vacant.insert(KeyMarker { hash, key, id, latest: None, end: None }).into_mut()
            }
        }
    }
}
