//! Bounds on all jobs together: the number of unfinished subtasks and the size of their keys, both
//! of which take memory.
//!
//! Accepted jobs are counted in the engine state. A job whose submission is in progress counts from
//! its first line on, so that several large concurrent uploads cannot exceed the bounds together.
//! Each upload keeps its share in a [`CapacityReservation`], which is released when the job has entered the engine
//! state, was refused, or its client has disconnected. A retry and the result of a split add
//! subtasks too, and reserve capacity for all of them at once.
//!
//! Uploads reserve capacity in steps, so that the engine state is not locked for each line. The
//! sums of all reservations are read and raised under one small lock, so two uploads cannot both
//! get the last capacity. This lock is taken before the lock of the engine state, never while that
//! is held.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine_state::SharedState;
use crate::job_definition::SubmissionLimits;
use crate::request_error::RequestError;

/// Number of subtasks for which an upload reserves capacity at a time.
const STEP: u64 = 1024;

/// Size of keys for which an upload reserves capacity at a time, in bytes.
const STEP_BYTES: u64 = 256 * 1024;

/// Sum of all reservations, and its bounds.
#[derive(Debug)]
pub(super) struct CapacityReservations {
    reserved: Mutex<Capacity>,
    state: Arc<SharedState>,
    /// Maximum number of unfinished subtasks.
    max_subtasks: u64,
    /// Maximum size of their keys, in bytes.
    max_key_bytes: u64,
}

impl CapacityReservations {
    pub(super) fn new(state: Arc<SharedState>, bounds: &SubmissionLimits) -> Self {
        CapacityReservations {
            reserved: Mutex::default(),
            state,
            max_subtasks: bounds.waiting_subtasks,
            max_key_bytes: bounds.waiting_key_bytes,
        }
    }

    fn reserved(&self) -> MutexGuard<'_, Capacity> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Capacity {
    subtasks: u64,
    key_bytes: u64,
}

/// Reservation of one upload, retry or split, released on drop.
#[derive(Debug)]
pub(super) struct CapacityReservation {
    incoming: Arc<CapacityReservations>,
    /// Share of this reservation in `CapacityReservations`.
    taken: Capacity,
    /// Capacity that it needs; at most `taken`, unless the reservation was refused.
    needed: Capacity,
}

impl CapacityReservation {
    pub(super) fn new(incoming: &Arc<CapacityReservations>) -> Self {
        CapacityReservation {
            incoming: Arc::clone(incoming),
            taken: Capacity::default(),
            needed: Capacity::default(),
        }
    }

    /// Reserves capacity for subtasks of which the number is known.
    ///
    /// Returns an error if there is not enough.
    pub(super) fn of(
        incoming: &Arc<CapacityReservations>,
        subtasks: u64,
        key_bytes: u64,
    ) -> Result<Self, RequestError> {
        let mut reservation = CapacityReservation::new(incoming);
        reservation.needed = Capacity { subtasks, key_bytes };
        reservation.check()?;
        Ok(reservation)
    }

    /// Reserves capacity for more subtasks.
    ///
    /// Returns an error if there is not enough. Then the upload must end.
    pub(super) fn take(&mut self, subtasks: u64, key_bytes: u64) -> Result<(), RequestError> {
        self.needed.subtasks += subtasks;
        self.needed.key_bytes += key_bytes;
        let is_enough = self.needed.subtasks <= self.taken.subtasks
            && self.needed.key_bytes <= self.taken.key_bytes;
        // A small job is checked when it is complete, because it may have been submitted before.
        if is_enough || self.needed.subtasks < STEP && self.needed.key_bytes < STEP_BYTES {
            return Ok(());
        }
        self.grow(STEP, STEP_BYTES)
    }

    /// Reserves the missing capacity for a complete job.
    ///
    /// Returns an error if there is not enough.
    pub(super) fn check(&mut self) -> Result<(), RequestError> {
        self.grow(0, 0)
    }

    /// Reserves the needed capacity, and up to `more` beyond it if that is available.
    fn grow(&mut self, more: u64, more_bytes: u64) -> Result<(), RequestError> {
        let incoming = &*self.incoming;
        let mut all = incoming.reserved();
        // Read after the reservations: a job is counted in the engine state before its reservation
        // is released, so it is never missed.
        let (unfinished, key_bytes) = {
            let engine = incoming.state.lock();
            (engine.unfinished, engine.key_bytes)
        };
        let others = Capacity {
            subtasks: unfinished + (all.subtasks - self.taken.subtasks),
            key_bytes: key_bytes + (all.key_bytes - self.taken.key_bytes),
        };
        let (most, waiting) = (incoming.max_subtasks, others.subtasks);
        if waiting + self.needed.subtasks > most {
            let new = self.needed.subtasks;
            return Err(full(format!(
                "{waiting} subtasks are unfinished or being submitted, this job has at least {new}, and the maximum is {most} (`max_waiting_subtasks`)"
            )));
        }
        let (most, have) = (incoming.max_key_bytes, others.key_bytes + self.needed.key_bytes);
        if have > most {
            return Err(full(format!(
                "the keys of all unfinished subtasks would have {have} bytes, and the maximum is {most} (`max_key_bytes`)"
            )));
        }
        let want = Capacity {
            subtasks: (self.needed.subtasks + more).min(incoming.max_subtasks - others.subtasks),
            key_bytes: (self.needed.key_bytes + more_bytes).min(most - others.key_bytes),
        };
        all.subtasks = all.subtasks - self.taken.subtasks + want.subtasks;
        all.key_bytes = all.key_bytes - self.taken.key_bytes + want.key_bytes;
        self.taken = want;
        Ok(())
    }
}

impl Drop for CapacityReservation {
    fn drop(&mut self) {
        let mut all = self.incoming.reserved();
        all.subtasks -= self.taken.subtasks;
        all.key_bytes -= self.taken.key_bytes;
    }
}

fn full(what: String) -> RequestError {
    RequestError::Backlog { what, after: Duration::from_secs(1) }
}
