//! Health of the store, and the errors that clients get when it cannot be written or read.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::clock::Clock;
use crate::request_error::RequestError;
use crate::store::{ReadError, WriteError};

/// Minimum interval between log messages about requests refused because the store is full.
const FULL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Health of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreHealth {
    Well,
    /// Nothing is written until the disk has free space.
    Full,
    /// Nothing is written until the database answers, or another program unlocks the file.
    Unavailable,
    /// Nothing is written any more.
    Failed(String),
}

impl StoreHealth {
    /// Returns the error for requests while nothing is written.
    pub(super) fn refusal(&self) -> Option<RequestError> {
        match self {
            StoreHealth::Well => None,
            StoreHealth::Full => Some(RequestError::StoreFull),
            StoreHealth::Unavailable => Some(unavailable()),
            StoreHealth::Failed(why) => Some(RequestError::StoreFailed(why.clone())),
        }
    }
}

/// Known condition of the store.
#[derive(Debug)]
pub(crate) struct StoreStatus {
    clock: Arc<Clock>,
    health: Mutex<StoreHealth>,
    /// The last write for a client found no free space. Set when a client gets that answer, cleared
    /// by every later write. It stops nothing: running work may end in the space that is left,
    /// which may be too small for a new job. A store that cannot be written at all is reported by
    /// `health`.
    is_out_of_room: AtomicBool,
    /// Steady time of the last log message about a full store.
    full_logged_at: Mutex<Option<Duration>>,
}

impl StoreStatus {
    pub(super) fn new(clock: Arc<Clock>) -> Self {
        StoreStatus {
            clock,
            health: Mutex::new(StoreHealth::Well),
            is_out_of_room: AtomicBool::new(false),
            full_logged_at: Mutex::default(),
        }
    }

    pub(crate) fn health(&self) -> MutexGuard<'_, StoreHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the health of the store. Returns true if it changed.
    pub(super) fn set_health(&self, health: StoreHealth) -> bool {
        let mut now = self.health();
        // A failed store stays failed until it is opened again.
        let is_news = !matches!(*now, StoreHealth::Failed(_)) && *now != health;
        if is_news {
            match &health {
                StoreHealth::Well => tracing::info!("the store is written again"),
                StoreHealth::Unavailable => tracing::error!(
                    "the store cannot be written now: nothing starts until it can be"
                ),
                StoreHealth::Full => {
                    tracing::error!("the store is full: nothing starts until there is free space")
                }
                StoreHealth::Failed(why) => tracing::error!(%why, "the store has failed"),
            }
            *now = health;
        }
        is_news
    }

    /// Returns the reason why the store accepts no new jobs, if there is one.
    pub(crate) fn takes_no_jobs(&self) -> Option<String> {
        match &*self.health() {
            StoreHealth::Failed(why) => {
                Some(format!("it has failed, and the server must be started again: {why}"))
            }
            StoreHealth::Full => {
                Some("the disk, or the size that the store may have, is full".to_owned())
            }
            StoreHealth::Unavailable => {
                Some("it cannot be written now; it is tried again each second".to_owned())
            }
            StoreHealth::Well if self.is_out_of_room() => Some(
                "a new job was refused: the disk, or the size that the store may have, is full"
                    .to_owned(),
            ),
            StoreHealth::Well => None,
        }
    }

    /// Returns true if the last write for a client found no free space.
    pub(super) fn is_out_of_room(&self) -> bool {
        self.is_out_of_room.load(Relaxed)
    }

    fn found_no_room(&self) {
        if self.is_out_of_room.swap(true, Relaxed) {
            return;
        }
        // Small requests may succeed between large ones that are refused, so log at most once per
        // interval.
        let now = self.clock.steady();
        let mut logged_at = self.full_logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_none_or(|logged_at| now.saturating_sub(logged_at) >= FULL_LOG_INTERVAL) {
            *logged_at = Some(now);
            tracing::error!("the store is full: requests are refused with status 507");
        }
    }

    /// Records that a write succeeded, or that space was freed.
    pub(super) fn found_room(&self) {
        // The flag is rarely set. Loading it first keeps its cache line shared.
        if self.is_out_of_room() && self.is_out_of_room.swap(false, Relaxed) {
            tracing::debug!("the store has free space again: the last write succeeded");
        }
    }

    /// Converts an error of the store's writer into the answer for clients.
    pub(super) fn write_refused(&self, error: WriteError) -> RequestError {
        match error {
            WriteError::Full => {
                self.found_no_room();
                RequestError::StoreFull
            }
            WriteError::TooLarge { what, most } => {
                RequestError::TooLarge(format!("at most {most} {what} are allowed"))
            }
            // The earlier request of this client has gone without waiting for its answer.
            WriteError::Duplicate { .. } => {
                let why = "a request with this key or id was being handled; ask again";
                RequestError::Conflict(why.into())
            }
            WriteError::OtherVersion { schedule } => {
                RequestError::Conflict(format!("schedule {schedule} has changed meanwhile"))
            }
            WriteError::Failed { .. } => {
                let why = error.to_string();
                self.set_health(StoreHealth::Failed(why.clone()));
                RequestError::StoreFailed(why)
            }
            // Another request changed it first.
            WriteError::NoSuchJob { .. } | WriteError::NoSuchSubtask { .. } => {
                RequestError::Gone { what: "the job".into() }
            }
            WriteError::Ended { .. } | WriteError::NotEnded { .. } => {
                RequestError::Conflict(format!("{error}; another request changed it meanwhile"))
            }
            WriteError::Busy => unavailable(),
        }
    }
}

/// Returns the answer for clients while the store cannot be written.
fn unavailable() -> RequestError {
    let why = "its database does not answer, or another program locks its file";
    RequestError::StoreUnavailable(why.into())
}

/// Converts a read error of the store into the answer for clients.
pub(super) fn read_refused(error: ReadError) -> RequestError {
    tracing::error!(%error, "the store cannot be read");
    match error {
        // Only this row is damaged: the store and all other jobs continue.
        ReadError::Damaged(damage) => RequestError::Damaged(damage.to_string()),
        ReadError::TooLong => {
            RequestError::Backlog { what: error.to_string(), after: Duration::from_secs(10) }
        }
        ReadError::Unavailable { .. } => RequestError::StoreUnavailable(error.to_string()),
        error => RequestError::StoreFailed(error.to_string()),
    }
}
