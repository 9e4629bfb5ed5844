//! What lies under the lock of a queue: a plain state machine without locks, clocks or user code.
//!
//! # Invariants
//! 1. `items.len() + handed <= capacity`, except after a shrink, until enough has been popped.
//! 2. While somebody waits to push there is no room: `items.len() + handed >= capacity`.
//! 3. While somebody waits to pop there are no items.
//!
//! So a newcomer that finds room finds nobody waiting to push, and one that finds an item finds
//! nobody waiting to pop: nobody can barge. [`State::settle`] restores 2 and 3 after every step.

use std::collections::VecDeque;
use std::ops::Range;

use super::super::line::{Fate, Line};
use super::super::wait::{Caller, Calls};

#[derive(Debug)]
pub(super) struct State<T> {
    /// What is in the queue, oldest first.
    items: VecDeque<T>,
    /// The bound. At least one.
    capacity: usize,
    /// Items that have been handed to waiting pops which have not collected them yet. Each still
    /// takes its part of the capacity, so that there is room for it if the pop is cancelled.
    handed: usize,
    /// Which of the handed items came first: the next one's number.
    next_number: u64,
    /// The numbers of those items that came back from a cancelled pop, ascending. They are the first
    /// of `items`, as many as there are numbers.
    returned: VecDeque<u64>,
    /// Who waits to push, and what it still has to push.
    pushers: Line<Parcel<T>>,
    /// Who waits to pop, and what it was handed.
    poppers: Line<Option<Handed<T>>>,
    is_closed: bool,
}

/// What a push brings.
#[derive(Debug)]
pub(super) enum Parcel<T> {
    One(Option<T>),
    Many(VecDeque<T>),
}

/// An item at the place of a pop that waited for it.
#[derive(Debug)]
pub(super) struct Handed<T> {
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

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Parcel::One(item) => item.is_none(),
            Parcel::Many(items) => items.is_empty(),
        }
    }
}

impl<T> State<T> {
    pub(super) fn new(capacity: usize) -> Self {
        State {
            items: VecDeque::new(),
            capacity,
            handed: 0,
            next_number: 0,
            returned: VecDeque::new(),
            pushers: Line::default(),
            poppers: Line::default(),
            is_closed: false,
        }
    }

    /// Pushes if there is room, and says whom to tell, if anybody.
    #[inline]
    pub(super) fn push(&mut self, item: T, calls: &mut Calls) -> Result<(), (No, T)> {
        if self.is_closed {
            return Err((No::Closed, item));
        }
        if !self.has_room() {
            return Err((No::NotNow, item));
        }
        self.items.push_back(item);
        if !self.poppers.is_empty() {
            self.hand_out(calls);
        }
        Ok(())
    }

    /// Pushes what there is room for. The rest stays in the parcel.
    pub(super) fn push_parcel(
        &mut self,
        parcel: &mut Parcel<T>,
        calls: &mut Calls,
    ) -> Result<(), No> {
        if self.is_closed {
            return Err(No::Closed);
        }
        while self.has_room()
            && let Some(item) = parcel.next()
        {
            self.items.push_back(item);
        }
        self.hand_out(calls);
        if parcel.is_empty() { Ok(()) } else { Err(No::NotNow) }
    }

    /// Pops if there is an item.
    #[inline]
    pub(super) fn pop(&mut self, calls: &mut Calls) -> Result<T, No> {
        match self.take_first() {
            Some(item) => {
                if !self.pushers.is_empty() {
                    self.settle(calls);
                }
                Ok(item)
            }
            None => Err(if self.is_closed { No::Closed } else { No::NotNow }),
        }
    }

    /// Pops up to `most`, at least one if `most` is not 0.
    pub(super) fn pop_many(
        &mut self,
        most: usize,
        into: &mut Vec<T>,
        calls: &mut Calls,
    ) -> Result<(), No> {
        let first = self.pop(calls)?;
        into.push(first);
        self.pop_more(most - 1, into, calls);
        Ok(())
    }

    /// Pops up to `most`, and no more than lie in the queue now.
    pub(super) fn pop_more(&mut self, most: usize, into: &mut Vec<T>, calls: &mut Calls) {
        for _ in 0..most.min(self.items.len()) {
            into.extend(self.take_first());
        }
        self.settle(calls);
    }

    /// The end of the line of those who wait to push. Only after `push` has found no room.
    pub(super) fn stand_to_push(&mut self, parcel: Parcel<T>, caller: Caller) -> usize {
        debug_assert!(!self.has_room() && !self.is_closed && !parcel.is_empty());
        self.pushers.stand(parcel, caller)
    }

    /// The end of the line of those who wait to pop. Only after `pop` has found no item.
    pub(super) fn stand_to_pop(&mut self, caller: Caller) -> usize {
        debug_assert!(self.items.is_empty() && !self.is_closed);
        self.poppers.stand(None, caller)
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

    /// Ends a push's stay, with what it did not push.
    pub(super) fn leave_pushing(&mut self, place: usize) -> (Fate, Parcel<T>, Option<Caller>) {
        self.pushers.leave(place)
    }

    /// Ends a pop's stay, with what it was handed: that is popped now.
    pub(super) fn leave_popping(
        &mut self,
        place: usize,
        calls: &mut Calls,
    ) -> (Fate, Option<T>, Option<Caller>) {
        let (fate, handed, caller) = self.poppers.leave(place);
        let item = handed.map(|handed| {
            self.handed -= 1;
            handed.item
        });
        if item.is_some() {
            self.settle(calls);
        }
        (fate, item, caller)
    }

    /// Ends a pop's stay as if it had never been there: what it was handed goes back to its place
    /// before all that came later.
    pub(super) fn cancel_popping(&mut self, place: usize, calls: &mut Calls) -> Option<Caller> {
        let (_, handed, caller) = self.poppers.leave(place);
        if let Some(Handed { number, item }) = handed {
            self.handed -= 1;
            let before = self.returned.partition_point(|&other| other < number);
            self.returned.insert(before, number);
            self.items.insert(before, item);
            self.settle(calls);
        }
        caller
    }

    /// Restores invariants 2 and 3.
    pub(super) fn settle(&mut self, calls: &mut Calls) {
        self.place_waiting(calls);
        self.hand_out(calls);
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

    /// Hands items to those who wait to pop, the oldest to the one that has waited longest.
    fn hand_out(&mut self, calls: &mut Calls) {
        while !self.items.is_empty()
            && let Some(hand) = self.poppers.head()
        {
            let number = self.returned.pop_front().unwrap_or(self.next_number);
            self.next_number = self.next_number.max(number + 1);
            *hand = self.items.pop_front().map(|item| Handed { number, item });
            self.handed += 1;
            self.poppers.settle_head(Fate::Granted, calls);
        }
    }

    /// Refuses whoever waits, and from now on whoever comes to push.
    pub(super) fn close(&mut self, calls: &mut Calls) {
        self.is_closed = true;
        self.pushers.sweep(|_| true, calls);
        self.poppers.sweep(|_| true, calls);
    }

    pub(super) fn resize(&mut self, capacity: usize, calls: &mut Calls) {
        self.capacity = capacity;
        self.settle(calls);
    }

    /// Takes a part of the items out.
    pub(super) fn drain(&mut self, part: Range<usize>, into: &mut Vec<T>, calls: &mut Calls) {
        let numbered = self.returned.len();
        self.returned.drain(part.start.min(numbered)..part.end.min(numbered));
        into.extend(self.items.drain(part));
        self.settle(calls);
    }

    /// Appends the first `count` items to another queue. The caller has seen that they fit.
    pub(super) fn transfer(&mut self, to: &mut State<T>, count: usize, calls: &mut Calls) {
        debug_assert!(count <= self.items.len() && count <= to.room());
        self.returned.drain(..count.min(self.returned.len()));
        to.items.extend(self.items.drain(..count));
        to.hand_out(calls);
        self.settle(calls);
    }

    #[inline]
    fn has_room(&self) -> bool {
        self.items.len() + self.handed < self.capacity
    }

    /// How many more items could be pushed at once.
    pub(super) fn room(&self) -> usize {
        self.capacity.saturating_sub(self.items.len() + self.handed)
    }

    #[inline]
    fn take_first(&mut self) -> Option<T> {
        if !self.returned.is_empty() {
            self.returned.pop_front();
        }
        self.items.pop_front()
    }

    pub(super) fn items(&self) -> &VecDeque<T> {
        &self.items
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
