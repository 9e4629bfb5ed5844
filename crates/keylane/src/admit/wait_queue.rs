//! A line of waiters: first come, first served, and whoever gives up leaves from anywhere in it.
//!
//! It lies under the lock of whoever owns it. Every step but [`WaitQueue::refuse_if`] takes a time that does
//! not depend on how many wait.

use slab::Slab;

use super::parker::{Wake, WakeList};

/// Emptied waiters that a line keeps when nobody waits. Beyond them the memory of a rush is given
/// back.
const MAX_SPARE_WAITERS: usize = 64;

/// The waiters, linked in the order in which they came. Each has a payload `P`.
#[derive(Debug)]
pub(super) struct WaitQueue<P> {
    /// An entry stays until its waiter has learnt its state, or has given up.
    waiters: Slab<Waiter<P>>,
    /// The one that waits longest.
    head: Option<usize>,
    /// The one that came last.
    tail: Option<usize>,
    /// How many wait, which are those that are linked.
    waiting: usize,
}

#[derive(Debug)]
struct Waiter<P> {
    /// What the waiter brings, or what it is given.
    payload: P,
    /// Decided once, by who takes the waiter out of the line.
    state: WaiterState,
    /// Whom to tell; gone once the state is decided. A task may change it while it waits.
    wake: Option<Wake>,
    /// Its neighbours in the line; meaningless once its state is decided.
    prev: Option<usize>,
    next: Option<usize>,
}

/// What becomes of a waiter. Only `Waiting` waiters are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WaiterState {
    /// In the line. Exits: the two below, or the waiter gives up.
    Waiting,
    /// It has got what it waited for.
    Granted,
    /// It will never get it.
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

    /// Whether nobody has a waiter, not even one whose state is decided.
    pub(super) fn is_unused(&self) -> bool {
        self.waiters.is_empty()
    }

    /// How many wait.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// A new waiter at the end of the line.
    pub(super) fn push_back(&mut self, payload: P, wake: Wake) -> usize {
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

    /// Those who wait, in their order: what each brings, and whom to tell.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&P, Option<&Wake>)> {
        let next = |waiter: &usize| self.waiters[*waiter].next;
        std::iter::successors(self.head, next).map(|waiter| {
            let Waiter { payload, wake, .. } = &self.waiters[waiter];
            (payload, wake.as_ref())
        })
    }

    /// What the head of the line has at its waiter.
    pub(super) fn head(&mut self) -> Option<&mut P> {
        Some(&mut self.waiters[self.head?].payload)
    }

    /// Decides the state of the head of the line, which leaves the line with that.
    pub(super) fn resolve_head(&mut self, state: WaiterState, wake_list: &mut WakeList) {
        if let Some(head) = self.head {
            self.resolve(head, state, wake_list);
        }
    }

    /// Refuses all those whose payload says so.
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

    /// Changes whom to tell, and returns who was to be told so far, to be dropped without the lock.
    pub(super) fn replace_wake(&mut self, waiter: usize, wake: Wake) -> Option<Wake> {
        self.waiters[waiter].wake.replace(wake)
    }

    /// Takes the waiter away, from the line too if its state is open. Returns its state, its payload, and
    /// whom nobody needs to tell any more, to be dropped without the lock.
    pub(super) fn remove(&mut self, waiter: usize) -> (WaiterState, P, Option<Wake>) {
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
