//! Orders tasks by their descriptors: keeps one conflict index of unfinished tasks per descriptor
//! type.

mod bit_sliced;
mod compatibility;
mod index;

use std::any::TypeId;
use std::collections::HashMap;

use foldhash::fast::RandomState;

pub(crate) use self::bit_sliced::PageScan;
pub use self::compatibility::Compatibility;
pub(crate) use self::compatibility::Descriptor;
use self::index::{ConflictIndex, IndexPos};
pub(crate) use self::index::{ConflictScan, Inserted, ScanBatch};
use super::one_or_many::OneOrMany;

/// Data that a task with a descriptor has beyond other rollups.
#[derive(Debug)]
pub(crate) struct ConflictEntry {
    pub(crate) descriptor: Descriptor,
    /// Position in the conflict index. Never changed.
    pub(crate) pos: IndexPos,
}

/// All conflict indexes. Kept under one lock, which is innermost.
#[derive(Debug)]
pub(crate) struct ConflictRegistry<T> {
    /// Last position assigned: a clock like those of the inboxes, which also follows them. It rises
    /// with the order of submission, since a task is inserted while its inboxes are locked.
    last: u64,
    /// Conflict indexes that are not empty, by descriptor type.
    indexes: HashMap<TypeId, ConflictIndex<T>, RandomState>,
}

impl<T> Default for ConflictRegistry<T> {
    fn default() -> Self {
        ConflictRegistry { last: 0, indexes: HashMap::default() }
    }
}

impl<T: Clone> ConflictRegistry<T> {
    /// Inserts a task into its conflict index, at a position after `after`, which its inboxes have
    /// reached.
    pub(crate) fn insert(
        &mut self,
        after: u64,
        descriptor: &Descriptor,
        make: impl FnOnce(IndexPos) -> T,
    ) -> Inserted<T> {
        self.last = self.last.max(after) + 1;
        let index = self.indexes.entry(descriptor.kind()).or_default();
        index.insert(self.last, descriptor, make)
    }

    pub(crate) fn next_round(
        &mut self,
        kind: TypeId,
        scan: &mut ConflictScan,
        task: &T,
    ) -> (usize, ScanBatch<T>) {
        match self.indexes.get_mut(&kind) {
            Some(index) => index.next_round(scan, task),
            // The pool has been stopped: no task waits for another any more.
            None => (0, ScanBatch::Over),
        }
    }

    pub(crate) fn remove(&mut self, member: &ConflictEntry) -> (OneOrMany<T>, Option<T>) {
        let kind = member.descriptor.kind();
        let Some(index) = self.indexes.get_mut(&kind) else { return (OneOrMany::new(), None) };
        let ended = index.remove(member.pos);
        if index.is_empty() {
            self.indexes.remove(&kind);
        }
        ended
    }

    /// Returns the tasks that wait directly for this one.
    pub(crate) fn behind(&self, member: &ConflictEntry) -> Vec<T> {
        self.indexes
            .get(&member.descriptor.kind())
            .map_or(Vec::new(), |index| index.behind(member.pos))
    }

    /// Returns all unfinished tasks.
    pub(crate) fn tasks(&self) -> Vec<T> {
        self.indexes.values().flat_map(ConflictIndex::tasks).cloned().collect()
    }

    /// Returns whether a task waits for another one of its conflict index.
    pub(crate) fn is_behind(&self, member: &ConflictEntry, is_it: impl Fn(&T) -> bool) -> bool {
        let index = self.indexes.get(&member.descriptor.kind());
        index.is_some_and(|index| index.is_behind(is_it))
    }

    /// Returns the position before which everything has been submitted by now.
    pub(crate) fn now(&self) -> u64 {
        self.last + 1
    }

    /// Returns whether a task before this position still scans for conflicts.
    pub(crate) fn scans_before(&self, place: u64) -> bool {
        self.indexes.values().any(|index| index.scans_before(place))
    }

    /// Clears all indexes, and returns the unfinished tasks.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        self.indexes.drain().flat_map(|(_, index)| index.into_tasks()).collect()
    }
}
