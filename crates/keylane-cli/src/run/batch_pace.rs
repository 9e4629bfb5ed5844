//! Pace of the records of a run with batches: the reader waits before each, as the records of a batch
//! start together.

use std::thread;
use std::time::{Duration, Instant};

use keylane::Rate;

/// Times at which records may be added to batches.
#[derive(Debug)]
pub(super) struct RecordPace {
    interval: Duration,
    next: Instant,
}

impl RecordPace {
    pub(super) fn new(rate: Rate) -> Self {
        RecordPace { interval: rate.interval(), next: Instant::now() }
    }

    /// Waits until the next record may be added.
    pub(super) fn wait(&self) {
        thread::sleep(self.next.saturating_duration_since(Instant::now()));
    }

    /// Counts a record that was added.
    pub(super) fn added(&mut self) {
        let from = self.next.max(Instant::now());
        self.next = from.checked_add(self.interval).unwrap_or(from);
    }
}
