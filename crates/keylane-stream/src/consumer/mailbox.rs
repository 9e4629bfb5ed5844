//! What is told to the owner, and how it is woken for that.
//!
//! Reports lie in a list under a lock; the owner takes all of them at once. Before it waits, it *arms*
//! the mailbox, which fails if there is something to take. Who then puts something in disarms it and
//! wakes the owner, outside of the lock: one wake-up for a wait, however much comes. A ring without a
//! report counts as something to take. So no report lies there while the owner waits: either it was
//! there before the arming, which then failed, or its sender found the mailbox armed and wakes.
//!
//! The owner waits here or in its source's `poll`, which the source's waker ends. That one is kept by
//! the source until the next `poll` if none is on.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use super::report::Report;

#[derive(Debug)]
pub(super) struct Mailbox {
    contents: Mutex<Contents>,
    /// Notified when an armed mailbox gets something.
    bell: Condvar,
    /// Ends the owner's wait in its source, if anything can.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
struct Contents {
    reports: Vec<Report>,
    /// Somebody has rung since the owner last looked.
    rung: bool,
    /// The owner waits, or is about to.
    armed: bool,
    /// There is no owner any more: what comes is dropped.
    closed: bool,
}

impl Mailbox {
    pub(super) fn new(waker: Option<Waker>) -> Self {
        Mailbox { contents: Mutex::default(), bell: Condvar::new(), waker }
    }

    pub(super) fn has_waker(&self) -> bool {
        self.waker.is_some()
    }

    /// No section unwinds.
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts a report in.
    pub(super) fn push(&self, report: Report) {
        self.put(report, false);
    }

    /// Puts a report in that the owner is to see at once, whatever it waits for.
    pub(super) fn demand(&self, report: Report) {
        self.put(report, true);
    }

    fn put(&self, report: Report, at_once: bool) {
        let mut contents = self.contents();
        if contents.closed {
            // It may have a turn, which must not end under the lock.
            drop(contents);
            return drop(report);
        }
        contents.reports.push(report);
        contents.armed |= at_once;
        self.wake(contents);
    }

    /// Drops what is there and what comes.
    pub(super) fn close(&self) {
        let mut contents = self.contents();
        contents.closed = true;
        let reports = std::mem::take(&mut contents.reports);
        drop(contents);
        drop(reports);
    }

    /// Makes the owner look around.
    pub(super) fn ring(&self) {
        let mut contents = self.contents();
        contents.rung = true;
        self.wake(contents);
    }

    fn wake(&self, mut contents: MutexGuard<'_, Contents>) {
        if !std::mem::take(&mut contents.armed) {
            return;
        }
        drop(contents);
        self.bell.notify_one();
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }

    /// Takes what is there, in exchange for an empty list.
    pub(super) fn take(&self, reports: &mut Vec<Report>) {
        debug_assert!(reports.is_empty(), "those would be handed back as news");
        let mut contents = self.contents();
        contents.armed = false;
        contents.rung = false;
        std::mem::swap(&mut contents.reports, reports);
    }

    /// Takes what is there; if nothing is, arms the mailbox. Whether there was something.
    pub(super) fn arm_or_take(&self, reports: &mut Vec<Report>) -> bool {
        let mut contents = self.contents();
        let something = std::mem::take(&mut contents.rung) || !contents.reports.is_empty();
        std::mem::swap(&mut contents.reports, reports);
        contents.armed = !something;
        something
    }

    /// Takes what is there, and waits for something if nothing is.
    pub(super) fn wait(&self, reports: &mut Vec<Report>, timeout: Duration) {
        let mut contents = self.contents();
        if !contents.rung && contents.reports.is_empty() {
            contents.armed = true;
            let armed = |contents: &mut Contents| contents.armed;
            let waited = self.bell.wait_timeout_while(contents, timeout, armed);
            contents = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        contents.armed = false;
        contents.rung = false;
        std::mem::swap(&mut contents.reports, reports);
    }
}
