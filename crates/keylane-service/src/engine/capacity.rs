//! Bounds on all jobs together: the number of unfinished subtasks and the size of their keys, both
//! of which take memory; and the bound of each tenant on its unfinished subtasks.
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

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::engine_state::SharedState;
use crate::job_definition::SubmissionLimits;
use crate::request_error::RequestError;
use crate::tenant::{Tenant, TenantRegistry};

/// Number of subtasks for which an upload reserves capacity at a time.
const STEP: u64 = 1024;

/// Size of keys for which an upload reserves capacity at a time, in bytes.
const STEP_BYTES: u64 = 256 * 1024;

/// Sum of all reservations, and its bounds.
#[derive(Debug)]
pub(super) struct CapacityReservations {
    reserved: Mutex<Reserved>,
    state: Arc<SharedState>,
    tenants: Arc<TenantRegistry>,
    /// Maximum number of unfinished subtasks.
    max_subtasks: u64,
    /// Maximum size of their keys, in bytes.
    max_key_bytes: u64,
}

impl CapacityReservations {
    pub(super) fn new(
        state: Arc<SharedState>,
        tenants: Arc<TenantRegistry>,
        bounds: &SubmissionLimits,
    ) -> Self {
        CapacityReservations {
            reserved: Mutex::default(),
            state,
            tenants,
            max_subtasks: bounds.waiting_subtasks,
            max_key_bytes: bounds.waiting_key_bytes,
        }
    }

    fn reserved(&self) -> MutexGuard<'_, Reserved> {
        self.reserved.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sums of the reservations.
#[derive(Debug, Default)]
struct Reserved {
    all: Capacity,
    /// Subtasks of each tenant that has reservations; `None`: the default one.
    of_tenants: HashMap<Option<Arc<str>>, u64>,
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
    /// Tenant of the job; `None`: the default one.
    tenant: Option<Arc<str>>,
    /// Share of this reservation in `CapacityReservations`.
    taken: Capacity,
    /// Capacity that it needs; at most `taken`, unless the reservation was refused.
    needed: Capacity,
}

impl CapacityReservation {
    pub(super) fn new(incoming: &Arc<CapacityReservations>, tenant: Option<&str>) -> Self {
        CapacityReservation {
            incoming: Arc::clone(incoming),
            tenant: tenant.map(Arc::from),
            taken: Capacity::default(),
            needed: Capacity::default(),
        }
    }

    /// Reserves capacity for subtasks of which the number is known.
    ///
    /// Returns an error if there is not enough.
    pub(super) fn of(
        incoming: &Arc<CapacityReservations>,
        tenant: Option<&str>,
        subtasks: u64,
        key_bytes: u64,
    ) -> Result<Self, RequestError> {
        let mut reservation = CapacityReservation::new(incoming, tenant);
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
        let mut reserved = incoming.reserved();
        let all = reserved.all;
        // Read after the reservations: a job is counted in the engine state before its reservation
        // is released, so it is never missed.
        let (unfinished, of_tenant, key_bytes) = {
            let engine = incoming.state.lock();
            let of_tenant = engine.unfinished.of(self.tenant.as_deref());
            (engine.unfinished.all(), of_tenant, engine.key_bytes)
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
        let most = self.most_of_tenant(&reserved, of_tenant)?;
        let most = most.min(incoming.max_subtasks - others.subtasks);
        let want = Capacity {
            subtasks: (self.needed.subtasks + more).min(most),
            key_bytes: (self.needed.key_bytes + more_bytes)
                .min(incoming.max_key_bytes - others.key_bytes),
        };
        reserved.replace(&self.tenant, self.taken, want);
        self.taken = want;
        Ok(())
    }

    /// Maximum number of subtasks of this reservation by the limit of the tenant, of which
    /// `unfinished` are counted.
    ///
    /// Returns an error if it needs more.
    fn most_of_tenant(&self, reserved: &Reserved, unfinished: u64) -> Result<u64, RequestError> {
        let tenant = self.tenant.as_deref();
        let Some(most) = self.incoming.tenants.get(tenant).max_waiting else {
            return Ok(u64::MAX);
        };
        let others =
            reserved.of_tenants.get(&self.tenant).map_or(0, |all| all - self.taken.subtasks);
        let (waiting, new) = (unfinished + others, self.needed.subtasks);
        if waiting + new > most {
            let name = tenant.unwrap_or(Tenant::DEFAULT_NAME);
            return Err(full(format!(
                "{waiting} subtasks of the tenant `{name}` are unfinished or being submitted, this job has at least {new}, and the maximum is {most} (`max_waiting`)"
            )));
        }
        Ok(most - waiting)
    }
}

impl Reserved {
    /// Replaces a share of a reservation.
    fn replace(&mut self, tenant: &Option<Arc<str>>, old: Capacity, new: Capacity) {
        self.all.subtasks = self.all.subtasks - old.subtasks + new.subtasks;
        self.all.key_bytes = self.all.key_bytes - old.key_bytes + new.key_bytes;
        if old.subtasks == new.subtasks {
            return;
        }
        let of_tenant = self.of_tenants.entry(tenant.clone()).or_default();
        *of_tenant = *of_tenant - old.subtasks + new.subtasks;
        if *of_tenant == 0 {
            self.of_tenants.remove(tenant);
        }
    }
}

impl Drop for CapacityReservation {
    fn drop(&mut self) {
        self.incoming.reserved().replace(&self.tenant, self.taken, Capacity::default());
    }
}

fn full(what: String) -> RequestError {
    RequestError::Backlog { what, after: Duration::from_secs(1) }
}
