//! What happened in a run, and the promises that it breaks.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tokio::time::Instant;

/// Time within which an owner that works has started work and written.
const RECENT: Duration = Duration::from_secs(5);

/// What happened, as it is known outside of the nodes.
#[derive(Debug)]
pub(super) struct History {
    begin: Instant,
    events: RefCell<Vec<String>>,
    broken: RefCell<Vec<String>>,
    /// Number of takeovers that were committed, also of those that a promotion has lost.
    takeovers: Cell<u64>,
    owners: RefCell<Vec<PastOwner>>,
    /// Number of writes that were begun.
    begun: Cell<u64>,
    /// Writes that were acknowledged.
    acknowledged: RefCell<BTreeSet<u64>>,
    /// Writes of which the writer has said that they were not written.
    refused: RefCell<BTreeSet<u64>>,
    /// Writes that a promotion has lost.
    lost: RefCell<BTreeSet<u64>>,
    last_start: Cell<Duration>,
    last_write: Cell<Duration>,
}

/// Owner of a takeover.
struct PastOwner {
    node: u8,
    takeover: u64,
    /// Returns whether its lease holds; `None` if its process has ended.
    holds: Box<dyn Fn() -> Option<bool>>,
}

impl fmt::Debug for PastOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} of takeover {}", self.node, self.takeover)
    }
}

impl History {
    pub(super) fn new() -> Self {
        History {
            begin: Instant::now(),
            events: RefCell::default(),
            broken: RefCell::default(),
            takeovers: Cell::new(0),
            owners: RefCell::default(),
            begun: Cell::new(0),
            acknowledged: RefCell::default(),
            refused: RefCell::default(),
            lost: RefCell::default(),
            last_start: Cell::default(),
            last_write: Cell::default(),
        }
    }

    /// Returns the time since the begin of the run.
    pub(super) fn time(&self) -> Duration {
        self.begin.elapsed()
    }

    pub(super) fn add(&self, event: &str) {
        self.events.borrow_mut().push(format!("{:>7.3} {event}", self.time().as_secs_f64()));
    }

    fn breaks(&self, promise: &str) {
        self.add(promise);
        self.broken.borrow_mut().push(promise.to_owned());
    }

    /// Records a takeover, and returns its number. No earlier owner may start work any more.
    pub(super) fn takeover(&self) -> u64 {
        self.takeovers.set(self.takeovers.get() + 1);
        self.owners.borrow_mut().retain(|owner| (owner.holds)().is_some());
        for owner in &*self.owners.borrow() {
            self.check_lease(owner);
        }
        self.takeovers.get()
    }

    /// Records the owner of a takeover, and how to learn whether its lease holds.
    pub(super) fn own(&self, node: u8, takeover: u64, holds: impl Fn() -> Option<bool> + 'static) {
        self.owners.borrow_mut().push(PastOwner { node, takeover, holds: Box::new(holds) });
    }

    /// Records that the owner of a takeover has extended its lease.
    pub(super) fn extend(&self, takeover: u64) {
        for owner in self.owners.borrow().iter().filter(|owner| owner.takeover == takeover) {
            self.check_lease(owner);
        }
    }

    fn check_lease(&self, owner: &PastOwner) {
        if owner.takeover != self.takeovers.get() && (owner.holds)() == Some(true) {
            self.breaks(&format!("node {} may start work after another takeover", owner.node));
        }
    }

    /// Records that an owner starts work.
    pub(super) fn start(&self) {
        self.last_start.set(self.time());
    }

    /// Returns the number of a new write.
    pub(super) fn write(&self) -> u64 {
        self.begun.set(self.begun.get() + 1);
        self.begun.get()
    }

    pub(super) fn acknowledge(&self, write: u64) {
        self.last_write.set(self.time());
        self.acknowledged.borrow_mut().insert(write);
    }

    pub(super) fn refuse(&self, write: u64) {
        self.refused.borrow_mut().insert(write);
    }

    pub(super) fn lose(&self, write: u64) {
        self.lost.borrow_mut().insert(write);
    }

    /// Judges the log of writes at the end of the run.
    pub(super) fn judge_end(&self, log: &[u64]) {
        let written: BTreeSet<u64> = log.iter().copied().collect();
        if written.len() < log.len() {
            self.breaks("a write is there twice");
        }
        let (lost, acknowledged) = (self.lost.borrow(), self.acknowledged.borrow());
        if let Some(write) = acknowledged.iter().find(|w| !written.contains(w) && !lost.contains(w))
        {
            self.breaks(&format!("write {write} was acknowledged, and is missing"));
        }
        if let Some(write) = self.refused.borrow().iter().find(|write| written.contains(write)) {
            self.breaks(&format!("write {write} was refused, and is there"));
        }
        for (last, what) in [(&self.last_start, "starts work"), (&self.last_write, "writes")] {
            if last.get() + RECENT < self.time() {
                self.breaks(&format!("no node {what} long after the end of the faults"));
            }
        }
    }

    pub(super) fn broken(&self) -> String {
        self.broken.borrow().join("\n")
    }

    /// Returns what happened, an event in each line.
    pub(super) fn text(&self) -> String {
        self.events.borrow().join("\n")
    }
}
