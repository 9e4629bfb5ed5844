//! What an inbox watches a few keys for: whether anything has come behind a key's *latest* task, and
//! whether a key has been *finished*.
//!
//! All of it is under the inbox's lock, like what comes. An inbox that watches no key, as nearly all do,
//! looks at one flag.

use std::sync::Arc;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as TableEntry;

use super::lane_index::spread;
use super::{Inbox, InboxEntry, KeyClaim, Mode, Role, Rollup, TaskMeta};
use crate::unwind::drop_catch_unwind;

/// The keys that an inbox watches.
#[derive(Debug)]
pub(super) struct KeyMarkers<K, W>(HashTable<KeyMarker<K, W>>);

/// A key that is watched for at least one of the two.
#[derive(Debug)]
struct KeyMarker<K, W> {
    hash: u32,
    key: K,
    /// The last task that came to replace the one before it, until it has ended.
    latest: Option<LatestMark<K, W>>,
    /// The key's end, until it has ended; or until the key is opened again, if it refuses.
    end: Option<EndMark<K, W>>,
}

#[derive(Debug)]
struct LatestMark<K, W> {
    task: Arc<Rollup<K, W>>,
    /// Something has come behind it that conflicts with it, so another can't have its place.
    sealed: bool,
}

#[derive(Debug)]
struct EndMark<K, W> {
    /// Absent when it has ended.
    task: Option<Arc<Rollup<K, W>>>,
    /// What comes later is refused.
    refuses: bool,
}

/// A latest task has been replaced.
pub(crate) struct Replacement<K, W> {
    /// What will not run.
    pub(crate) work: W,
    /// The new one.
    pub(crate) task: Arc<Rollup<K, W>>,
    /// The new one was appended, and there is a tombstone in the place of the old one: whether the workers
    /// must be told. Else the new one is in that place.
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
    /// Whether tasks of this key are refused, for it was finished.
    pub(crate) fn refuses(&self, hash: u32, key: &K) -> bool {
        let end = self.markers.find(hash, key).and_then(|marker| marker.end.as_ref());
        end.is_some_and(|end| end.refuses)
    }

    /// A task of this key is about to be appended that is neither its latest nor its end: a latest task
    /// before it keeps its place, and a key that was finished begins a new life.
    pub(crate) fn pass(&mut self, hash: u32, key: &K) {
        self.change_watched(hash, key, |marker| {
            if let Some(latest) = &mut marker.latest {
                latest.sealed = true;
            }
            marker.end.take_if(|end| !end.refuses);
        });
    }

    /// The same for a barrier, which is no task of any key.
    pub(crate) fn pass_barrier(&mut self) {
        for marker in self.markers.0.iter_mut() {
            if let Some(latest) = &mut marker.latest {
                latest.sealed = true;
            }
        }
    }

    /// Replaces the key's latest task, if that waits: takes its place, or if something has come behind
    /// it, goes to the end and leaves a tombstone. Either way one task is there where one was. If it `waits`
    /// it does not begin before `Rollup::end_replacing` was called.
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
        let work = latest.task.give_way()?;
        let task = self.single(Role::Latest, hash, key, time, make()).replacing(waits);
        let task = Arc::new(task);
        let appended = Some(self.push_task(hash, key, task.clone()));
        Some(Replacement { work, task, appended })
    }

    /// Appends a task that may be replaced as long as it waits, and says whether the workers must be
    /// told.
    pub(crate) fn push_latest(&mut self, hash: u64, key: &K, time: u32, work: W) -> bool {
        let task = self.single(Role::Latest, hash, key, time, work);
        self.push_task(hash, key, Arc::new(task))
    }

    fn push_task(&mut self, hash: u64, key: &K, task: Arc<Rollup<K, W>>) -> bool {
        let marker = self.markers.open(hash as u32, key.clone());
        marker.latest = Some(LatestMark { task: task.clone(), sealed: false });
        // A life that has ended begins anew.
        marker.end.take_if(|end| !end.refuses);
        self.watched = true;
        self.push(InboxEntry::Part { rollup: task, claim: 0 })
    }

    /// Whether the life of a key has an end, and nothing has begun a new one.
    pub(crate) fn has_end(&self, hash: u32, key: &K) -> bool {
        self.markers.find(hash, key).is_some_and(|marker| marker.end.is_some())
    }

    /// Appends the end of a key that has none, and says whether the workers must be told.
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

    /// A task that was watched has ended, or never will begin.
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

    /// A key that refuses no longer does. False if it did not.
    pub(crate) fn reopen(&mut self, hash: u32, key: &K) -> bool {
        let mut refused = false;
        self.change_watched(hash, key, |marker| {
            refused = marker.end.take_if(|end| end.refuses).is_some();
        });
        refused
    }

    /// The keys that refuse.
    pub(crate) fn refusing(&self) -> impl Iterator<Item = &K> {
        let refuses = |it: &&KeyMarker<K, W>| it.end.as_ref().is_some_and(|end| end.refuses);
        self.markers.0.iter().filter(refuses).map(|marker| &marker.key)
    }

    /// Lets nothing in any more.
    pub(crate) fn close(&mut self) {
        self.closed = true;
        self.watched = true;
    }

    /// What was watched is gone.
    pub(crate) fn forget_watched(&mut self) {
        self.markers = KeyMarkers::default();
        self.watched = self.closed;
    }

    /// Changes what is watched of a key, and no longer watches it if nothing is left.
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
