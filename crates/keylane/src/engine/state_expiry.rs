//! Idle time of the states of keys, and whether a sweep is scheduled. `key_states.rs` has the proof.

use std::time::Duration;

use crate::sync::{AtomicBool, Ordering};

/// Time for which states outlive the tasks of their keys, and their sweep.
pub(crate) struct StateExpiry {
    /// Time in nanoseconds.
    pub(super) idle: u64,
    /// Whether a sweep is scheduled, or is about to be.
    is_scheduled: AtomicBool,
}

impl StateExpiry {
    pub(super) fn new(idle: Duration) -> Self {
        let idle = u64::try_from(idle.as_nanos()).unwrap_or(u64::MAX);
        StateExpiry { idle, is_scheduled: AtomicBool::new(false) }
    }

    /// Returns whether the caller must schedule the next sweep.
    pub(super) fn must_schedule(&self) -> bool {
        !self.is_scheduled.swap(true, Ordering::AcqRel)
    }

    /// Begins a sweep: states that are put from here on need another one.
    pub(super) fn begin_sweep(&self) {
        // An exchange, not a store, so that the sweep sees the states of puts that read true.
        self.is_scheduled.swap(false, Ordering::AcqRel);
    }
}
