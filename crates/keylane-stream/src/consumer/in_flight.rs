//! A record between its admission and its completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::assignment::{Assignment, RunningAttempt};
use super::cancellation::CancelTarget;
use super::key_guard::{KeyGuard, LaneTurn};
use crate::DeliveredRecord;
use crate::retry::RecordFailures;

/// An admitted record on its way through the pool.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) context: Arc<RecordContext>,
    pub(super) attempts: RecordFailures,
    /// Guard of the record's key, if it is held beyond the handler's call.
    pub(super) turn: Option<KeyGuard>,
}

/// Data that all attempts at a record share.
#[derive(Debug)]
pub(super) struct RecordContext {
    pub(super) assignment: Arc<Assignment>,
    pub(super) delivered: DeliveredRecord,
    /// Index of the record's entry in the partition's slab.
    pub(super) index: usize,
    /// The running attempt was cancelled, so its failure does not count.
    cancelled: AtomicBool,
    /// An earlier record has stopped the key.
    held: AtomicBool,
}

impl CancelTarget for RecordContext {
    fn mark_cancelled(&self) {
        self.cancelled.store(true, Ordering::Release);
    }
}

impl RecordContext {
    /// Returns whether the running attempt was cancelled. No other attempt of the assignment
    /// follows it.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }

    /// Keeps the record from its first attempt, if that has not begun.
    pub(super) fn hold(&self) {
        self.held.store(true, Ordering::Release);
    }
}

impl InFlight {
    pub(super) fn new(
        assignment: Arc<Assignment>,
        delivered: DeliveredRecord,
        index: usize,
    ) -> Self {
        let (cancelled, held) = (AtomicBool::new(false), AtomicBool::new(false));
        let context = Arc::new(RecordContext { assignment, delivered, index, cancelled, held });
        InFlight { context, attempts: RecordFailures::default(), turn: None }
    }

    /// Keeps the turn of the current call, unless this is a retry. A retry already holds the guard
    /// of its key, and its call runs in a lane of its own.
    pub(super) fn keep(&mut self, turn: &mut dyn LaneTurn) {
        self.turn.get_or_insert_with(|| turn.keep());
    }

    /// Returns whether the record must not begin, because an earlier one has stopped its key.
    pub(super) fn is_held(&self) -> bool {
        self.context.held.load(Ordering::Acquire)
    }

    pub(super) fn begin(&self, now: Instant) -> Option<RunningAttempt> {
        self.context.assignment.begin(now)
    }
}
