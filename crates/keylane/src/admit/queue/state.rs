//! What lies under the two locks of a queue: a plain state machine without locks, clocks or user code.
//!
//! The items stand in two parts, one behind the other: pops take from the *front*, pushes append to
//! the *back*, each under a lock of its own, and who finds the front empty exchanges the two. So a
//! producer and a consumer seldom meet.
//!
//! # Invariants
//! With `items` for those of both parts:
//! 1. `items + handed <= capacity`, except after a shrink, until enough has been popped.
//! 2. `front.items <= ahead`; and equal while somebody waits to push.
//! 3. While somebody waits to push, `pushers_wait` is set, and there is no room:
//!    `items + handed >= capacity`.
//! 4. While somebody waits to pop there are no items.
//!
//! So a newcomer that finds room finds nobody waiting to push, and one that finds an item finds
//! nobody waiting to pop: nobody can barge. [`Whole::settle`] restores 2 to 4 after every step that
//! has both locks. The steps that have one are [`Front::pop`] and those of [`Back`]; each says why
//! they keep them.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

use super::super::line::{Fate, Line};
use super::super::wait::{Caller, Calls};

/// Where items are popped.
#[derive(Debug)]
pub(super) struct Front<T> {
    /// The oldest items, oldest first.
    items: VecDeque<T>,
    /// The numbers of those items that came back from a cancelled pop, ascending. They are the first
    /// of `items`, as many as there are numbers.
    returned: VecDeque<u64>,
    /// Somebody may wait to push, so that room is to be given to it at once. Changed with both locks.
    pushers_wait: bool,
}

/// Where items are pushed, and all that is not needed to pop one.
#[derive(Debug)]
pub(super) struct Back<T> {
    /// What is behind the items of the front, oldest first.
    items: VecDeque<T>,
    /// How many items there are at the most in the front: as many as there were when somebody last
    /// had both locks.
    ahead: usize,
    /// The bound. At least one.
    capacity: usize,
    /// Items that have been handed to waiting pops which have not collected them yet. Each still
    /// takes its part of the capacity, so that there is room for it if the pop is cancelled.
    handed: usize,
    /// The handed items are numbered in their order. This is the next one's number.
    next_number: u64,
    /// Who waits to push, and what it still has to push.
    pushers: Line<Parcel<T>>,
    /// Who waits to pop, and what it was handed.
    poppers: Line<Option<Handed<T>>>,
    is_closed: bool,
}

/// Both parts, by who has both locks.
pub(super) struct Whole<'a, T> {
    pub(super) front: &'a mut Front<T>,
    pub(super) back: &'a mut Back<T>,
}

/// What a push brings.
#[derive(Debug)]
pub(super) enum Parcel<T> {
    One(Option<T>),
    Many(VecDeque<T>),
}

/// An item at the place of a pop that waited for it.
#[derive(Debug)]
struct Handed<T> {
    number: u64,
    item: T,
}

/// Why nothing was pushed or popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum No {
    /// There is no room, or no item.
    NotNow,
    /// The queue is closed, and there are no items either.
    Closed,
}

impl<T> Parcel<T> {
    pub(super) fn next(&mut self) -> Option<T> {
        match self {
            Parcel::One(item) => item.take(),
            Parcel::Many(items) => items.pop_front(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Parcel::One(item) => item.is_none(),
            Parcel::Many(items) => items.is_empty(),
        }
    }
}

impl<T> Front<T> {
    pub(super) fn new() -> Self {
        Front { items: VecDeque::new(), returned: VecDeque::new(), pushers_wait: false }
    }

    /// Pops the oldest item, unless somebody waits to push or the front is empty: then it takes both
    /// locks. `ahead` is now too large, which 2 allows while nobody waits to push.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<T> {
        if self.pushers_wait { None } else { self.take_first() }
    }

    #[inline]
    fn take_first(&mut self) -> Option<T> {
        if !self.returned.is_empty() {
            self.returned.pop_front();
        }
        self.items.pop_front()
    }
}

impl<T> Back<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Back {
            items: VecDeque::new(),
            ahead: 0,
            capacity,
            handed: 0,
            next_number: 0,
            pushers: Line::default(),
            poppers: Line::default(),
            is_closed: false,
        }
    }

    /// Pushes if there is room and nobody waits to pop, or gives the item back. There may be more
    /// room than is known here: `ahead` is exact only with both locks.
    ///
    /// Room by `ahead` is room, so 1 and 3 hold.
    #[inline]
    pub(super) fn push(&mut self, item: T) -> Result<(), T> {
        if self.is_closed || !self.has_room() || !self.poppers.is_empty() {
            return Err(item);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Whether a push still waits.
    pub(super) fn push_waits(&self, place: usize) -> bool {
        self.pushers.fate(place) == Fate::Waiting
    }

    /// Whether a pop still waits.
    pub(super) fn pop_waits(&self, place: usize) -> bool {
        self.poppers.fate(place) == Fate::Waiting
    }

    pub(super) fn change_pusher(&mut self, place: usize, caller: Caller) -> Option<Caller> {
        self.pushers.change_caller(place, caller)
    }

    pub(super) fn change_popper(&mut self, place: usize, caller: Caller) -> Option<Caller> {
        self.poppers.change_caller(place, caller)
    }

    /// Ends a push's stay, with what it did not push. One that leaves makes no room, and 3 does not
    /// ask that `pushers_wait` be unset.
    pub(super) fn leave_pushing(&mut self, place: usize) -> (Fate, Parcel<T>, Option<Caller>) {
        self.pushers.leave(place)
    }

    /// Ends a pop's stay, with what it was handed: that is popped now, and makes room. If somebody
    /// waits to push, `ahead` is exact. If somebody waits to pop, the front is empty, so the oldest
    /// item is here.
    pub(super) fn leave_popping(
        &mut self,
        place: usize,
        calls: &mut Calls,
    ) -> (Fate, Option<T>, Option<Caller>) {
        let (fate, handed, caller) = self.poppers.leave(place);
        let item = handed.map(|Handed { item, .. }| {
            self.handed -= 1;
            self.place_waiting(calls);
            self.hand_out(calls);
            item
        });
        (fate, item, caller)
    }

    /// Places the items of those who wait to push, first come, first served, while there is room.
    fn place_waiting(&mut self, calls: &mut Calls) {
        while self.has_room()
            && let Some(parcel) = self.pushers.head()
        {
            self.items.extend(parcel.next());
            if parcel.is_empty() {
                self.pushers.settle_head(Fate::Granted, calls);
            }
        }
    }

    /// Hands items of this part to those who wait to pop, the oldest to the one that has waited
    /// longest. The front must be empty if there are any.
    fn hand_out(&mut self, calls: &mut Calls) {
        while !self.poppers.is_empty()
            && let Some(item) = self.items.pop_front()
        {
            let number = self.next_number;
            self.next_number += 1;
            self.hand(Handed { number, item }, calls);
        }
    }

    fn hand(&mut self, handed: Handed<T>, calls: &mut Calls) {
        let head = self.poppers.head().expect("somebody waits to pop");
        *head = Some(handed);
        self.handed += 1;
        self.poppers.settle_head(Fate::Granted, calls);
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.ahead + self.items.len() + self.handed < self.capacity
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn waiting_to_push(&self) -> usize {
        self.pushers.waiting()
    }

    pub(super) fn waiting_to_pop(&self) -> usize {
        self.poppers.waiting()
    }

    /// How many have been handed an item that they have not collected yet.
    pub(super) fn handed(&self) -> usize {
        self.handed
    }
}

impl<T> Whole<'_, T> {
    /// Pushes what there is room for. The rest stays in the parcel.
    pub(super) fn push(&mut self, parcel: &mut Parcel<T>, calls: &mut Calls) -> Result<(), No> {
        if self.back.is_closed {
            return Err(No::Closed);
        }
        self.back.ahead = self.front.items.len();
        while self.back.has_room()
            && let Some(item) = parcel.next()
        {
            self.back.items.push_back(item);
        }
        self.settle(calls);
        if parcel.is_empty() { Ok(()) } else { Err(No::NotNow) }
    }

    /// Pops the oldest item.
    pub(super) fn pop(&mut self, calls: &mut Calls) -> Result<T, No> {
        self.refill();
        let item = self.front.take_first().ok_or(self.why_nothing())?;
        self.settle(calls);
        Ok(item)
    }

    /// Pops up to `most`, at least one.
    pub(super) fn pop_many(
        &mut self,
        most: usize,
        into: &mut Vec<T>,
        calls: &mut Calls,
    ) -> Result<(), No> {
        if self.len() == 0 {
            return Err(self.why_nothing());
        }
        self.pop_more(most, into, calls);
        Ok(())
    }

    /// Pops up to `most`, and no more than there are now.
    pub(super) fn pop_more(&mut self, most: usize, into: &mut Vec<T>, calls: &mut Calls) {
        for _ in 0..most.min(self.len()) {
            self.refill();
            into.extend(self.front.take_first());
        }
        self.settle(calls);
    }

    fn why_nothing(&self) -> No {
        if self.back.is_closed { No::Closed } else { No::NotNow }
    }

    /// The end of the line of those who wait to push. Only after `push` has found no room.
    pub(super) fn stand_to_push(&mut self, parcel: Parcel<T>, caller: Caller) -> usize {
        debug_assert!(!self.back.has_room() && !self.back.is_closed && !parcel.is_empty());
        self.front.pushers_wait = true;
        self.back.pushers.stand(parcel, caller)
    }

    /// The end of the line of those who wait to pop. Only after `pop` has found no item.
    pub(super) fn stand_to_pop(&mut self, caller: Caller) -> usize {
        debug_assert!(self.len() == 0 && !self.back.is_closed);
        self.back.ahead = 0;
        self.back.poppers.stand(None, caller)
    }

    /// Ends a pop's stay as if it had never been there: what it was handed goes to whoever waits
    /// next, or back to its place before all that came later.
    pub(super) fn cancel_popping(&mut self, place: usize, calls: &mut Calls) -> Option<Caller> {
        let (_, handed, caller) = self.back.poppers.leave(place);
        if let Some(handed) = handed {
            self.back.handed -= 1;
            self.take_back(handed, calls);
            self.settle(calls);
        }
        caller
    }

    fn take_back(&mut self, handed: Handed<T>, calls: &mut Calls) {
        if !self.back.poppers.is_empty() {
            return self.back.hand(handed, calls);
        }
        let Handed { number, item } = handed;
        let before = self.front.returned.partition_point(|&other| other < number);
        self.front.returned.insert(before, number);
        self.front.items.insert(before, item);
    }

    /// Refuses whoever waits, and from now on whoever comes to push.
    pub(super) fn close(&mut self, calls: &mut Calls) {
        self.back.is_closed = true;
        self.back.pushers.sweep(|_| true, calls);
        self.back.poppers.sweep(|_| true, calls);
        self.settle(calls);
    }

    pub(super) fn resize(&mut self, capacity: usize, calls: &mut Calls) {
        self.back.capacity = capacity;
        self.settle(calls);
    }

    /// Takes a part of the items out.
    pub(super) fn drain(&mut self, part: Range<usize>, into: &mut Vec<T>, calls: &mut Calls) {
        self.join();
        let numbered = self.front.returned.len();
        self.front.returned.drain(part.start.min(numbered)..part.end.min(numbered));
        into.extend(self.front.items.drain(part));
        self.settle(calls);
    }

    /// Appends the first `count` items to another queue. The caller has seen that they fit.
    pub(super) fn transfer(&mut self, to: &mut Whole<'_, T>, count: usize, calls: &mut Calls) {
        debug_assert!(count <= self.len() && count <= to.room());
        self.join();
        self.front.returned.drain(..count.min(self.front.returned.len()));
        to.back.items.extend(self.front.items.drain(..count));
        to.settle(calls);
        self.settle(calls);
    }

    /// Restores invariants 2 to 4.
    fn settle(&mut self, calls: &mut Calls) {
        self.back.ahead = self.front.items.len();
        self.back.place_waiting(calls);
        // Whoever waited to pop found the front empty, and nothing has come into it since.
        debug_assert!(self.back.poppers.is_empty() || self.front.items.is_empty());
        self.back.hand_out(calls);
        self.front.pushers_wait = !self.back.pushers.is_empty();
    }

    /// Exchanges the parts if the front is empty. What returned is never in the back.
    fn refill(&mut self) {
        if self.front.items.is_empty() {
            mem::swap(&mut self.front.items, &mut self.back.items);
        }
    }

    /// Moves all items to the front.
    fn join(&mut self) {
        self.refill();
        self.front.items.append(&mut self.back.items);
    }

    /// How many more items could be pushed at once.
    pub(super) fn room(&self) -> usize {
        self.back.capacity.saturating_sub(self.len() + self.back.handed)
    }

    pub(super) fn len(&self) -> usize {
        self.front.items.len() + self.back.items.len()
    }

    /// All items, oldest first.
    pub(super) fn items(&self) -> impl Iterator<Item = &T> {
        self.front.items.iter().chain(&self.back.items)
    }
}
