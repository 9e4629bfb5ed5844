//! Schedules: create jobs repeatedly, at the times of a cron pattern.
//!
//! **Each time creates at most one job, across restarts and crashes, and is skipped only for a
//! reason that the schedule reports.** The stored schedule has the time up to which everything was
//! *decided*. The decision about a time is written in the transaction that accepts its job, and
//! only if the stored schedule has not changed in the meantime (`Changes::schedule`). So there is
//! no job without its decision and no such decision without its job; after a crash, every undecided
//! time is due.
//!
//! A change of a schedule holds the lock of its name from the read until the change is on the disk.
//! The schedule in memory changes on the writer's thread, in commit order. A request whose client
//! has disconnected runs to its end, so the lock is not released early.
//!
//! `table.rs` has the schedules in memory, `change.rs` their changes. `firing_times.rs` computes the
//! times and the next decision, `fire.rs` carries it out, and `command.rs` has the client commands.

mod change;
mod command;
mod fire;
mod firing_times;
mod table;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::audit::AuditLog;
use super::clock::Clock;
use super::engine_state::SharedState;
use super::events::EventHub;
use super::executor::Executor;
use super::store_status::StoreStatus;
use super::submission::Submission;
use super::wall_clock::WallClock;
use crate::job_definition::SubmissionLimits;
use crate::kind_registry::KindRegistry;
use crate::store::{ReadError, Store};
use crate::tenant::TenantRegistry;

#[cfg(any(test, fuzzing))]
pub use firing_times::fuzz_cron;
pub(super) use table::ScheduleTable;

/// Schedules of the service: their commands, and the task that creates their jobs.
#[derive(Debug)]
pub(crate) struct Schedules {
    pub(super) table: Arc<ScheduleTable>,
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) tenants: Arc<TenantRegistry>,
    pub(super) bounds: SubmissionLimits,
    pub(super) wall: WallClock,
    pub(super) clock: Arc<Clock>,
    pub(super) executor: Executor,
    pub(super) store: Store,
    pub(super) status: Arc<StoreStatus>,
    pub(super) state: Arc<SharedState>,
    pub(super) events: Arc<EventHub>,
    pub(super) audit: Arc<AuditLog>,
    pub(super) submission: Arc<Submission>,
    /// Cancelled when the service has stopped.
    pub(super) stopped: CancellationToken,
}

impl Schedules {
    /// Returns the schedules in memory.
    pub(super) fn table(&self) -> &ScheduleTable {
        &self.table
    }

    /// Takes over the schedules of the store.
    pub(super) fn recover(&self) -> Result<(), ReadError> {
        self.table.recover(self.store.schedule_rows()?, self.wall.now());
        Ok(())
    }
}
