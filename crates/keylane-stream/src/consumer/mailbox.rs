//! Events for the coordinator, and its wake-up.
//!
//! Events are in a list under a lock; the coordinator takes all of them at once. Before it waits it
//! *arms* the mailbox, which fails if there is something to take. The sender of the next event
//! disarms the mailbox and wakes the coordinator, outside of the lock: one wake-up per wait,
//! however many events follow. A notification without an event counts as something to take. So the
//! coordinator never waits while there is an event: either it was there before the arming, which
//! failed, or its sender found the mailbox armed and wakes.
//!
//! The coordinator waits here or in `poll` of its source, which the source's waker ends. The source
//! keeps a wake-up until the next `poll`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

#[derive(Debug)]
pub(super) struct Mailbox<E> {
    state: Mutex<MailboxState<E>>,
    /// Notified when an armed mailbox gets something.
    changed: Condvar,
    /// Ends the coordinator's wait in its source, if the source supports that.
    waker: Option<Waker>,
}

#[derive(Debug)]
struct MailboxState<E> {
    events: Vec<E>,
    /// Notified since the coordinator last took events.
    notified: bool,
    /// The coordinator waits, or is about to.
    armed: bool,
    /// The coordinator has ended: events are dropped.
    closed: bool,
}

impl<E> Mailbox<E> {
    pub(super) fn new(waker: Option<Waker>) -> Self {
        let state =
            MailboxState { events: Vec::new(), notified: false, armed: false, closed: false };
        Mailbox { state: Mutex::new(state), changed: Condvar::new(), waker }
    }

    pub(super) fn has_waker(&self) -> bool {
        self.waker.is_some()
    }

    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, MailboxState<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. Wakes the coordinator only if it waits for the mailbox.
    pub(super) fn push(&self, event: E) {
        self.put(event, false);
    }

    /// Adds an event and wakes the coordinator even if it waits for the source alone.
    pub(super) fn push_and_wake(&self, event: E) {
        self.put(event, true);
    }

    fn put(&self, event: E, at_once: bool) {
        let mut state = self.state();
        if state.closed {
            // The event may hold a guard, which must not be dropped under the lock.
            drop(state);
            return drop(event);
        }
        state.events.push(event);
        state.armed |= at_once;
        self.wake(state);
    }

    /// Drops all events, present and future.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let events = std::mem::take(&mut state.events);
        drop(state);
        drop(events);
    }

    /// Makes the coordinator read the mailbox.
    pub(super) fn notify(&self) {
        let mut state = self.state();
        state.notified = true;
        self.wake(state);
    }

    fn wake(&self, mut state: MutexGuard<'_, MailboxState<E>>) {
        if !std::mem::take(&mut state.armed) {
            return;
        }
        drop(state);
        self.changed.notify_one();
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Takes all events, in exchange for an empty list.
    pub(super) fn take(&self, events: &mut Vec<E>) {
        debug_assert!(events.is_empty(), "leftover events would be handed back as new ones");
        let mut state = self.state();
        state.armed = false;
        state.notified = false;
        std::mem::swap(&mut state.events, events);
    }

    /// Takes all events, or arms the mailbox if there are none. Returns whether there was
    /// something.
    pub(super) fn arm_or_take(&self, events: &mut Vec<E>) -> bool {
        let mut state = self.state();
        let something = std::mem::take(&mut state.notified) || !state.events.is_empty();
        std::mem::swap(&mut state.events, events);
        state.armed = !something;
        something
    }

    /// Takes all events; waits for some if there are none.
    pub(super) fn wait(&self, events: &mut Vec<E>, timeout: Duration) {
        let mut state = self.state();
        if !state.notified && state.events.is_empty() {
            state.armed = true;
            let armed = |state: &mut MailboxState<E>| state.armed;
            let waited = self.changed.wait_timeout_while(state, timeout, armed);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.armed = false;
        state.notified = false;
        std::mem::swap(&mut state.events, events);
    }
}
