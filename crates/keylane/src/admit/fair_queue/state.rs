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
//! nobody waiting to pop: nobody can barge. [`BothParts::settle`] restores 2 to 4 after every step that
//! has both locks. The steps that have one are [`Front::pop`] and those of [`Back`]; each says why
//! they keep them.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

use super::super::parker::{Wake, WakeList};
use super::super::wait_queue::{WaitQueue, WaiterState};

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
    pushers: WaitQueue<PushBatch<T>>,
    /// Who waits to pop, and what it was handed.
    poppers: WaitQueue<Option<Handoff<T>>>,
    is_closed: bool,
}

/// BothGuards parts, by who has both locks.
pub(super) struct BothParts<'a, T> {
    pub(super) front: &'a mut Front<T>,
    pub(super) back: &'a mut Back<T>,
}

/// What a push brings.
#[derive(Debug)]
pub(super) enum PushBatch<T> {
    One(Option<T>),
    Many(VecDeque<T>),
}

/// An item at the place of a pop that waited for it.
#[derive(Debug)]
struct Handoff<T> {
    number: u64,
    item: T,
}

/// Why nothing was pushed or popped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TryQueueError {
    /// There is no room, or no item.
    NotNow,
    /// The queue is closed, and there are no items either.
    Closed,
}

impl<T> PushBatch<T> {
    pub(super) fn next(&mut self) -> Option<T> {
        match self {
            PushBatch::One(item) => item.take(),
            PushBatch::Many(items) => items.pop_front(),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            PushBatch::One(item) => item.is_none(),
            PushBatch::Many(items) => items.is_empty(),
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
            pushers: WaitQueue::default(),
            poppers: WaitQueue::default(),
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
    pub(super) fn push_waits(&self, waiter: usize) -> bool {
        self.pushers.state(waiter) == WaiterState::Waiting
    }

    /// Whether a pop still waits.
    pub(super) fn pop_waits(&self, waiter: usize) -> bool {
        self.poppers.state(waiter) == WaiterState::Waiting
    }

    pub(super) fn replace_push_wake(&mut self, waiter: usize, wake: Wake) -> Option<Wake> {
        self.pushers.replace_wake(waiter, wake)
    }

    pub(super) fn replace_pop_wake(&mut self, waiter: usize, wake: Wake) -> Option<Wake> {
        self.poppers.replace_wake(waiter, wake)
    }

    /// Ends a push's stay, with what it did not push. One that leaves makes no room, and 3 does not
    /// ask that `pushers_wait` be unset.
    pub(super) fn remove_pusher(
        &mut self,
        waiter: usize,
    ) -> (WaiterState, PushBatch<T>, Option<Wake>) {
        self.pushers.remove(waiter)
    }

    /// Ends a pop's stay, with what it was handed: that is popped now, and makes room. If somebody
    /// waits to push, `ahead` is exact. If somebody waits to pop, the front is empty, so the oldest
    /// item is here.
    pub(super) fn remove_popper(
        &mut self,
        waiter: usize,
        wake_list: &mut WakeList,
    ) -> (WaiterState, Option<T>, Option<Wake>) {
        let (state, handed, wake) = self.poppers.remove(waiter);
        let item = handed.map(|Handoff { item, .. }| {
            self.handed -= 1;
            self.admit_pushers(wake_list);
            self.hand_off_items(wake_list);
            item
        });
        (state, item, wake)
    }

    /// Places the items of those who wait to push, first come, first served, while there is room.
    fn admit_pushers(&mut self, wake_list: &mut WakeList) {
        while self.has_room()
            && let Some(batch) = self.pushers.head()
        {
            self.items.extend(batch.next());
            if batch.is_empty() {
                self.pushers.resolve_head(WaiterState::Granted, wake_list);
            }
        }
    }

    /// Hands items of this part to those who wait to pop, the oldest to the one that has waited
    /// longest. The front must be empty if there are any.
    fn hand_off_items(&mut self, wake_list: &mut WakeList) {
        while !self.poppers.is_empty()
            && let Some(item) = self.items.pop_front()
        {
            let number = self.next_number;
            self.next_number += 1;
            self.hand_off(Handoff { number, item }, wake_list);
        }
    }

    fn hand_off(&mut self, handed: Handoff<T>, wake_list: &mut WakeList) {
        let head = self.poppers.head().expect("somebody waits to pop");
        *head = Some(handed);
        self.handed += 1;
        self.poppers.resolve_head(WaiterState::Granted, wake_list);
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

impl<T> BothParts<'_, T> {
    /// Pushes what there is room for. The rest stays in the batch.
    pub(super) fn push(
        &mut self,
        batch: &mut PushBatch<T>,
        wake_list: &mut WakeList,
    ) -> Result<(), TryQueueError> {
        if self.back.is_closed {
            return Err(TryQueueError::Closed);
        }
        self.back.ahead = self.front.items.len();
        while self.back.has_room()
            && let Some(item) = batch.next()
        {
            self.back.items.push_back(item);
        }
        self.settle(wake_list);
        if batch.is_empty() { Ok(()) } else { Err(TryQueueError::NotNow) }
    }

    /// Pops the oldest item.
    pub(super) fn pop(&mut self, wake_list: &mut WakeList) -> Result<T, TryQueueError> {
        self.refill();
        let item = self.front.take_first().ok_or(self.why_nothing())?;
        self.settle(wake_list);
        Ok(item)
    }

    /// Pops up to `most`, at least one.
    pub(super) fn pop_many(
        &mut self,
        most: usize,
        into: &mut Vec<T>,
        wake_list: &mut WakeList,
    ) -> Result<(), TryQueueError> {
        if self.len() == 0 {
            return Err(self.why_nothing());
        }
        self.pop_more(most, into, wake_list);
        Ok(())
    }

    /// Pops up to `most`, and no more than there are now.
    pub(super) fn pop_more(&mut self, most: usize, into: &mut Vec<T>, wake_list: &mut WakeList) {
        for _ in 0..most.min(self.len()) {
            self.refill();
            into.extend(self.front.take_first());
        }
        self.settle(wake_list);
    }

    fn why_nothing(&self) -> TryQueueError {
        if self.back.is_closed { TryQueueError::Closed } else { TryQueueError::NotNow }
    }

    /// The end of the line of those who wait to push. Only after `push` has found no room.
    pub(super) fn enqueue_push(&mut self, batch: PushBatch<T>, wake: Wake) -> usize {
        debug_assert!(!self.back.has_room() && !self.back.is_closed && !batch.is_empty());
        self.front.pushers_wait = true;
        self.back.pushers.push_back(batch, wake)
    }

    /// The end of the line of those who wait to pop. Only after `pop` has found no item.
    pub(super) fn enqueue_pop(&mut self, wake: Wake) -> usize {
        debug_assert!(self.len() == 0 && !self.back.is_closed);
        self.back.ahead = 0;
        self.back.poppers.push_back(None, wake)
    }

    /// Ends a pop's stay as if it had never been there: what it was handed goes to whoever waits
    /// next, or back to its place before all that came later.
    pub(super) fn cancel_pop(&mut self, waiter: usize, wake_list: &mut WakeList) -> Option<Wake> {
        let (_, handed, wake) = self.back.poppers.remove(waiter);
        if let Some(handed) = handed {
            self.back.handed -= 1;
            self.return_handoff(handed, wake_list);
            self.settle(wake_list);
        }
        wake
    }

    fn return_handoff(&mut self, handed: Handoff<T>, wake_list: &mut WakeList) {
        if !self.back.poppers.is_empty() {
            return self.back.hand_off(handed, wake_list);
        }
        let Handoff { number, item } = handed;
        let before = self.front.returned.partition_point(|&other| other < number);
        self.front.returned.insert(before, number);
        self.front.items.insert(before, item);
    }

    /// Refuses whoever waits, and from now on whoever comes to push.
    pub(super) fn close(&mut self, wake_list: &mut WakeList) {
        self.back.is_closed = true;
        self.back.pushers.refuse_if(|_| true, wake_list);
        self.back.poppers.refuse_if(|_| true, wake_list);
        self.settle(wake_list);
    }

    pub(super) fn resize(&mut self, capacity: usize, wake_list: &mut WakeList) {
        self.back.capacity = capacity;
        self.settle(wake_list);
    }

    /// Takes a part of the items out.
    pub(super) fn drain(
        &mut self,
        part: Range<usize>,
        into: &mut Vec<T>,
        wake_list: &mut WakeList,
    ) {
        self.join();
        let numbered = self.front.returned.len();
        self.front.returned.drain(part.start.min(numbered)..part.end.min(numbered));
        into.extend(self.front.items.drain(part));
        self.settle(wake_list);
    }

    /// Appends the first `count` items to another queue. The caller has seen that they fit.
    pub(super) fn transfer(
        &mut self,
        to: &mut BothParts<'_, T>,
        count: usize,
        wake_list: &mut WakeList,
    ) {
        debug_assert!(count <= self.len() && count <= to.room());
        self.join();
        self.front.returned.drain(..count.min(self.front.returned.len()));
        to.back.items.extend(self.front.items.drain(..count));
        to.settle(wake_list);
        self.settle(wake_list);
    }

    /// Restores invariants 2 to 4.
    fn settle(&mut self, wake_list: &mut WakeList) {
        self.back.ahead = self.front.items.len();
        self.back.admit_pushers(wake_list);
        // Whoever waited to pop found the front empty, and nothing has come into it since.
        debug_assert!(self.back.poppers.is_empty() || self.front.items.is_empty());
        self.back.hand_off_items(wake_list);
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
