//! Which unfinished tasks with descriptors of one type a new one has to wait for.
//!
//! A plain state machine, without locks and without user code: it says which pairs somebody has to
//! ask about (those in no class as pages, see `roster.rs`), is told the answers, and says who is released
//! when a task has ended. `README.md` beside this file has the protocol and the proof.

use std::collections::{BTreeMap, BinaryHeap, HashMap, VecDeque};

use foldhash::fast::RandomState;

use super::Descriptor;
use super::few::Few;
use super::roster::{Look, Roster};

#[cfg(test)]
mod tests;

/// So many groups are looked up under one lock, to be asked about outside of it. A test wants more than
/// one round.
const ROUND: usize = if cfg!(test) { 2 } else { 64 };

/// The unfinished tasks of one type of descriptors.
#[derive(Debug)]
pub(crate) struct Circle<T> {
    /// Each class with unfinished tasks, and each unfinished task without a class, under the place of
    /// the task that opened it. Never an empty one.
    groups: BTreeMap<u64, Group<T>>,
    /// The open group of each class.
    classes: HashMap<u64, Class, RandomState>,
    /// The unfinished tasks without a class, once more.
    singles: Roster,
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
struct Group<T> {
    class: Option<u64>,
    /// Whether its tasks are compatible with each other, once that was asked.
    together: Option<bool>,
    /// The other groups that it conflicts with, but for those whose opener still asks. Some may be gone.
    /// Of a task without a class nobody needs to know: nobody joins it.
    rivals: Vec<u64>,
    /// Its unfinished tasks, the oldest first. Never empty, and none of them is.
    cohorts: VecDeque<Cohort<T>>,
}

/// Tasks of a group that one can wait for at once, together with all in earlier cohorts.
#[derive(Debug)]
struct Cohort<T> {
    /// The place of the first that was in it.
    opened: u64,
    /// That one, unless it has ended.
    opener: Option<T>,
    /// Somebody waits for it, so nobody joins it any more.
    sealed: bool,
    /// The others that have not ended, with their places, which rise.
    joined: VecDeque<(u64, T)>,
    /// Who waits until this cohort and those before it are gone.
    waiters: Few<T>,
}

/// Where a task stands in its circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seat {
    /// Its place among all tasks that have a descriptor.
    pub(crate) place: u64,
    group: u64,
    cohort: u64,
}

/// A task that has just been seated.
pub(crate) struct Seated<T> {
    pub(crate) task: T,
    /// So many releases it has to wait for, as far as that is known.
    pub(crate) waits: usize,
    /// What must be asked before the rest is known.
    pub(crate) inquiry: Option<Inquiry>,
}

/// What a task that is seated has still to ask.
#[derive(Debug)]
pub(crate) struct Inquiry {
    seat: Seat,
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
pub(crate) enum Round<T> {
    Groups(Vec<Ask<T>>),
    Singles(Vec<Look>),
    /// All has been asked.
    Over,
}

/// Somebody to be asked about, in the name of a group.
pub(crate) struct Ask<T> {
    group: u64,
    /// One of the group.
    pub(crate) task: T,
}

impl<T> Default for Circle<T> {
    fn default() -> Self {
        Circle {
            groups: BTreeMap::new(),
            classes: HashMap::default(),
            singles: Roster::default(),
            asking: Vec::new(),
            boundary: 0,
        }
    }
}

impl<T: Clone> Circle<T> {
    /// Gives a task its seat. `place` is above all others before it; `make` makes the task.
    pub(crate) fn seat(
        &mut self,
        place: u64,
        descriptor: &Descriptor,
        make: impl FnOnce(Seat) -> T,
    ) -> Seated<T> {
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
        let cohort = open.and_then(|id| self.joinable(id)).unwrap_or(place);
        let seat = Seat { place, group: id, cohort };
        let task = make(seat);
        let waits = if open.is_some() { self.wait_for_rivals(id, &task) } else { 0 };
        self.join(seat, descriptor, task.clone());
        let inquiry = asks.then(|| Inquiry {
            seat,
            is_single: class.is_none(),
            summary,
            groups,
            singles,
            found: Vec::new(),
            rivals: Vec::new(),
            own: None,
            implied: BinaryHeap::new(),
        });
        Seated { task, waits, inquiry }
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

    /// The cohort of a group that a new task joins, if it is not to open one.
    fn joinable(&self, id: u64) -> Option<u64> {
        let group = &self.groups[&id];
        let last = group.cohorts.back()?;
        let joins = !last.sealed && last.opened >= self.boundary && group.together == Some(true);
        joins.then_some(last.opened)
    }

    /// Has a task wait for what its group is known to conflict with.
    fn wait_for_rivals(&mut self, id: u64, task: &T) -> usize {
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

    fn join(&mut self, seat: Seat, descriptor: &Descriptor, task: T) {
        let class = descriptor.class();
        let group = self.groups.entry(seat.group).or_insert_with(|| Group {
            class,
            together: None,
            rivals: Vec::new(),
            cohorts: VecDeque::with_capacity(1),
        });
        match class {
            Some(class) => {
                let none = Class { group: seat.group, summary: 0 };
                self.classes.entry(class).or_insert(none).summary |= descriptor.summary();
            }
            None => self.singles.push(seat.place, descriptor),
        }
        match group.cohorts.back_mut().filter(|_| seat.cohort != seat.place) {
            Some(last) => last.joined.push_back((seat.place, task)),
            None => group.cohorts.push_back(Cohort {
                opened: seat.place,
                opener: Some(task),
                sealed: false,
                joined: VecDeque::new(),
                waiters: Few::new(),
            }),
        }
    }

    /// Has the task of an inquiry wait for those that were found in conflict since the last time, and
    /// says for how many, and about whom to ask next.
    pub(crate) fn next_round(&mut self, inquiry: &mut Inquiry, task: &T) -> (usize, Round<T>) {
        let mut waits = 0;
        for &group in &inquiry.found {
            waits += usize::from(self.wait_for(group, inquiry.seat.place, task));
        }
        inquiry.rivals.append(&mut inquiry.found);
        let asks = self.next_asks(inquiry);
        if !asks.is_empty() {
            return (waits, Round::Groups(asks));
        }
        if inquiry.singles > 0 {
            let looks = self.singles.look(&mut inquiry.singles, inquiry.summary);
            return (waits, Round::Singles(looks));
        }
        self.conclude(inquiry);
        (waits, Round::Over)
    }

    /// The next groups to ask about, the newest first.
    fn next_asks(&self, inquiry: &mut Inquiry) -> Vec<Ask<T>> {
        let mut asks = Vec::new();
        while asks.len() < ROUND
            && let Some(id) = inquiry.groups.pop()
        {
            asks.extend(self.groups.get(&id).and_then(|group| group.ask(id, inquiry.seat)));
        }
        asks
    }

    /// All has been asked. What concerns classes is remembered for those who will join them.
    fn conclude(&mut self, inquiry: &Inquiry) {
        let Seat { place, group: id, .. } = inquiry.seat;
        self.asking.retain(|asking| *asking != place);
        if let Some(own) = inquiry.own
            && let Some(group) = self.groups.get_mut(&id)
        {
            group.together = Some(!own);
        }
        if inquiry.is_single {
            self.singles.set_behind(place, &inquiry.rivals);
        }
        if id != place {
            return;
        }
        for rival in &inquiry.rivals {
            if let Some(rival) = self.groups.get_mut(rival).filter(|rival| rival.class.is_some()) {
                rival.rivals.push(id);
            }
        }
        if let Some(group) = self.groups.get_mut(&id).filter(|group| group.class.is_some()) {
            group.rivals.extend(&inquiry.rivals);
        }
    }

    /// A task has ended. Returns who has one release less to wait for, and the task itself, to be
    /// dropped outside of locks.
    pub(crate) fn end(&mut self, seat: Seat) -> (Few<T>, Option<T>) {
        let Some(group) = self.groups.get_mut(&seat.group) else { return (Few::new(), None) };
        let (released, ended) = group.end(seat);
        if group.cohorts.is_empty() {
            match group.class {
                Some(class) => _ = self.classes.remove(&class),
                None => self.singles.end(seat.place),
            }
            self.groups.remove(&seat.group);
        }
        (released, ended)
    }

    /// Who waits, directly, for the task in this seat to end.
    pub(crate) fn behind(&self, seat: Seat) -> Vec<T> {
        let Some(group) = self.groups.get(&seat.group) else { return Vec::new() };
        let cohorts = group.cohorts.iter().filter(|cohort| cohort.opened >= seat.cohort);
        cohorts.flat_map(|cohort| cohort.waiters.iter()).cloned().collect()
    }

    /// All that has not ended, the oldest of each group first.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = &T> {
        let cohorts = self.groups.values().flat_map(|group| &group.cohorts);
        cohorts.flat_map(|Cohort { opener, joined, .. }| {
            opener.iter().chain(joined.iter().map(|(_, task)| task))
        })
    }

    /// Whether such a task waits for others.
    pub(crate) fn is_behind(&self, is_it: impl Fn(&T) -> bool) -> bool {
        let mut cohorts = self.groups.values().flat_map(|group| &group.cohorts);
        cohorts.any(|cohort| cohort.waiters.iter().any(&is_it))
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
        let cohorts = self.groups.into_values().flat_map(|group| group.cohorts);
        cohorts.flat_map(|Cohort { opener, joined, .. }| {
            opener.into_iter().chain(joined.into_iter().map(|(_, task)| task))
        })
    }
}

impl<T: Clone> Group<T> {
    /// Has a task wait for those that came before a place, if there are any.
    fn keep_waiting(&mut self, before: u64, task: &T) -> bool {
        let mut cohorts = self.cohorts.iter_mut().rev();
        let Some(cohort) = cohorts.find(|cohort| cohort.opened < before) else { return false };
        cohort.sealed = true;
        cohort.waiters.push(task.clone());
        true
    }

    /// One to be asked in the name of all, if there is one but who asks.
    fn ask(&self, id: u64, asking: Seat) -> Option<Ask<T>> {
        let oldest = self.cohorts.front()?;
        let (place, task) = match &oldest.opener {
            Some(opener) => (oldest.opened, opener),
            None => oldest.joined.front().map(|(place, task)| (*place, task))?,
        };
        let other = place != asking.place;
        other.then(|| Ask { group: id, task: task.clone() })
    }

    /// A cohort that is gone passes its waiters on to the one before, for which they wait as well; the
    /// first one releases them.
    fn end(&mut self, seat: Seat) -> (Few<T>, Option<T>) {
        let cohorts = &mut self.cohorts;
        let Ok(index) = cohorts.binary_search_by_key(&seat.cohort, |cohort| cohort.opened) else {
            return (Few::new(), None);
        };
        let ended = cohorts[index].take(seat.place);
        if !cohorts[index].is_empty() {
            return (Few::new(), ended);
        }
        let waiters = cohorts.remove(index).map_or(Few::new(), |cohort| cohort.waiters);
        if index == 0 {
            return (waiters, ended);
        }
        // That one takes nobody in any more: it was closed when the one that is gone was opened.
        cohorts[index - 1].waiters.append(waiters);
        (Few::new(), ended)
    }
}

impl<T> Cohort<T> {
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

impl Inquiry {
    /// What somebody has found out.
    pub(crate) fn answer<T>(&mut self, ask: &Ask<T>, conflict: bool) {
        if ask.group == self.seat.group {
            self.own = Some(conflict);
        }
        if conflict {
            self.found.push(ask.group);
        }
    }

    /// Leaves out those of whom the answer is of no use, for the asking task comes after them anyway.
    pub(crate) fn pass_implied(&mut self, look: &mut Look) {
        if self.is_single {
            look.pass_implied(&mut self.implied);
        }
    }

    /// This one on a page conflicts.
    pub(crate) fn found(&mut self, look: &mut Look, at: usize) {
        self.found.push(look.place(at));
        if self.is_single {
            look.pass(at, &mut self.implied);
        }
    }
}
