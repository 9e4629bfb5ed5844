//! A line of waiters: first come, first served, and whoever gives up leaves from anywhere in it.
//!
//! It lies under the lock of whoever owns it. Every step but [`Line::sweep`] takes a time that does
//! not depend on how many wait.

use slab::Slab;

use super::wait::{Caller, Calls};

/// Emptied places that a line keeps when nobody waits. Beyond them the memory of a rush is given
/// back.
const KEPT_PLACES: usize = 64;

/// The waiters, linked in the order in which they came. Each has a `P` at its place.
#[derive(Debug)]
pub(super) struct Line<P> {
    /// A waiter keeps its place until it has learnt its fate, or has given up.
    places: Slab<Place<P>>,
    /// The one that waits longest.
    head: Option<usize>,
    /// The one that came last.
    tail: Option<usize>,
    /// How many wait, which are those that are linked.
    waiting: usize,
}

#[derive(Debug)]
struct Place<P> {
    /// What the waiter brings, or what it is given.
    load: P,
    /// Decided once, by who takes the place out of the line.
    fate: Fate,
    /// Whom to tell; gone once the fate is decided. A task may change it while it waits.
    caller: Option<Caller>,
    /// Its neighbours in the line; meaningless once its fate is decided.
    before: Option<usize>,
    behind: Option<usize>,
}

/// What becomes of a waiter. Only `Waiting` places are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// In the line. Exits: the two below, or the waiter gives up.
    Waiting,
    /// It has got what it waited for.
    Granted,
    /// It will never get it.
    Refused,
}

impl<P> Default for Line<P> {
    fn default() -> Self {
        Line { places: Slab::new(), head: None, tail: None, waiting: 0 }
    }
}

impl<P> Line<P> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Whether nobody has a place, not even one whose fate is decided.
    pub(super) fn is_deserted(&self) -> bool {
        self.places.is_empty()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// A new place at the end of the line.
    pub(super) fn stand(&mut self, load: P, caller: Caller) -> usize {
        let before = self.tail;
        let caller = Some(caller);
        let place =
            self.places.insert(Place { load, fate: Fate::Waiting, caller, before, behind: None });
        match before {
            None => self.head = Some(place),
            Some(before) => self.places[before].behind = Some(place),
        }
        self.tail = Some(place);
        self.waiting += 1;
        place
    }

    /// Those who wait, in their order: what each brings, and whom to tell.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&P, Option<&Caller>)> {
        let next = |place: &usize| self.places[*place].behind;
        std::iter::successors(self.head, next).map(|place| {
            let Place { load, caller, .. } = &self.places[place];
            (load, caller.as_ref())
        })
    }

    /// What the head of the line has at its place.
    pub(super) fn head(&mut self) -> Option<&mut P> {
        Some(&mut self.places[self.head?].load)
    }

    /// Decides the fate of the head of the line, which leaves the line with that.
    pub(super) fn settle_head(&mut self, fate: Fate, calls: &mut Calls) {
        if let Some(head) = self.head {
            self.settle(head, fate, calls);
        }
    }

    /// Refuses all those whose load says so.
    pub(super) fn sweep(&mut self, refuse: impl Fn(&P) -> bool, calls: &mut Calls) {
        let mut next = self.head;
        while let Some(place) = next {
            next = self.places[place].behind;
            if refuse(&self.places[place].load) {
                self.settle(place, Fate::Refused, calls);
            }
        }
    }

    pub(super) fn fate(&self, place: usize) -> Fate {
        self.places[place].fate
    }

    /// Changes whom to tell, and returns who was to be told so far, to be dropped without the lock.
    pub(super) fn change_caller(&mut self, place: usize, caller: Caller) -> Option<Caller> {
        self.places[place].caller.replace(caller)
    }

    /// Takes the place away, from the line too if its fate is open. Returns its fate, its load, and
    /// whom nobody needs to tell any more, to be dropped without the lock.
    pub(super) fn leave(&mut self, place: usize) -> (Fate, P, Option<Caller>) {
        if self.places[place].fate == Fate::Waiting {
            self.unlink(place);
        }
        let Place { load, fate, caller, .. } = self.places.remove(place);
        if self.places.is_empty() && self.places.capacity() > KEPT_PLACES {
            self.places = Slab::new();
        }
        (fate, load, caller)
    }

    fn settle(&mut self, place: usize, fate: Fate, calls: &mut Calls) {
        self.unlink(place);
        let place = &mut self.places[place];
        place.fate = fate;
        if let Some(caller) = place.caller.take() {
            calls.add(caller);
        }
    }

    fn unlink(&mut self, place: usize) {
        let Place { before, behind, .. } = self.places[place];
        match before {
            None => self.head = behind,
            Some(before) => self.places[before].behind = behind,
        }
        match behind {
            None => self.tail = before,
            Some(behind) => self.places[behind].before = before,
        }
        self.waiting -= 1;
    }
}
