//! Watches a few keys of an inbox: for tasks behind a key's *latest* task, and for keys that were
//! *finished*.
//!
//! All state is under the inbox's lock, like the appends. An inbox that watches no key, as nearly
//! all do, costs an append one flag.

use std::sync::Arc;

use super::key_markers::{EndMark, KeyMarker, KeyMarkers, LatestMark, MarkerId};
use super::lane_index::spread;
use super::{ClaimMode, Inbox, InboxEntry, KeyClaim, MarkerRole, Replacement, Rollup, TaskMeta};
use crate::unwind::drop_catch_unwind;

impl<K, W> Inbox<K, W> {
    /// Stops watching all keys without a comparison or a drop of one. Moves the keys and the watched
    /// tasks that have not ended to the lists given.
    pub(super) fn take_watched(&mut self, keys: &mut Vec<K>, tasks: &mut Vec<Arc<Rollup<K, W>>>) {
        for marker in std::mem::take(&mut self.markers).table {
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

    /// Finds the marker of a watched key. The functions that take the result compare no key, so
    /// that a panic of a comparison leaves the inbox as it was.
    pub(crate) fn find_marker(&self, hash: u32, key: &K) -> Option<MarkerId> {
        self.markers.find(hash, key).map(|marker| marker.id)
    }

    /// Records that a task of this key is about to be appended that is neither latest nor end: an
    /// earlier latest task keeps its position, and a finished key that does not refuse begins a new
    /// life.
    pub(crate) fn pass(&mut self, hash: u32, found: Option<MarkerId>) {
        let Some(id) = found else { return };
        self.change_watched(
            hash,
            |it| it.id == id,
            |marker| {
                if let Some(latest) = &mut marker.latest {
                    latest.sealed = true;
                }
                marker.end.take_if(|end| !end.refuses);
            },
        );
    }

    /// Records that a barrier is about to be appended: all latest tasks keep their positions.
    pub(crate) fn pass_barrier(&mut self) {
        for marker in self.markers.table.iter_mut() {
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
        let marker = self.markers.find(hash as u32, key)?;
        let latest = marker.latest.as_ref()?;
        if !latest.sealed {
            let work = latest.task.swap_work(waits, make)?;
            let task = latest.task.clone();
            self.accepted += 1;
            return Some(Replacement { work, task, appended: None, tombstone: None });
        }
        // Copied before the work is taken: if that panics, nothing has changed.
        let copies = (key.clone(), key.clone());
        let (id, tombstone) = (marker.id, latest.task.clone());
        let work = tombstone.take_superseded(waits)?;
        let task = self.single(MarkerRole::Latest, hash, copies.0, time, make()).replacing(waits);
        let task = Arc::new(task);
        let appended = Some(self.push_task(hash as u32, Some(id), copies.1, task.clone()));
        Some(Replacement { work, task, appended, tombstone: Some(tombstone) })
    }

    /// Appends a task that may be replaced while it waits, and returns whether the caller must
    /// notify the workers. Gets the key twice.
    pub(crate) fn push_latest(
        &mut self,
        hash: u64,
        found: Option<MarkerId>,
        (key, marked): (K, K),
        time: u32,
        work: W,
    ) -> bool {
        let task = self.single(MarkerRole::Latest, hash, key, time, work);
        self.push_task(hash as u32, found, marked, Arc::new(task))
    }

    fn push_task(
        &mut self,
        hash: u32,
        found: Option<MarkerId>,
        key: K,
        task: Arc<Rollup<K, W>>,
    ) -> bool {
        let marker = self.markers.open(hash, found, key);
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
    /// workers. Gets the key twice.
    pub(crate) fn push_end(
        &mut self,
        hash: u64,
        found: Option<MarkerId>,
        (key, marked): (K, K),
        time: u32,
        (refuses, work): (bool, W),
    ) -> bool {
        let task = Arc::new(self.single(MarkerRole::End, hash, key, time, work));
        let marker = self.markers.open(hash as u32, found, marked);
        debug_assert!(marker.end.is_none(), "the caller has looked");
        if let Some(latest) = &mut marker.latest {
            latest.sealed = true;
        }
        marker.end = Some(EndMark { task: Some(task.clone()), refuses });
        self.watched = true;
        self.push(InboxEntry::Part { rollup: task, claim: 0 })
    }

    /// Stops watching a task that has ended or will never begin.
    pub(crate) fn unwatch(&mut self, task: &Arc<Rollup<K, W>>) {
        let ends = |end: &EndMark<K, W>| end.task.as_ref().is_some_and(|it| Arc::ptr_eq(it, task));
        let marks = |marker: &KeyMarker<K, W>| {
            marker.latest.as_ref().is_some_and(|latest| Arc::ptr_eq(&latest.task, task))
                || marker.end.as_ref().is_some_and(ends)
        };
        let (hash, _, _) = task.claim(0);
        self.change_watched(hash, marks, |marker| {
            marker.latest.take_if(|latest| Arc::ptr_eq(&latest.task, task));
            if let Some(end) = &mut marker.end
                && ends(end)
            {
                end.task = None;
                marker.end.take_if(|end| !end.refuses);
            }
        });
    }

    /// Reopens a key that refuses tasks. Returns false if it did not refuse.
    pub(crate) fn reopen(&mut self, hash: u32, key: &K) -> bool {
        let Some(id) = self.find_marker(hash, key) else { return false };
        let mut refused = false;
        self.change_watched(
            hash,
            |it| it.id == id,
            |marker| {
                refused = marker.end.take_if(|end| end.refuses).is_some();
            },
        );
        refused
    }

    /// Iterates over the keys that refuse tasks.
    pub(crate) fn refusing(&self) -> impl Iterator<Item = &K> {
        let refuses = |it: &&KeyMarker<K, W>| it.end.as_ref().is_some_and(|end| end.refuses);
        self.markers.table.iter().filter(refuses).map(|marker| &marker.key)
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
    fn change_watched(
        &mut self,
        hash: u32,
        is_it: impl Fn(&KeyMarker<K, W>) -> bool,
        change: impl FnOnce(&mut KeyMarker<K, W>),
    ) {
        let Ok(mut found) = self.markers.table.find_entry(spread(hash), is_it) else { return };
        let marker = found.get_mut();
        change(marker);
        if marker.latest.is_some() || marker.end.is_some() {
            return;
        }
        drop_catch_unwind(found.remove().0);
        if self.markers.table.is_empty() {
            self.forget_watched();
        }
    }

    fn single(&mut self, role: MarkerRole, hash: u64, key: K, time: u32, work: W) -> Rollup<K, W> {
        let meta = TaskMeta { hash: hash as u32, seq: self.tick(), time };
        let claim = KeyClaim { key, mode: ClaimMode::Exclusive };
        Rollup::single(role, hash, claim, (self.clock, meta), work)
    }
}
