//! FIFO queue of waiters that supports removal from any position.
//!
//! The queue lies under the lock of its owner. Every operation except [`WaitQueue::refuse_if`]
//! takes constant time.

use slab::Slab;

use super::parker::{WakeList, WakeTarget};

/// Capacity, in waiters, that an empty queue retains. A larger buffer is freed.
const MAX_SPARE_WAITERS: usize = 64;

/// FIFO queue of waiters, linked in the order of arrival. Each has a payload `P`.
#[derive(Debug)]
pub(super) struct WaitQueue<P> {
    /// All waiters. One whose state is decided stays until its owner has read the state or
    /// cancelled.
    waiters: Slab<Waiter<P>>,
    /// Oldest linked waiter.
    head: Option<usize>,
    /// Newest linked waiter.
    tail: Option<usize>,
    /// Number of linked waiters.
    waiting: usize,
}

#[derive(Debug)]
struct Waiter<P> {
    /// Item that the waiter brings or receives.
    payload: P,
    /// Decided once, by the caller that unlinks the waiter.
    state: WaiterState,
    /// Target of the notification; `None` once the state is decided. An async waiter may replace
    /// it.
    wake: Option<WakeTarget>,
    /// Neighbors in the queue; meaningless once the state is decided.
    prev: Option<usize>,
    next: Option<usize>,
}

/// State of a waiter. Only `Waiting` ones are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterState {
    /// Queued. Exits: `Granted`, `Refused`, or removal by its owner.
    Waiting,
    /// The waiter received what it waited for.
    Granted,
    /// The waiter will never receive it.
    Refused,
}

impl<P> Default for WaitQueue<P> {
    fn default() -> Self {
        WaitQueue { waiters: Slab::new(), head: None, tail: None, waiting: 0 }
    }
}

impl<P> WaitQueue<P> {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Returns whether the queue holds no waiter, not even one with a decided state.
    pub(super) fn is_unused(&self) -> bool {
        self.waiters.is_empty()
    }

    /// Number of linked waiters.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Adds a waiter at the end of the queue and returns its index.
    pub(super) fn push_back(&mut self, payload: P, wake: WakeTarget) -> usize {
        let prev = self.tail;
        let wake = Some(wake);
        let waiter = self.waiters.insert(Waiter {
            payload,
            state: WaiterState::Waiting,
            wake,
            prev,
            next: None,
        });
        match prev {
            None => self.head = Some(waiter),
            Some(prev) => self.waiters[prev].next = Some(waiter),
        }
        self.tail = Some(waiter);
        self.waiting += 1;
        waiter
    }

    /// Iterates over the linked waiters in queue order: payload and notification target.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&P, Option<&WakeTarget>)> {
        let next = |waiter: &usize| self.waiters[*waiter].next;
        std::iter::successors(self.head, next).map(|waiter| {
            let Waiter { payload, wake, .. } = &self.waiters[waiter];
            (payload, wake.as_ref())
        })
    }

    /// Payload of the head of the queue.
    pub(super) fn head(&mut self) -> Option<&mut P> {
        Some(&mut self.waiters[self.head?].payload)
    }

    /// Decides the state of the head of the queue and unlinks it.
    pub(super) fn resolve_head(&mut self, state: WaiterState, wake_list: &mut WakeList) {
        if let Some(head) = self.head {
            self.resolve(head, state, wake_list);
        }
    }

    /// Refuses all linked waiters whose payload matches `refuse`.
    pub(super) fn refuse_if(&mut self, refuse: impl Fn(&P) -> bool, wake_list: &mut WakeList) {
        let mut next = self.head;
        while let Some(waiter) = next {
            next = self.waiters[waiter].next;
            if refuse(&self.waiters[waiter].payload) {
                self.resolve(waiter, WaiterState::Refused, wake_list);
            }
        }
    }

    pub(super) fn state(&self, waiter: usize) -> WaiterState {
        self.waiters[waiter].state
    }

    /// Replaces the notification target. Returns the old one, to be dropped after the lock is
    /// released.
    pub(super) fn replace_wake(&mut self, waiter: usize, wake: WakeTarget) -> Option<WakeTarget> {
        self.waiters[waiter].wake.replace(wake)
    }

    /// Removes the waiter, unlinking it if it still waits. Returns its state, its payload, and its
    /// notification target, to be dropped after the lock is released.
    pub(super) fn remove(&mut self, waiter: usize) -> (WaiterState, P, Option<WakeTarget>) {
        if self.waiters[waiter].state == WaiterState::Waiting {
            self.unlink(waiter);
        }
        let Waiter { payload, state, wake, .. } = self.waiters.remove(waiter);
        if self.waiters.is_empty() && self.waiters.capacity() > MAX_SPARE_WAITERS {
            self.waiters = Slab::new();
        }
        (state, payload, wake)
    }

    fn resolve(&mut self, waiter: usize, state: WaiterState, wake_list: &mut WakeList) {
        self.unlink(waiter);
        let waiter = &mut self.waiters[waiter];
        waiter.state = state;
        if let Some(wake) = waiter.wake.take() {
            wake_list.push(wake);
        }
    }

    fn unlink(&mut self, waiter: usize) {
        let Waiter { prev, next, .. } = self.waiters[waiter];
        match prev {
            None => self.head = next,
            Some(prev) => self.waiters[prev].next = next,
        }
        match next {
            None => self.tail = prev,
            Some(next) => self.waiters[next].prev = prev,
        }
        self.waiting -= 1;
    }
}
