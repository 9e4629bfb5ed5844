//! Watches a few keys of an inbox: for tasks behind a key's *latest* task, and for keys that were
//! *finished*.
//!
//! All state is under the inbox's lock, like the appends. An inbox that watches no key, as nearly
//! all do, costs an append one flag.

use std::sync::Arc;

use super::key_markers::{EndMark, KeyMarker, KeyMarkers, LatestMark};
use super::lane_index::spread;
use super::{ClaimMode, Inbox, InboxEntry, KeyClaim, MarkerRole, Replacement, Rollup, TaskMeta};
use crate::unwind::drop_catch_unwind;

impl<K, W> Inbox<K, W> {
    /// Stops watching all keys without a comparison or a drop of one. Moves the keys and the watched
    /// tasks that have not ended to the lists given.
    pub(super) fn take_watched(&mut self, keys: &mut Vec<K>, tasks: &mut Vec<Arc<Rollup<K, W>>>) {
        for marker in std::mem::take(&mut self.markers).0 {
            tasks.extend(marker.latest.map(|latest| latest.task));
            tasks.extend(marker.end.and_then(|end| end.task));
            keys.push(marker.key);
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
        let task = self.single(MarkerRole::Latest, hash, key, time, make()).replacing(waits);
        let task = Arc::new(task);
        let appended = Some(self.push_task(hash, key, task.clone()));
        Some(Replacement { work, task, appended })
    }

    /// Appends a task that may be replaced while it waits, and returns whether the caller must
    /// notify the workers.
    pub(crate) fn push_latest(&mut self, hash: u64, key: &K, time: u32, work: W) -> bool {
        let task = self.single(MarkerRole::Latest, hash, key, time, work);
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
        let task = Arc::new(self.single(MarkerRole::End, hash, key, time, work));
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

    fn single(&mut self, role: MarkerRole, hash: u64, key: &K, time: u32, work: W) -> Rollup<K, W> {
        let meta = TaskMeta { hash: hash as u32, seq: self.tick(), time };
        let claim = KeyClaim { key: key.clone(), mode: ClaimMode::Exclusive };
        Rollup::single(role, hash, claim, meta, work)
    }
}
