//! State machine under the two locks of a queue: contains no locks, clocks or user code.
//!
//! The items form two parts in sequence: pops take from the *front*, pushes append to the *back*,
//! each under its own lock. A pop that finds the front empty swaps the two. So a producer and a
//! consumer seldom contend.
//!
//! # Invariants
//! With `items` for those of both parts:
//! 1. `items + handed_off <= capacity`, except after a reduction of the capacity, until enough has
//!    been popped.
//! 2. `front.items <= ahead`; equal while pushes wait.
//! 3. While pushes wait, `pushers_wait` is set and the queue is full:
//!    `items + handed_off >= capacity`.
//! 4. While pops wait, there are no items.
//!
//! So a newcomer that finds free capacity finds no waiting push, and one that finds an item finds
//! no waiting pop: none can overtake a waiter. [`BothParts::restore_invariants`] restores 2 to 4
//! after every step with both locks. The steps with one lock are [`QueueFront::pop`] and the methods of
//! [`QueueBack`]; each documents why it keeps the invariants.

use std::collections::VecDeque;
use std::mem;
use std::ops::Range;

use super::super::error::QueueError;
use super::super::parker::{WakeList, WakeTarget};
use super::super::wait_queue::{WaitQueue, WaiterState};

/// Part of the queue where items are popped.
#[derive(Debug)]
pub(super) struct QueueFront<T> {
    /// Oldest items of the queue, oldest first.
    items: VecDeque<T>,
    /// Hand-off numbers of items that returned from a cancelled pop, ascending. These items are the
    /// first of `items`, one for each number.
    returned: VecDeque<u64>,
    /// Set while pushes may wait, so that a pop must give them the capacity that it frees. Changed
    /// under both locks.
    pushers_wait: bool,
}

/// Part of the queue where items are pushed, and all state that a pop of the front does not need.
#[derive(Debug)]
pub(super) struct QueueBack<T> {
    /// Items behind those of the front, oldest first.
    items: VecDeque<T>,
    /// Upper bound of the number of items in the front: its length when both locks were last held.
    ahead: usize,
    /// Maximum number of items. At least 1.
    capacity: usize,
    /// Number of items assigned to waiting pops that have not collected them yet. They count
    /// towards the capacity, so that a cancelled pop can return its item.
    handed_off: usize,
    /// Number of the next item to be handed off. Handed-off items are numbered in queue order.
    next_sequence: u64,
    /// Waiting pushes, each with the items still to push.
    pushers: WaitQueue<PushBatch<T>>,
    /// Waiting pops, each with the item that it was assigned.
    poppers: WaitQueue<Option<ItemHandoff<T>>>,
    is_closed: bool,
}

/// View of both parts, for a caller that holds both locks.
pub(super) struct BothParts<'a, T> {
    pub(super) front: &'a mut QueueFront<T>,
    pub(super) back: &'a mut QueueBack<T>,
}

/// Items of a push.
#[derive(Debug)]
pub(super) enum PushBatch<T> {
    One(Option<T>),
    Many(VecDeque<T>),
}

/// Item assigned to a waiting pop.
#[derive(Debug)]
struct ItemHandoff<T> {
    sequence: u64,
    item: T,
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

impl<T> QueueFront<T> {
    pub(super) fn new() -> Self {
        QueueFront { items: VecDeque::new(), returned: VecDeque::new(), pushers_wait: false }
    }

    /// Pops the oldest item. Returns `None` if pushes wait or the front is empty: the caller then
    /// takes both locks. `ahead` is now too large, which invariant 2 allows while no push waits.
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

impl<T> QueueBack<T> {
    pub(super) fn new(capacity: usize) -> Self {
        QueueBack {
            items: VecDeque::new(),
            ahead: 0,
            capacity,
            handed_off: 0,
            next_sequence: 0,
            pushers: WaitQueue::default(),
            poppers: WaitQueue::default(),
            is_closed: false,
        }
    }

    /// Pushes an item, or returns it if the queue is closed, pops wait, or the queue is full by
    /// `ahead`. There may be more free capacity than `ahead` tells: it is exact only under both
    /// locks.
    ///
    /// Capacity that is free by `ahead` is free, so invariants 1 and 3 hold.
    #[inline]
    pub(super) fn push(&mut self, item: T) -> Result<(), T> {
        if self.is_closed || !self.has_capacity() || !self.poppers.is_empty() {
            return Err(item);
        }
        self.items.push_back(item);
        Ok(())
    }

    /// Returns whether a push still waits.
    pub(super) fn push_waits(&self, waiter: usize) -> bool {
        self.pushers.state(waiter) == WaiterState::Waiting
    }

    /// Returns whether a pop still waits.
    pub(super) fn pop_waits(&self, waiter: usize) -> bool {
        self.poppers.state(waiter) == WaiterState::Waiting
    }

    pub(super) fn replace_push_wake(
        &mut self,
        waiter: usize,
        wake: WakeTarget,
    ) -> Option<WakeTarget> {
        self.pushers.replace_wake(waiter, wake)
    }

    pub(super) fn replace_pop_wake(
        &mut self,
        waiter: usize,
        wake: WakeTarget,
    ) -> Option<WakeTarget> {
        self.poppers.replace_wake(waiter, wake)
    }

    /// Removes a push, and returns the items that it did not push. This frees no capacity, and
    /// invariant 3 does not require that `pushers_wait` be cleared.
    pub(super) fn remove_pusher(
        &mut self,
        waiter: usize,
    ) -> (WaiterState, PushBatch<T>, Option<WakeTarget>) {
        self.pushers.remove(waiter)
    }

    /// Removes a pop, and returns its assigned item, which is popped now and frees capacity. If
    /// pushes wait, `ahead` is exact. If pops wait, the front is empty, so the oldest item is in
    /// this part.
    pub(super) fn remove_popper(
        &mut self,
        waiter: usize,
        wake_list: &mut WakeList,
    ) -> (WaiterState, Option<T>, Option<WakeTarget>) {
        let (state, handed_off, wake) = self.poppers.remove(waiter);
        let item = handed_off.map(|ItemHandoff { item, .. }| {
            self.handed_off -= 1;
            self.admit_pushers(wake_list);
            self.hand_off_items(wake_list);
            item
        });
        (state, item, wake)
    }

    /// Places the items of waiting pushes, in the order of arrival, while there is free capacity.
    fn admit_pushers(&mut self, wake_list: &mut WakeList) {
        while self.has_capacity()
            && let Some(batch) = self.pushers.head()
        {
            self.items.extend(batch.next());
            if batch.is_empty() {
                self.pushers.resolve_head(WaiterState::Granted, wake_list);
            }
        }
    }

    /// Assigns items of this part to waiting pops, the oldest to the one that has waited longest.
    /// If pops wait, the front must be empty.
    fn hand_off_items(&mut self, wake_list: &mut WakeList) {
        while !self.poppers.is_empty()
            && let Some(item) = self.items.pop_front()
        {
            let sequence = self.next_sequence;
            self.next_sequence += 1;
            self.hand_off(ItemHandoff { sequence, item }, wake_list);
        }
    }

    fn hand_off(&mut self, handed_off: ItemHandoff<T>, wake_list: &mut WakeList) {
        let head = self.poppers.head().expect("a pop waits");
        *head = Some(handed_off);
        self.handed_off += 1;
        self.poppers.resolve_head(WaiterState::Granted, wake_list);
    }

    #[inline]
    fn has_capacity(&self) -> bool {
        self.ahead + self.items.len() + self.handed_off < self.capacity
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

    /// Number of pops that have not collected their assigned items yet.
    pub(super) fn handed_off(&self) -> usize {
        self.handed_off
    }
}

impl<T> BothParts<'_, T> {
    /// Pushes the items that fit. The others stay in the batch.
    pub(super) fn push(
        &mut self,
        batch: &mut PushBatch<T>,
        wake_list: &mut WakeList,
    ) -> Result<(), QueueError> {
        if self.back.is_closed {
            return Err(QueueError::Closed);
        }
        self.back.ahead = self.front.items.len();
        while self.back.has_capacity()
            && let Some(item) = batch.next()
        {
            self.back.items.push_back(item);
        }
        self.restore_invariants(wake_list);
        if batch.is_empty() { Ok(()) } else { Err(QueueError::Full) }
    }

    /// Pops the oldest item.
    pub(super) fn pop(&mut self, wake_list: &mut WakeList) -> Result<T, QueueError> {
        self.refill();
        let item = self.front.take_first().ok_or(self.pop_error())?;
        self.restore_invariants(wake_list);
        Ok(item)
    }

    /// Pops between 1 and `most` items.
    pub(super) fn pop_many(
        &mut self,
        most: usize,
        into: &mut Vec<T>,
        wake_list: &mut WakeList,
    ) -> Result<(), QueueError> {
        if self.len() == 0 {
            return Err(self.pop_error());
        }
        self.pop_more(most, into, wake_list);
        Ok(())
    }

    /// Pops at most `most` items, and at most those present now.
    pub(super) fn pop_more(&mut self, most: usize, into: &mut Vec<T>, wake_list: &mut WakeList) {
        for _ in 0..most.min(self.len()) {
            self.refill();
            into.extend(self.front.take_first());
        }
        self.restore_invariants(wake_list);
    }

    fn pop_error(&self) -> QueueError {
        if self.back.is_closed { QueueError::Closed } else { QueueError::Empty }
    }

    /// Adds a waiting push. Call it only after `push` found the queue full.
    pub(super) fn enqueue_push(&mut self, batch: PushBatch<T>, wake: WakeTarget) -> usize {
        debug_assert!(!self.back.has_capacity() && !self.back.is_closed && !batch.is_empty());
        self.front.pushers_wait = true;
        self.back.pushers.push_back(batch, wake)
    }

    /// Adds a waiting pop. Call it only after `pop` found no item.
    pub(super) fn enqueue_pop(&mut self, wake: WakeTarget) -> usize {
        debug_assert!(self.len() == 0 && !self.back.is_closed);
        self.back.ahead = 0;
        self.back.poppers.push_back(None, wake)
    }

    /// Removes a cancelled pop without effect: its assigned item goes to the next waiting pop, or
    /// back to its position before all later items.
    pub(super) fn cancel_pop(
        &mut self,
        waiter: usize,
        wake_list: &mut WakeList,
    ) -> Option<WakeTarget> {
        let (_, handed_off, wake) = self.back.poppers.remove(waiter);
        if let Some(handed_off) = handed_off {
            self.back.handed_off -= 1;
            self.return_handoff(handed_off, wake_list);
            self.restore_invariants(wake_list);
        }
        wake
    }

    fn return_handoff(&mut self, handed_off: ItemHandoff<T>, wake_list: &mut WakeList) {
        if !self.back.poppers.is_empty() {
            return self.back.hand_off(handed_off, wake_list);
        }
        let ItemHandoff { sequence, item } = handed_off;
        let before = self.front.returned.partition_point(|&other| other < sequence);
        self.front.returned.insert(before, sequence);
        self.front.items.insert(before, item);
    }

    /// Refuses all waiting callers, and all later pushes.
    pub(super) fn close(&mut self, wake_list: &mut WakeList) {
        self.back.is_closed = true;
        self.back.pushers.refuse_if(|_| true, wake_list);
        self.back.poppers.refuse_if(|_| true, wake_list);
        self.restore_invariants(wake_list);
    }

    pub(super) fn resize(&mut self, capacity: usize, wake_list: &mut WakeList) {
        self.back.capacity = capacity;
        self.restore_invariants(wake_list);
    }

    /// Removes a range of items.
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
        self.restore_invariants(wake_list);
    }

    /// Appends the first `count` items to another queue. The caller has checked that they fit.
    pub(super) fn transfer(
        &mut self,
        to: &mut BothParts<'_, T>,
        count: usize,
        wake_list: &mut WakeList,
    ) {
        debug_assert!(count <= self.len() && count <= to.free_capacity());
        self.join();
        self.front.returned.drain(..count.min(self.front.returned.len()));
        to.back.items.extend(self.front.items.drain(..count));
        to.restore_invariants(wake_list);
        self.restore_invariants(wake_list);
    }

    /// Restores invariants 2 to 4.
    fn restore_invariants(&mut self, wake_list: &mut WakeList) {
        self.back.ahead = self.front.items.len();
        self.back.admit_pushers(wake_list);
        // A pop waits only if it found the front empty, and no item has come into it since.
        debug_assert!(self.back.poppers.is_empty() || self.front.items.is_empty());
        self.back.hand_off_items(wake_list);
        self.front.pushers_wait = !self.back.pushers.is_empty();
    }

    /// Swaps the parts if the front is empty. Returned items are never in the back.
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

    /// Number of items that could be pushed at once.
    pub(super) fn free_capacity(&self) -> usize {
        self.back.capacity.saturating_sub(self.len() + self.back.handed_off)
    }

    pub(super) fn len(&self) -> usize {
        self.front.items.len() + self.back.items.len()
    }

    /// Iterates over all items, oldest first.
    pub(super) fn items(&self) -> impl Iterator<Item = &T> {
        self.front.items.iter().chain(&self.back.items)
    }
}
