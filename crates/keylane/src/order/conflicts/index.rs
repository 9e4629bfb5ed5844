//! Decides which unfinished tasks with descriptors of one type a new task has to wait for.
//!
//! A plain state machine, without locks and without user code. It lists the pairs of tasks that the
//! caller has to compare (those in no class as pages, see `bit_sliced.rs`), receives the results,
//! and returns the tasks to release when one has ended. `README.md` in the folder above has the
//! protocol and the proof.

use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::super::one_or_many::OneOrMany;
use super::Descriptor;
use super::bit_sliced::{BitSlicedIndex, PageScan};

#[cfg(test)]
mod tests;

/// Number of groups that are looked up under one lock, to be compared outside of it. Tests need
/// more than one round.
const SCAN_BATCH: usize = if cfg!(test) { 2 } else { 64 };

/// Unfinished tasks of one type of descriptors.
#[derive(Debug)]
pub(crate) struct ConflictIndex<T> {
    /// Each class with unfinished tasks, and each unfinished task without a class, by the position
    /// of the task that opened the group. No group is empty.
    groups: BTreeMap<u64, ConflictGroup<T>>,
    /// Open group of each class.
    classes: HashMap<u64, Class, RandomState>,
    /// Unfinished tasks without a class, a second time, laid out for scans.
    singles: BitSlicedIndex,
    /// Positions of inserted tasks that still scan. Tasks that come meanwhile must compare
    /// themselves with what the opener of a group has not found out yet.
    scanning: Vec<u64>,
    /// Position of the last task that had anything to compare. Wait groups opened before it accept
    /// no more tasks, since the scanning task might come to wait for them.
    boundary: u64,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    group: u64,
    /// Union of the summaries of its tasks.
    summary: u64,
}

/// Tasks with the same conflicts: those of a class, or a single one without a class.
#[derive(Debug)]
struct ConflictGroup<T> {
    class: Option<u64>,
    /// Whether its tasks are compatible with each other. Absent until compared.
    compatible: Option<bool>,
    /// Other groups that it conflicts with, except those whose opener still scans. Some may be
    /// gone. Unused for a task without a class, since no task joins its group.
    rivals: Vec<u64>,
    /// Its unfinished tasks, the oldest first. Never empty, and no wait group is empty.
    wait_groups: VecDeque<WaitGroup<T>>,
}

/// Tasks of a group that another task waits for at once, together with all in earlier wait groups.
#[derive(Debug)]
struct WaitGroup<T> {
    /// Position of the first task that was in it.
    opened: u64,
    /// First task, unless it has ended.
    opener: Option<T>,
    /// Whether a task waits for it, so that no more tasks join.
    sealed: bool,
    /// Other unfinished tasks, with their positions, which rise.
    joined: VecDeque<(u64, T)>,
    /// Tasks that wait until this wait group and those before it are gone.
    waiters: OneOrMany<T>,
}

/// Position of a task in its conflict index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexPos {
    /// Position among all tasks that have a descriptor.
    pub(crate) place: u64,
    group: u64,
    wait_group: u64,
}

/// Task that has just been inserted.
pub(crate) struct Inserted<T> {
    pub(crate) task: T,
    /// Number of releases that it has to wait for, as far as known.
    pub(crate) waits: usize,
    /// Comparisons to be made before the rest is known.
    pub(crate) scan: Option<ConflictScan>,
}

/// Remaining comparisons of an inserted task.
#[derive(Debug)]
pub(crate) struct ConflictScan {
    pos: IndexPos,
    /// Whether the task is in no class.
    is_single: bool,
    summary: u64,
    /// Groups to compare with, the newest last.
    groups: Vec<u64>,
    /// Position before which all tasks without a class that share a bit with it are still to be
    /// compared.
    singles: u64,
    /// Groups that conflict and are not waited for yet.
    found: Vec<u64>,
    /// All groups that were found to conflict.
    rivals: Vec<u64>,
    /// Whether two tasks of its own class conflict. Absent until compared.
    own: Option<bool>,
    /// Tasks without a class that are waited for by tasks that this one waits for: it need not
    /// compare with them.
    implied: BinaryHeap<u64>,
}

/// Next tasks to compare with, outside of all locks.
pub(crate) enum ScanBatch<T> {
    Groups(Vec<ConflictCandidate<T>>),
    Singles(Vec<PageScan>),
    /// All comparisons are made.
    Over,
}

/// Representative of a group for the next compatibility check.
pub(crate) struct ConflictCandidate<T> {
    group: u64,
    /// One task of the group.
    pub(crate) task: T,
}

impl<T> Default for ConflictIndex<T> {
    fn default() -> Self {
        ConflictIndex {
            groups: BTreeMap::new(),
            classes: HashMap::default(),
            singles: BitSlicedIndex::default(),
            scanning: Vec::new(),
            boundary: 0,
        }
    }
}

impl<T: Clone> ConflictIndex<T> {
    /// Inserts a task. `place` is above all earlier positions; `make` creates the task.
    pub(crate) fn insert(
        &mut self,
        place: u64,
        descriptor: &Descriptor,
        make: impl FnOnce(IndexPos) -> T,
    ) -> Inserted<T> {
        let (class, summary) = (descriptor.class(), descriptor.summary());
        let open = class.and_then(|class| self.classes.get(&class)).map(|class| class.group);
        let (groups, singles) = match open {
            Some(group) if !self.scanning.contains(&group) => (self.unknown_conflicts(group), 0),
            _ => (self.sharing(summary, open), if self.singles.is_empty() { 0 } else { place }),
        };
        let scans = !groups.is_empty() || singles > 0;
        if scans {
            self.boundary = place;
            self.scanning.push(place);
        }
        let id = open.unwrap_or(place);
        let wait_group = open.and_then(|id| self.joinable(id)).unwrap_or(place);
        let pos = IndexPos { place, group: id, wait_group };
        let task = make(pos);
        let waits = if open.is_some() { self.wait_for_conflicts(id, &task) } else { 0 };
        self.join_group(pos, descriptor, task.clone());
        let scan = scans.then(|| ConflictScan {
            pos,
            is_single: class.is_none(),
            summary,
            groups,
            singles,
            found: Vec::new(),
            rivals: Vec::new(),
            own: None,
            implied: BinaryHeap::new(),
        });
        Inserted { task, waits, scan }
    }

    /// Returns the groups of classes that share a bit with a summary, and the group `own`.
    fn sharing(&self, summary: u64, own: Option<u64>) -> Vec<u64> {
        let classes = self.classes.values();
        let sharing = |class: &&Class| class.summary & summary != 0 || Some(class.group) == own;
        let mut groups: Vec<u64> = classes.filter(sharing).map(|class| class.group).collect();
        groups.sort_unstable();
        groups
    }

    /// Returns the groups whose conflicts with this one are still unknown.
    fn unknown_conflicts(&self, id: u64) -> Vec<u64> {
        let group = &self.groups[&id];
        let opened_by_scan = self.scanning.iter().filter(|place| self.groups.contains_key(place));
        let others = opened_by_scan.filter(|place| !group.rivals.contains(place)).copied();
        others.chain(group.compatible.is_none().then_some(id)).collect()
    }

    /// Returns the wait group that a new task joins, unless it must open one.
    fn joinable(&self, id: u64) -> Option<u64> {
        let group = &self.groups[&id];
        let last = group.wait_groups.back()?;
        let joins = !last.sealed && last.opened >= self.boundary && group.compatible == Some(true);
        joins.then_some(last.opened)
    }

    /// Makes a task wait for everything that its group is known to conflict with, and returns the
    /// number of releases.
    fn wait_for_conflicts(&mut self, id: u64, task: &T) -> usize {
        let group = self.groups.get_mut(&id).expect("the caller has looked");
        let alone = group.compatible == Some(false) && group.add_waiter(u64::MAX, task);
        if group.rivals.is_empty() {
            return usize::from(alone);
        }
        let mut rivals = std::mem::take(&mut group.rivals);
        rivals.retain(|rival| self.wait_for(*rival, u64::MAX, task));
        let waits = rivals.len();
        self.groups.get_mut(&id).expect("the group still has tasks").rivals = rivals;
        waits + usize::from(alone)
    }

    /// Makes a task wait for those of a group that came before a position. Returns false if there
    /// are none.
    fn wait_for(&mut self, group: u64, before: u64, task: &T) -> bool {
        self.groups.get_mut(&group).is_some_and(|group| group.add_waiter(before, task))
    }

    fn join_group(&mut self, pos: IndexPos, descriptor: &Descriptor, task: T) {
        let class = descriptor.class();
        let group = self.groups.entry(pos.group).or_insert_with(|| ConflictGroup {
            class,
            compatible: None,
            rivals: Vec::new(),
            wait_groups: VecDeque::with_capacity(1),
        });
        match class {
            Some(class) => {
                let none = Class { group: pos.group, summary: 0 };
                self.classes.entry(class).or_insert(none).summary |= descriptor.summary();
            }
            None => self.singles.push(pos.place, descriptor),
        }
        match group.wait_groups.back_mut().filter(|_| pos.wait_group != pos.place) {
            Some(last) => last.joined.push_back((pos.place, task)),
            None => group.wait_groups.push_back(WaitGroup {
                opened: pos.place,
                opener: Some(task),
                sealed: false,
                joined: VecDeque::new(),
                waiters: OneOrMany::new(),
            }),
        }
    }

    /// Makes the scanning task wait for the conflicts found since the last round. Returns their
    /// number and the next tasks to compare with.
    pub(crate) fn next_round(
        &mut self,
        scan: &mut ConflictScan,
        task: &T,
    ) -> (usize, ScanBatch<T>) {
        let mut waits = 0;
        for &group in &scan.found {
            waits += usize::from(self.wait_for(group, scan.pos.place, task));
        }
        scan.rivals.append(&mut scan.found);
        let candidates = self.next_candidates(scan);
        if !candidates.is_empty() {
            return (waits, ScanBatch::Groups(candidates));
        }
        if scan.singles > 0 {
            let scans = self.singles.scan(&mut scan.singles, scan.summary);
            return (waits, ScanBatch::Singles(scans));
        }
        self.finish_scan(scan);
        (waits, ScanBatch::Over)
    }

    /// Returns the next groups to compare with, the newest first.
    fn next_candidates(&self, scan: &mut ConflictScan) -> Vec<ConflictCandidate<T>> {
        let mut candidates = Vec::new();
        while candidates.len() < SCAN_BATCH
            && let Some(id) = scan.groups.pop()
        {
            candidates
                .extend(self.groups.get(&id).and_then(|group| group.representative(id, scan.pos)));
        }
        candidates
    }

    /// Ends a scan. Results about classes are kept for the tasks that will join them.
    fn finish_scan(&mut self, scan: &ConflictScan) {
        let IndexPos { place, group: id, .. } = scan.pos;
        self.scanning.retain(|scanning| *scanning != place);
        if let Some(own) = scan.own
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.compatible = Some(!own);
        }
        if scan.is_single {
            self.singles.set_behind(place, &scan.rivals);
        }
        if id != place {
            return;
        }
        for rival in &scan.rivals {
            if let Some(rival) = self.groups.get_mut(rival).filter(|rival| rival.class.is_some()) {
                rival.rivals.push(id);
            }
        }
        if let Some(group) = self.groups.get_mut(&id).filter(|group| group.class.is_some()) {
            group.rivals.extend(&scan.rivals);
        }
    }

    /// Removes a task that has ended. Returns the tasks that have one release less to wait for, and
    /// the task itself, to be dropped outside of locks.
    pub(crate) fn remove(&mut self, pos: IndexPos) -> (OneOrMany<T>, Option<T>) {
        let Some(group) = self.groups.get_mut(&pos.group) else { return (OneOrMany::new(), None) };
        let (released, ended) = group.remove(pos);
        if group.wait_groups.is_empty() {
            match group.class {
                Some(class) => _ = self.classes.remove(&class),
                None => self.singles.remove(pos.place),
            }
            self.groups.remove(&pos.group);
        }
        (released, ended)
    }

    /// Returns the tasks that wait directly for the task at this position.
    pub(crate) fn behind(&self, pos: IndexPos) -> Vec<T> {
        let Some(group) = self.groups.get(&pos.group) else { return Vec::new() };
        let wait_groups =
            group.wait_groups.iter().filter(|wait_group| wait_group.opened >= pos.wait_group);
        wait_groups.flat_map(|wait_group| wait_group.waiters.iter()).cloned().collect()
    }

    /// Iterates over all unfinished tasks, the oldest of each group first.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &T> {
        let wait_groups = self.groups.values().flat_map(|group| &group.wait_groups);
        wait_groups.flat_map(|WaitGroup { opener, joined, .. }| {
            opener.iter().chain(joined.iter().map(|(_, task)| task))
        })
    }

    /// Returns whether a task that satisfies `is_it` waits for others.
    pub(crate) fn is_behind(&self, is_it: impl Fn(&T) -> bool) -> bool {
        let mut wait_groups = self.groups.values().flat_map(|group| &group.wait_groups);
        wait_groups.any(|wait_group| wait_group.waiters.iter().any(&is_it))
    }

    /// Returns whether a task before this position still scans.
    pub(crate) fn scans_before(&self, place: u64) -> bool {
        self.scanning.iter().any(|scanning| *scanning < place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.scanning.is_empty()
    }

    /// Consumes the index, and iterates over all unfinished tasks, the oldest of each group first.
    pub(crate) fn into_tasks(self) -> impl Iterator<Item = T> {
        let wait_groups = self.groups.into_values().flat_map(|group| group.wait_groups);
        wait_groups.flat_map(|WaitGroup { opener, joined, .. }| {
            opener.into_iter().chain(joined.into_iter().map(|(_, task)| task))
        })
    }
}

impl<T: Clone> ConflictGroup<T> {
    /// Makes a task wait for those that came before a position. Returns false if there are none.
    fn add_waiter(&mut self, before: u64, task: &T) -> bool {
        let mut wait_groups = self.wait_groups.iter_mut().rev();
        let Some(wait_group) = wait_groups.find(|wait_group| wait_group.opened < before) else {
            return false;
        };
        wait_group.sealed = true;
        wait_group.waiters.push(task.clone());
        true
    }

    /// Returns a task to compare with on behalf of all, unless the scanning task is the only one.
    fn representative(&self, id: u64, scanning: IndexPos) -> Option<ConflictCandidate<T>> {
        let oldest = self.wait_groups.front()?;
        let (place, task) = match &oldest.opener {
            Some(opener) => (oldest.opened, opener),
            None => oldest.joined.front().map(|(place, task)| (*place, task))?,
        };
        let other = place != scanning.place;
        other.then(|| ConflictCandidate { group: id, task: task.clone() })
    }

    /// Removes a task. A wait group that becomes empty passes its waiters to the one before it, for
    /// which they wait too; the first wait group releases them.
    fn remove(&mut self, pos: IndexPos) -> (OneOrMany<T>, Option<T>) {
        let wait_groups = &mut self.wait_groups;
        let Ok(index) =
            wait_groups.binary_search_by_key(&pos.wait_group, |wait_group| wait_group.opened)
        else {
            return (OneOrMany::new(), None);
        };
        let ended = wait_groups[index].take(pos.place);
        if !wait_groups[index].is_empty() {
            return (OneOrMany::new(), ended);
        }
        let waiters =
            wait_groups.remove(index).map_or(OneOrMany::new(), |wait_group| wait_group.waiters);
        if index == 0 {
            return (waiters, ended);
        }
        // The one before accepts no more tasks: it was closed when the removed one was opened.
        wait_groups[index - 1].waiters.append(waiters);
        (OneOrMany::new(), ended)
    }
}

impl<T> WaitGroup<T> {
    fn take(&mut self, place: u64) -> Option<T> {
        if place == self.opened {
            return self.opener.take();
        }
        let at = self.joined.binary_search_by_key(&place, |(place, _)| *place).ok()?;
        self.joined.remove(at).map(|(_, task)| task)
    }

    fn is_empty(&self) -> bool {
        self.opener.is_none() && self.joined.is_empty()
    }
}

impl ConflictScan {
    /// Records the result of a compatibility check.
    pub(crate) fn record<T>(&mut self, candidate: &ConflictCandidate<T>, conflict: bool) {
        if candidate.group == self.pos.group {
            self.own = Some(conflict);
        }
        if conflict {
            self.found.push(candidate.group);
        }
    }

    /// Skips the tasks of a page that the scanning task comes after anyway, whatever the result
    /// would be.
    pub(crate) fn skip_implied(&mut self, page: &mut PageScan) {
        if self.is_single {
            page.skip_implied(&mut self.implied);
        }
    }

    /// Records a conflict with the task at index `at` of a page.
    pub(crate) fn found(&mut self, page: &mut PageScan, at: usize) {
        self.found.push(page.place(at));
        if self.is_single {
            page.skip(at, &mut self.implied);
        }
    }
}
