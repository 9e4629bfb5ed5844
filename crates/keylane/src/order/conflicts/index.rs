//! Which unfinished tasks with descriptors of one type a new one has to wait for.
//!
//! A plain state machine, without locks and without user code: it says which pairs somebody has to
//! ask about (those in no class as pages, see `bit_sliced.rs`), is told the answers, and says who is released
//! when a task has ended. `README.md` beside this file has the protocol and the proof.

use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::super::one_or_many::OneOrMany;
use super::Descriptor;
use super::bit_sliced::{BitSlicedIndex, PageScan};

#[cfg(test)]
mod tests;

/// So many groups are looked up under one lock, to be asked about outside of it. A test wants more than
/// one round.
const SCAN_BATCH: usize = if cfg!(test) { 2 } else { 64 };

/// The unfinished tasks of one type of descriptors.
#[derive(Debug)]
pub(crate) struct ConflictIndex<T> {
    /// Each class with unfinished tasks, and each unfinished task without a class, under the place of
    /// the task that opened it. Never an empty one.
    groups: BTreeMap<u64, ConflictGroup<T>>,
    /// The open group of each class.
    classes: HashMap<u64, Class, RandomState>,
    /// The unfinished tasks without a class, once more.
    singles: BitSlicedIndex,
    /// The places of tasks that are seated and about which not all has been asked. What the opener of a
    /// group has not found out yet, whoever comes meanwhile has to ask itself.
    asking: Vec<u64>,
    /// The last place from which there was something to ask. What was opened before it takes nobody in
    /// any more, for whoever asks might come to wait for it.
    boundary: u64,
}

#[derive(Clone, Copy, Debug)]
struct Class {
    group: u64,
    /// All bits that were in a summary of one of its tasks.
    summary: u64,
}

/// Tasks that are alike: those of a class, or a single one without a class.
#[derive(Debug)]
struct ConflictGroup<T> {
    class: Option<u64>,
    /// Whether its tasks are compatible with each other, once that was asked.
    together: Option<bool>,
    /// The other groups that it conflicts with, but for those whose opener still asks. Some may be gone.
    /// Of a task without a class nobody needs to know: nobody joins it.
    rivals: Vec<u64>,
    /// Its unfinished tasks, the oldest first. Never empty, and none of them is.
    wait_groups: VecDeque<WaitGroup<T>>,
}

/// Tasks of a group that one can wait for at once, together with all in earlier wait groups.
#[derive(Debug)]
struct WaitGroup<T> {
    /// The place of the first that was in it.
    opened: u64,
    /// That one, unless it has ended.
    opener: Option<T>,
    /// Somebody waits for it, so nobody joins it any more.
    sealed: bool,
    /// The others that have not ended, with their places, which rise.
    joined: VecDeque<(u64, T)>,
    /// Who waits until this wait group and those before it are gone.
    waiters: OneOrMany<T>,
}

/// Where a task stands in its conflict index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IndexPos {
    /// Its place among all tasks that have a descriptor.
    pub(crate) place: u64,
    group: u64,
    wait_group: u64,
}

/// A task that has just been seated.
pub(crate) struct Inserted<T> {
    pub(crate) task: T,
    /// So many releases it has to wait for, as far as that is known.
    pub(crate) waits: usize,
    /// What must be asked before the rest is known.
    pub(crate) scan: Option<ConflictScan>,
}

/// What a task that is seated has still to ask.
#[derive(Debug)]
pub(crate) struct ConflictScan {
    pos: IndexPos,
    /// It is in no class.
    is_single: bool,
    summary: u64,
    /// Groups to ask about, the newest last.
    groups: Vec<u64>,
    /// Before this place, all tasks without a class that have something in common with it.
    singles: u64,
    /// Groups that were found to be in conflict and are not waited for yet.
    found: Vec<u64>,
    /// All groups that were found to be in conflict.
    rivals: Vec<u64>,
    /// Whether two of its own class conflict, if that was asked.
    own: Option<bool>,
    /// Single tasks that those wait for that this one waits for: it need not ask about them.
    implied: BinaryHeap<u64>,
}

/// Whom to ask about next, outside of all locks.
pub(crate) enum ScanBatch<T> {
    Groups(Vec<Candidate<T>>),
    Singles(Vec<PageScan>),
    /// All has been asked.
    Over,
}

/// Somebody to be asked about, in the name of a group.
pub(crate) struct Candidate<T> {
    group: u64,
    /// One of the group.
    pub(crate) task: T,
}

impl<T> Default for ConflictIndex<T> {
    fn default() -> Self {
        ConflictIndex {
            groups: BTreeMap::new(),
            classes: HashMap::default(),
            singles: BitSlicedIndex::default(),
            asking: Vec::new(),
            boundary: 0,
        }
    }
}

impl<T: Clone> ConflictIndex<T> {
    /// Gives a task its seat. `place` is above all others before it; `make` makes the task.
    pub(crate) fn insert(
        &mut self,
        place: u64,
        descriptor: &Descriptor,
        make: impl FnOnce(IndexPos) -> T,
    ) -> Inserted<T> {
        let (class, summary) = (descriptor.class(), descriptor.summary());
        let open = class.and_then(|class| self.classes.get(&class)).map(|class| class.group);
        let (groups, singles) = match open {
            Some(group) if !self.asking.contains(&group) => (self.unknown_to(group), 0),
            _ => (self.sharing(summary, open), if self.singles.is_empty() { 0 } else { place }),
        };
        let asks = !groups.is_empty() || singles > 0;
        if asks {
            self.boundary = place;
            self.asking.push(place);
        }
        let id = open.unwrap_or(place);
        let wait_group = open.and_then(|id| self.joinable(id)).unwrap_or(place);
        let pos = IndexPos { place, group: id, wait_group };
        let task = make(pos);
        let waits = if open.is_some() { self.wait_for_conflicts(id, &task) } else { 0 };
        self.join_group(pos, descriptor, task.clone());
        let scan = asks.then(|| ConflictScan {
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

    /// The groups of classes that have something in common with a summary, and this one.
    fn sharing(&self, summary: u64, own: Option<u64>) -> Vec<u64> {
        let classes = self.classes.values();
        let sharing = |class: &&Class| class.summary & summary != 0 || Some(class.group) == own;
        let mut groups: Vec<u64> = classes.filter(sharing).map(|class| class.group).collect();
        groups.sort_unstable();
        groups
    }

    /// The groups of which nobody knows yet whether this one conflicts with them.
    fn unknown_to(&self, id: u64) -> Vec<u64> {
        let group = &self.groups[&id];
        let opened_by_asking = self.asking.iter().filter(|place| self.groups.contains_key(place));
        let others = opened_by_asking.filter(|place| !group.rivals.contains(place)).copied();
        others.chain(group.together.is_none().then_some(id)).collect()
    }

    /// The wait group of a group that a new task joins, if it is not to open one.
    fn joinable(&self, id: u64) -> Option<u64> {
        let group = &self.groups[&id];
        let last = group.wait_groups.back()?;
        let joins = !last.sealed && last.opened >= self.boundary && group.together == Some(true);
        joins.then_some(last.opened)
    }

    /// Has a task wait for what its group is known to conflict with.
    fn wait_for_conflicts(&mut self, id: u64, task: &T) -> usize {
        let group = self.groups.get_mut(&id).expect("the caller has looked");
        let alone = group.together == Some(false) && group.keep_waiting(u64::MAX, task);
        if group.rivals.is_empty() {
            return usize::from(alone);
        }
        let mut rivals = std::mem::take(&mut group.rivals);
        rivals.retain(|rival| self.wait_for(*rival, u64::MAX, task));
        let waits = rivals.len();
        self.groups.get_mut(&id).expect("nobody has left it").rivals = rivals;
        waits + usize::from(alone)
    }

    /// Has a task wait for those of a group that came before a place, if there are any.
    fn wait_for(&mut self, group: u64, before: u64, task: &T) -> bool {
        self.groups.get_mut(&group).is_some_and(|group| group.keep_waiting(before, task))
    }

    fn join_group(&mut self, pos: IndexPos, descriptor: &Descriptor, task: T) {
        let class = descriptor.class();
        let group = self.groups.entry(pos.group).or_insert_with(|| ConflictGroup {
            class,
            together: None,
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

    /// Has the task of an inquiry wait for those that were found in conflict since the last time, and
    /// says for how many, and about whom to ask next.
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
        let asks = self.next_asks(scan);
        if !asks.is_empty() {
            return (waits, ScanBatch::Groups(asks));
        }
        if scan.singles > 0 {
            let scans = self.singles.scan(&mut scan.singles, scan.summary);
            return (waits, ScanBatch::Singles(scans));
        }
        self.finish_scan(scan);
        (waits, ScanBatch::Over)
    }

    /// The next groups to ask about, the newest first.
    fn next_asks(&self, scan: &mut ConflictScan) -> Vec<Candidate<T>> {
        let mut asks = Vec::new();
        while asks.len() < SCAN_BATCH
            && let Some(id) = scan.groups.pop()
        {
            asks.extend(self.groups.get(&id).and_then(|group| group.ask(id, scan.pos)));
        }
        asks
    }

    /// All has been asked. What concerns classes is remembered for those who will join them.
    fn finish_scan(&mut self, scan: &ConflictScan) {
        let IndexPos { place, group: id, .. } = scan.pos;
        self.asking.retain(|asking| *asking != place);
        if let Some(own) = scan.own
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.together = Some(!own);
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

    /// A task has ended. Returns who has one release less to wait for, and the task itself, to be
    /// dropped outside of locks.
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

    /// Who waits, directly, for the task in this seat to end.
    pub(crate) fn behind(&self, pos: IndexPos) -> Vec<T> {
        let Some(group) = self.groups.get(&pos.group) else { return Vec::new() };
        let wait_groups =
            group.wait_groups.iter().filter(|wait_group| wait_group.opened >= pos.wait_group);
        wait_groups.flat_map(|wait_group| wait_group.waiters.iter()).cloned().collect()
    }

    /// All that has not ended, the oldest of each group first.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &T> {
        let wait_groups = self.groups.values().flat_map(|group| &group.wait_groups);
        wait_groups.flat_map(|WaitGroup { opener, joined, .. }| {
            opener.iter().chain(joined.iter().map(|(_, task)| task))
        })
    }

    /// Whether such a task waits for others.
    pub(crate) fn is_behind(&self, is_it: impl Fn(&T) -> bool) -> bool {
        let mut wait_groups = self.groups.values().flat_map(|group| &group.wait_groups);
        wait_groups.any(|wait_group| wait_group.waiters.iter().any(&is_it))
    }

    /// Whether somebody who came before this place still asks.
    pub(crate) fn asks_before(&self, place: u64) -> bool {
        self.asking.iter().any(|asking| *asking < place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.groups.is_empty() && self.asking.is_empty()
    }

    /// All that has not ended, the oldest of each group first.
    pub(crate) fn into_tasks(self) -> impl Iterator<Item = T> {
        let wait_groups = self.groups.into_values().flat_map(|group| group.wait_groups);
        wait_groups.flat_map(|WaitGroup { opener, joined, .. }| {
            opener.into_iter().chain(joined.into_iter().map(|(_, task)| task))
        })
    }
}

impl<T: Clone> ConflictGroup<T> {
    /// Has a task wait for those that came before a place, if there are any.
    fn keep_waiting(&mut self, before: u64, task: &T) -> bool {
        let mut wait_groups = self.wait_groups.iter_mut().rev();
        let Some(wait_group) = wait_groups.find(|wait_group| wait_group.opened < before) else {
            return false;
        };
        wait_group.sealed = true;
        wait_group.waiters.push(task.clone());
        true
    }

    /// One to be asked in the name of all, if there is one but who asks.
    fn ask(&self, id: u64, asking: IndexPos) -> Option<Candidate<T>> {
        let oldest = self.wait_groups.front()?;
        let (place, task) = match &oldest.opener {
            Some(opener) => (oldest.opened, opener),
            None => oldest.joined.front().map(|(place, task)| (*place, task))?,
        };
        let other = place != asking.place;
        other.then(|| Candidate { group: id, task: task.clone() })
    }

    /// A wait group that is gone passes its waiters on to the one before, for which they wait as well; the
    /// first one releases them.
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
        // That one takes nobody in any more: it was closed when the one that is gone was opened.
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
    /// What somebody has found out.
    pub(crate) fn answer<T>(&mut self, ask: &Candidate<T>, conflict: bool) {
        if ask.group == self.pos.group {
            self.own = Some(conflict);
        }
        if conflict {
            self.found.push(ask.group);
        }
    }

    /// Leaves out those of whom the answer is of no use, for the asking task comes after them anyway.
    pub(crate) fn pass_implied(&mut self, look: &mut PageScan) {
        if self.is_single {
            look.pass_implied(&mut self.implied);
        }
    }

    /// This one on a page conflicts.
    pub(crate) fn found(&mut self, look: &mut PageScan, at: usize) {
        self.found.push(look.place(at));
        if self.is_single {
            look.pass(at, &mut self.implied);
        }
    }
}
