//! Watches a few keys of an inbox: for tasks behind a key's *latest* task, and for keys that were
//! *finished*.
//!
//! All state is under the inbox's lock, like the appends. An inbox that watches no key, as nearly
//! all do, costs an append one flag.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;

use super::lane_index::spread;
use super::{Inbox, InboxEntry, KeyClaim, Mode, Role, Rollup, TaskMeta};
use crate::unwind::drop_catch_unwind;

/// Keys that an inbox watches.
#[derive(Debug)]
pub(super) struct KeyMarkers<K, W>(HashTable<KeyMarker<K, W>>);

/// Key that is watched for its latest task, its end, or both.
#[derive(Debug)]
struct KeyMarker<K, W> {
    hash: u32,
    key: K,
    /// Newest latest task of the key, until it has ended.
    latest: Option<LatestMark<K, W>>,
    /// End of the key: until the end task has ended, or, if it refuses later tasks, until the key
    /// is reopened.
    end: Option<EndMark<K, W>>,
}

#[derive(Debug)]
struct LatestMark<K, W> {
    task: Arc<Rollup<K, W>>,
    /// Whether a conflicting task has come behind it, so that no later task can take its position.
    sealed: bool,
}

#[derive(Debug)]
struct EndMark<K, W> {
    /// End task. Absent once it has ended.
    task: Option<Arc<Rollup<K, W>>>,
    /// Whether later tasks of the key are refused.
    refuses: bool,
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
    fn find(&self, hash: u32, key: &K) -> Option<&KeyMarker<K, W>> {
        self.0.find(spread(hash), |it| it.hash == hash && it.key == *key)
    }

    fn find_mut(&mut self, hash: u32, key: &K) -> Option<&mut KeyMarker<K, W>> {
        self.0.find_mut(spread(hash), |it| it.hash == hash && it.key == *key)
    }

    fn open(&mut self, hash: u32, key: K) -> &mut KeyMarker<K, W> {
        let is_it = |it: &KeyMarker<K, W>| it.hash == hash && it.key == key;
        match self.0.entry(spread(hash), is_it, |it| spread(it.hash)) {
            TableEntry::Occupied(found) => found.into_mut(),
            TableEntry::Vacant(vacant) => {
                vacant.insert(KeyMarker { hash, key, latest: None, end: None }).into_mut()
            }
        }
    }
}

impl<K: Eq + Clone, W> Inbox<K, W> {
    /// Returns whether tasks of this key are refused because it was finished.
    pub(crate) fn refuses(&self, hash: u32, key: &K) -> bool {
        let end = self.markers.find(hash, key).and_then(|marker| marker.end.as_ref());
        end.is_some_and(|end| end.refuses)
    }

    /// Records that a task of this key is about to be appended that is neither latest nor end: an
    /// earlier latest task keeps its position, and a finished key that does not refuse begins a new
    /// life.
    pub(crate) fn pass(&mut self, hash: u32, key: &K) {
        self.change_watched(hash, key, |marker| {
            if let Some(latest) = &mut marker.latest {
                latest.sealed = true;
            }
            marker.end.take_if(|end| !end.refuses);
        });
    }

    /// Records that a barrier is about to be appended: all latest tasks keep their positions.
    pub(crate) fn pass_barrier(&mut self) {
        for marker in self.markers.0.iter_mut() {
            if let Some(latest) = &mut marker.latest {
                latest.sealed = true;
            }
        }
    }

    /// Replaces the key's latest task, if it still waits. The new task takes its position; or, if a
    /// conflicting task has come behind it, is appended and leaves a tombstone. Either way the
    /// number of tasks stays the same. If the new task `waits`, it does not begin before a call of
    /// `Rollup::end_replacing`.
    pub(crate) fn replace_latest(
        &mut self,
        hash: u64,
        key: &K,
        time: u32,
        waits: bool,
        make: &mut impl FnMut() -> W,
    ) -> Option<Replacement<K, W>> {
        let latest = self.markers.find(hash as u32, key)?.latest.as_ref()?;
        if !latest.sealed {
            let work = latest.task.swap_work(waits, make)?;
            let task = latest.task.clone();
            self.accepted += 1;
            return Some(Replacement { work, task, appended: None });
        }
        let work = latest.task.take_superseded()?;
        let task = self.single(Role::Latest, hash, key, time, make()).replacing(waits);
        let task = Arc::new(task);
        let appended = Some(self.push_task(hash, key, task.clone()));
        Some(Replacement { work, task, appended })
    }

    /// Appends a task that may be replaced while it waits, and returns whether the caller must
    /// notify the workers.
    pub(crate) fn push_latest(&mut self, hash: u64, key: &K, time: u32, work: W) -> bool {
        let task = self.single(Role::Latest, hash, key, time, work);
        self.push_task(hash, key, Arc::new(task))
    }

    fn push_task(&mut self, hash: u64, key: &K, task: Arc<Rollup<K, W>>) -> bool {
        let marker = self.markers.open(hash as u32, key.clone());
        marker.latest = Some(LatestMark { task: task.clone(), sealed: false });
        // A finished key that does not refuse begins a new life.
        marker.end.take_if(|end| !end.refuses);
        self.watched = true;
        self.push(InboxEntry::Part { rollup: task, claim: 0 })
    }

    /// Returns whether the key has an end, and has not begun a new life since.
    pub(crate) fn has_end(&self, hash: u32, key: &K) -> bool {
        self.markers.find(hash, key).is_some_and(|marker| marker.end.is_some())
    }

    /// Appends the end of a key that has none, and returns whether the caller must notify the
    /// workers.
    pub(crate) fn push_end(
        &mut self,
        hash: u64,
        key: &K,
        time: u32,
        refuses: bool,
        work: W,
    ) -> bool {
        debug_assert!(!self.has_end(hash as u32, key));
        self.pass(hash as u32, key);
        let task = Arc::new(self.single(Role::End, hash, key, time, work));
        let end = EndMark { task: Some(task.clone()), refuses };
        self.markers.open(hash as u32, key.clone()).end = Some(end);
        self.watched = true;
        self.push(InboxEntry::Part { rollup: task, claim: 0 })
    }

    /// Stops watching a task that has ended or will never begin.
    pub(crate) fn unwatch(&mut self, task: &Arc<Rollup<K, W>>) {
        let (hash, key, _) = task.claim(0);
        self.change_watched(hash, key, |marker| {
            marker.latest.take_if(|latest| Arc::ptr_eq(&latest.task, task));
            let ends = |it: &Arc<Rollup<K, W>>| Arc::ptr_eq(it, task);
            if let Some(end) = &mut marker.end
                && end.task.as_ref().is_some_and(ends)
            {
                end.task = None;
                marker.end.take_if(|end| !end.refuses);
            }
        });
    }

    /// Reopens a key that refuses tasks. Returns false if it did not refuse.
    pub(crate) fn reopen(&mut self, hash: u32, key: &K) -> bool {
        let mut refused = false;
        self.change_watched(hash, key, |marker| {
            refused = marker.end.take_if(|end| end.refuses).is_some();
        });
        refused
    }

    /// Iterates over the keys that refuse tasks.
    pub(crate) fn refusing(&self) -> impl Iterator<Item = &K> {
        let refuses = |it: &&KeyMarker<K, W>| it.end.as_ref().is_some_and(|end| end.refuses);
        self.markers.0.iter().filter(refuses).map(|marker| &marker.key)
    }

    /// Closes the inbox to all submissions.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.watched = true;
    }

    /// Stops watching all keys.
    pub(crate) fn forget_watched(&mut self) {
        self.markers = KeyMarkers::default();
        self.watched = self.closed;
    }

    /// Changes the marker of a watched key, and removes it if nothing is left to watch.
    fn change_watched(&mut self, hash: u32, key: &K, change: impl FnOnce(&mut KeyMarker<K, W>)) {
        let Some(marker) = self.markers.find_mut(hash, key) else { return };
        change(marker);
        if marker.latest.is_some() || marker.end.is_some() {
            return;
        }
        let is_it = |it: &KeyMarker<K, W>| it.hash == hash && it.key == *key;
        if let Ok(found) = self.markers.0.find_entry(spread(hash), is_it) {
            drop_catch_unwind(found.remove().0);
        }
        if self.markers.0.is_empty() {
            self.forget_watched();
        }
    }

    fn single(&mut self, role: Role, hash: u64, key: &K, time: u32, work: W) -> Rollup<K, W> {
        let meta = TaskMeta { hash: hash as u32, seq: self.tick(), time };
        let claim = KeyClaim { key: key.clone(), mode: Mode::Exclusive };
        Rollup::single(role, hash, claim, meta, work)
    }
}
