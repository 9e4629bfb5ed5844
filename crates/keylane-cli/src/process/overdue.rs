//! Deadline of a command: it gets TERM when its time is over, and KILL a grace time later.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use super::children::ChildProcesses;

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);

/// Deadline of one command.
#[derive(Debug)]
pub(super) struct CommandDeadline<'c> {
    children: &'c ChildProcesses,
    /// The next moment at which it gets a signal.
    next: Option<Instant>,
    /// It has got TERM.
    pub(super) has_passed: bool,
}

impl<'c> CommandDeadline<'c> {
    pub(super) fn new(children: &'c ChildProcesses, timeout: Option<Duration>) -> Self {
        let next = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        CommandDeadline { children, next, has_passed: false }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Sends the signal that is due. Returns the time of the next one.
    pub(super) fn pass(&mut self, child: &Child) -> Option<Instant> {
        if std::mem::replace(&mut self.has_passed, true) {
            self.children.signal(Pid::from_child(child), Signal::KILL);
            self.next = None;
        } else {
            self.children.end(child);
            self.next = Some(Instant::now() + GRACE);
        }
        self.next
    }
}
