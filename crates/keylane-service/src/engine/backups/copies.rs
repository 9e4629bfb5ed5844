//! Copies of the store, one at a time, and those for administrators.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io::ErrorKind;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::backup_schedule::{BackupCounters, BackupSchedule};
use crate::engine::audit::{AuditLog, AuditedRequest};
use crate::engine::clock::Clock;
use crate::engine::executor::Executor;
use crate::engine::store_status::StoreStatus;
use crate::engine::wall_clock::WallClock;
use crate::request_error::RequestError;
use crate::store::{BackupError, Changes, Store};

/// Makes copies of the store.
#[derive(Debug)]
pub(crate) struct Backups {
    pub(super) store: Store,
    pub(super) clock: Arc<Clock>,
    pub(super) wall: WallClock,
    status: Arc<StoreStatus>,
    pub(super) executor: Executor,
    audit: Arc<AuditLog>,
    /// Copies that the service makes by itself.
    pub(super) schedule: Option<BackupSchedule>,
    /// Cancelled when the service has stopped.
    pub(super) stopped: CancellationToken,
    /// One permit, held while a copy is made.
    turn: Arc<Semaphore>,
    pub(super) counters: BackupCounters,
}

/// What [`Backups`] uses.
pub(in crate::engine) struct BackupDependencies {
    pub(in crate::engine) store: Store,
    pub(in crate::engine) clock: Arc<Clock>,
    pub(in crate::engine) wall: WallClock,
    pub(in crate::engine) status: Arc<StoreStatus>,
    pub(in crate::engine) executor: Executor,
    pub(in crate::engine) audit: Arc<AuditLog>,
    pub(in crate::engine) stopped: CancellationToken,
}

impl Backups {
    pub(in crate::engine) fn new(
        schedule: Option<BackupSchedule>,
        uses: BackupDependencies,
    ) -> Self {
        let BackupDependencies { store, clock, wall, status, executor, audit, stopped } = uses;
        let (turn, counters) = (Arc::new(Semaphore::new(1)), BackupCounters::default());
        #[rustfmt::skip]
        let backups = Backups {
            store, clock, wall, status, executor, audit, schedule, stopped, turn, counters,
        };
        backups
    }

    /// Copies the store for an administrator. The copy has no name and vanishes when the file is closed. The
    /// entry of the audit log is on the disk on return.
    ///
    /// If the future is dropped, the copy is completed and thrown away.
    ///
    /// # Errors
    /// Returns an error if another copy is being made, this one cannot be completed, or the audit log
    /// cannot be written.
    pub(crate) async fn copy(self: &Arc<Self>, act: &AuditedRequest) -> Result<File, RequestError> {
        let turn = self.turn()?;
        let this = Arc::clone(self);
        let copied = self.executor.blocking_or_panic(move || {
            let _turn = turn;
            this.store.backup_unnamed(&this.stopped)
        });
        let file = copied.await.map_err(refusal)?;
        let mut changes = Changes::new();
        self.audit.add(act, &mut changes);
        let written = self.store.submit(changes).await;
        written.map_err(|error| self.status.write_refused(error))?;
        self.audit.committed(act);
        Ok(file)
    }

    /// Writes the metrics in the text format of Prometheus.
    pub(in crate::engine) fn write_metrics(&self, to: &mut String) -> fmt::Result {
        if self.schedule.is_none() {
            return Ok(());
        }
        self.counters.write_metrics(to)
    }

    /// Returns the permission to make a copy, unless one is being made.
    pub(super) fn turn(&self) -> Result<OwnedSemaphorePermit, RequestError> {
        let turn = Arc::clone(&self.turn).try_acquire_owned();
        turn.map_err(|_| RequestError::Busy("another backup is being made".to_owned()))
    }
}

fn refusal(error: BackupError) -> RequestError {
    match error {
        BackupError::TooSlow => RequestError::Busy(error.to_string()),
        BackupError::Stopped => RequestError::Draining,
        BackupError::NotInFile => RequestError::Conflict(error.to_string()),
        BackupError::Io { source, .. } if source.kind() == ErrorKind::StorageFull => {
            RequestError::StoreFull
        }
        error => {
            let text = with_cause(&error);
            tracing::error!(error = text, "a backup failed");
            RequestError::BackupFailed(text)
        }
    }
}

/// The error and its cause.
pub(super) fn with_cause(error: &BackupError) -> String {
    match error.source() {
        Some(cause) => format!("{error}: {cause}"),
        None => error.to_string(),
    }
}
