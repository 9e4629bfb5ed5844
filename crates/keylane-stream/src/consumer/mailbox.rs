//! What is told to the owner, and how it is woken for that.
//!
//! Reports lie in a list under a lock; the owner takes all of them at once. Before it waits, it *arms*
//! the mailbox, which fails if there is something to take. Who then puts something in disarms it and
//! wakes the owner, outside of the lock: one wake-up for a wait, however much comes. A notify without a
//! event counts as something to take. So no event lies there while the owner waits: either it was
//! there before the arming, which then failed, or its sender found the mailbox armed and wakes.
//!
//! The owner waits here or in its source's `poll`, which the source's waker ends. That one is kept by
//! the source until the next `poll` if none is on.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::worker_event::WorkerEvent;

#[derive(Debug)]
pub(super) struct Mailbox {
    state: Mutex<MailboxState>,
    /// Notified when an armed mailbox gets something.
    changed: Condvar,
    /// Ends the owner's wait in its source, if anything can.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct MailboxState {
    events: Vec<WorkerEvent>,
    /// Somebody has notified since the owner last looked.
    notified: bool,
    /// The owner waits, or is about to.
    armed: bool,
    /// There is no owner any more: what comes is dropped.
    closed: bool,
}

impl Mailbox {
    pub(super) fn new(waker: Option<Waker>) -> Self {
        Mailbox { state: Mutex::default(), changed: Condvar::new(), waker }
    }

    pub(super) fn has_waker(&self) -> bool {
        self.waker.is_some()
    }

    /// No section unwinds.
    fn state(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a event in.
    pub(super) fn push(&self, event: WorkerEvent) {
        self.put(event, false);
    }

    /// Puts a event in that the owner is to see at once, whatever it waits for.
    pub(super) fn demand(&self, event: WorkerEvent) {
        self.put(event, true);
    }

    fn put(&self, event: WorkerEvent, at_once: bool) {
        let mut state = self.state();
        if state.closed {
            // It may have a turn, which must not end under the lock.
            drop(state);
            return drop(event);
        }
        state.events.push(event);
        state.armed |= at_once;
        self.wake(state);
    }

    /// Drops what is there and what comes.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let events = std::mem::take(&mut state.events);
        drop(state);
        drop(events);
    }

    /// Makes the owner look around.
    pub(super) fn notify(&self) {
        let mut state = self.state();
        state.notified = true;
        self.wake(state);
    }

    fn wake(&self, mut state: MutexGuard<'_, MailboxState>) {
        if !std::mem::take(&mut state.armed) {
            return;
        }
        drop(state);
        self.changed.notify_one();
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Takes what is there, in exchange for an empty list.
    pub(super) fn take(&self, events: &mut Vec<WorkerEvent>) {
        debug_assert!(events.is_empty(), "those would be handed back as news");
        let mut state = self.state();
        state.armed = false;
        state.notified = false;
        std::mem::swap(&mut state.events, events);
    }

    /// Takes what is there; if nothing is, arms the mailbox. Whether there was something.
    pub(super) fn arm_or_take(&self, events: &mut Vec<WorkerEvent>) -> bool {
        let mut state = self.state();
        let something = std::mem::take(&mut state.notified) || !state.events.is_empty();
        std::mem::swap(&mut state.events, events);
        state.armed = !something;
        something
    }

    /// Takes what is there, and waits for something if nothing is.
    pub(super) fn wait(&self, events: &mut Vec<WorkerEvent>, timeout: Duration) {
        let mut state = self.state();
        if !state.notified && state.events.is_empty() {
            state.armed = true;
            let armed = |state: &mut MailboxState| state.armed;
            let waited = self.changed.wait_timeout_while(state, timeout, armed);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.armed = false;
        state.notified = false;
        std::mem::swap(&mut state.events, events);
    }
}
