//! A record between its admission and its completion.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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
    /// The operator has paused the record. Only the coordinator changes it.
    paused: AtomicBool,
    /// The record has its turn, and waits without a time. Changed under the timer's lock.
    parked: AtomicBool,
    /// Number of failed attempts after which the operator wants the next one at once. Changed under
    /// the timer's lock.
    hurried: AtomicU32,
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

    /// Allows the first attempt again.
    pub(super) fn unhold(&self) {
        self.held.store(false, Ordering::Release);
    }

    /// Lets the next attempt follow at once after this number of failed ones.
    pub(super) fn hurry(&self, failed: u32) {
        self.hurried.store(failed, Ordering::Release);
    }

    /// Sets whether the operator has paused the record.
    ///
    /// A worker begins an attempt and then reads this flag; the coordinator sets it and then reads
    /// the number of running attempts. Both are sequentially consistent, so that one of them sees the
    /// other: an attempt either sees the pause, or is counted as running when the pause is confirmed.
    pub(super) fn set_paused(&self, is_paused: bool) {
        self.paused.store(is_paused, Ordering::SeqCst);
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }

    pub(super) fn set_parked(&self, is_parked: bool) {
        self.parked.store(is_parked, Ordering::Release);
    }

    /// Returns whether the record has its turn, and waits without a time.
    pub(super) fn is_parked(&self) -> bool {
        self.parked.load(Ordering::Acquire)
    }
}

impl InFlight {
    pub(super) fn new(
        assignment: Arc<Assignment>,
        delivered: DeliveredRecord,
        index: usize,
    ) -> Self {
        let context = RecordContext {
            assignment,
            delivered,
            index,
            cancelled: AtomicBool::new(false),
            held: AtomicBool::new(false),
            paused: AtomicBool::new(false),
            parked: AtomicBool::new(false),
            hurried: AtomicU32::new(0),
        };
        InFlight::of(Arc::new(context))
    }

    /// Makes a record that no attempt was made at ready for the pool.
    pub(super) fn of(context: Arc<RecordContext>) -> Self {
        InFlight { context, attempts: RecordFailures::default(), turn: None }
    }

    /// Keeps the turn of the current call, unless this is a retry. A retry already holds the guard
    /// of its key, and its call runs in a lane of its own.
    pub(super) fn keep(&mut self, turn: &mut dyn LaneTurn) {
        self.turn.get_or_insert_with(|| turn.keep());
    }

    /// Returns whether no attempt may start now: the operator has paused the record, or an earlier one
    /// has stopped its key before its first attempt.
    pub(super) fn must_wait(&self) -> bool {
        let is_held = || self.context.held.load(Ordering::Acquire);
        self.context.is_paused() || self.attempts.failed() == 0 && is_held()
    }

    /// Returns whether the operator wants the next attempt at once.
    pub(super) fn is_hurried(&self) -> bool {
        let failed = self.attempts.failed();
        failed > 0 && self.context.hurried.load(Ordering::Acquire) == failed
    }

    /// Starts an attempt, even if the record [must wait](Self::must_wait). Returns `None` if the
    /// assignment is closed.
    pub(super) fn begin(&self, now: Instant) -> Option<RunningAttempt> {
        self.context.assignment.begin(now)
    }
}
