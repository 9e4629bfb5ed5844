//! The unfinished tasks that have a descriptor: one circle for each type of descriptors.

use std::any::TypeId;
use std::collections::HashMap;

use foldhash::fast::RandomState;

use super::Descriptor;
use super::circle::{Circle, Inquiry, Round, Seat, Seated};
use super::few::Few;

/// What a task with a descriptor has beyond other rollups.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) descriptor: Descriptor,
    /// Where it stands in its circle. Never changed.
    pub(crate) seat: Seat,
}

/// All circles. Kept under one lock, which is innermost.
#[derive(Debug)]
pub(crate) struct Registry<T> {
    /// The last place given out: a clock like those of the inboxes, which a task is seated after, too. It
    /// rises with the order of submission, for a task is seated while its inboxes are locked.
    last: u64,
    /// Those that are not empty.
    circles: HashMap<TypeId, Circle<T>, RandomState>,
}

impl<T> Default for Registry<T> {
    fn default() -> Self {
        Registry { last: 0, circles: HashMap::default() }
    }
}

impl<T: Clone> Registry<T> {
    /// Gives a task its seat, at a place after the one that its inboxes have reached.
    pub(crate) fn seat(
        &mut self,
        after: u64,
        descriptor: &Descriptor,
        make: impl FnOnce(Seat) -> T,
    ) -> Seated<T> {
        self.last = self.last.max(after) + 1;
        let circle = self.circles.entry(descriptor.kind()).or_default();
        circle.seat(self.last, descriptor, make)
    }

    pub(crate) fn next_round(
        &mut self,
        kind: TypeId,
        inquiry: &mut Inquiry,
        task: &T,
    ) -> (usize, Round<T>) {
        match self.circles.get_mut(&kind) {
            Some(circle) => circle.next_round(inquiry, task),
            // The pool has been stopped: nobody waits for anybody any more.
            None => (0, Round::Over),
        }
    }

    pub(crate) fn end(&mut self, member: &Member) -> (Few<T>, Option<T>) {
        let kind = member.descriptor.kind();
        let Some(circle) = self.circles.get_mut(&kind) else { return (Few::new(), None) };
        let ended = circle.end(member.seat);
        if circle.is_empty() {
            self.circles.remove(&kind);
        }
        ended
    }

    /// Who waits, directly, for this one.
    pub(crate) fn behind(&self, member: &Member) -> Vec<T> {
        self.circles
            .get(&member.descriptor.kind())
            .map_or(Vec::new(), |circle| circle.behind(member.seat))
    }

    /// All that has not ended.
    pub(crate) fn tasks(&self) -> Vec<T> {
        self.circles.values().flat_map(Circle::tasks).cloned().collect()
    }

    /// Whether a task waits for another of its circle.
    pub(crate) fn is_behind(&self, member: &Member, is_it: impl Fn(&T) -> bool) -> bool {
        let circle = self.circles.get(&member.descriptor.kind());
        circle.is_some_and(|circle| circle.is_behind(is_it))
    }

    /// The place before which everything has been submitted by now.
    pub(crate) fn now(&self) -> u64 {
        self.last + 1
    }

    /// Whether somebody who came before this place still asks about others.
    pub(crate) fn asks_before(&self, place: u64) -> bool {
        self.circles.values().any(|circle| circle.asks_before(place))
    }

    /// Forgets all, and returns what has not ended.
    pub(crate) fn clear(&mut self) -> Vec<T> {
        self.circles.drain().flat_map(|(_, circle)| circle.into_tasks()).collect()
    }
}
