//! Deadline of a command: it gets TERM when its time is over, and KILL a grace time later. Another grace time later, output
//! that a process outside of its group keeps open is not awaited any more.

use std::time::{Duration, Instant};

use rustix::process::Signal;

/// Time between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);

/// Deadline of one command.
#[derive(Debug)]
pub(super) struct CommandDeadline {
    timeout: Option<Duration>,
    /// The next moment at which it has passed.
    next: Option<Instant>,
    /// Signals that are still to be sent, the last one first.
    signals: Vec<Signal>,
}

impl CommandDeadline {
    pub(super) fn new(timeout: Option<Duration>) -> Self {
        let next = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        CommandDeadline { timeout, next, signals: vec![Signal::KILL, Signal::TERM] }
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Sends the signal that is due. Returns the time of the next call, or `None` if there is nothing
    /// left to wait for.
    pub(super) fn pass(&mut self, send: impl FnOnce(Signal)) -> Option<Instant> {
        let signal = self.signals.pop();
        self.next = signal.map(|_| Instant::now() + GRACE);
        if let Some(signal) = signal {
            send(signal);
        }
        self.next
    }

    /// Returns the timeout if it is over.
    pub(super) fn exceeded(&self) -> Option<Duration> {
        self.timeout.filter(|_| self.signals.len() < 2)
    }
}
