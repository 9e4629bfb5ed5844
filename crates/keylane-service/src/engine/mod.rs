//! The service without its network: accepts jobs, orders and runs their subtasks, writes their
//! outcomes, and answers queries.
//!
//! ```text
//! submission ──▶ store ──▶ scheduler ──▶ dispatch ──▶ attempt ──▶ store ──▶ clients
//!                (on the   (next         (slot, key,  (handler,   (on the   (counts,
//!                disk)     subtask)      rate free)   lease)      disk)     events)
//! ```
//!
//! `engine_state.rs` has the shared state and its protocol.

mod again;
mod ask;
mod attempt;
mod audit;
mod batch;
mod begin;
mod calendar;
mod claims;
mod client_id;
mod clock;
mod command;
mod dispatch;
mod embedded;
mod ends;
mod engine_state;
pub(crate) mod events;
mod failures;
mod feeds;
mod fences;
mod grant;
mod holds;
mod intake;
mod isolate;
mod lease;
mod logs;
mod made;
mod metrics;
mod order_check;
mod plan;
mod record;
mod remote;
mod retention;
mod room;
mod schedules;
mod service;
mod steer;
mod ticker;
mod timeline;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use keylane::allocate::Order;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::JobId;
use crate::head::Bounds;
use crate::kind::Kinds;
use crate::refused::Refused;
use crate::store::Store;

pub(crate) use again::{Before, Keyed, KeyedClaim};
pub(crate) use ask::{ResultOrder, Wanted};
pub(crate) use audit::{Act, Action, Answered};
pub(crate) use batch::key_in_batch;
pub use calendar::ManualClock;
pub(crate) use client_id::check as check_client_id;
pub(crate) use clock::Clock;
pub(crate) use command::KeyCommand;
pub(crate) use events::{Followed, Follower, FollowerText, event, sse_text};
pub(crate) use feeds::{Feed, Reader};
pub(crate) use intake::{Intake, SubmitTicket, Submitted};
pub(crate) use record::StoreHealth;
pub(crate) use remote::{MAX_CLAIM_WAIT, MAX_LEASES};
pub use service::{Service, ServiceBuilder};

/// Settings of a service.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Path of the store's file.
    pub path: PathBuf,
    /// Maximum number of concurrent subtasks, including those of remote workers. Default: 64.
    pub slots: usize,
    /// Policy that decides which job is served next. Default: the four rules.
    pub order: Order,
    /// Limits of submitted jobs.
    pub bounds: Bounds,
    /// Retention time of finished jobs; unlimited if `None`. Default: a week.
    pub keep: Option<Duration>,
    /// Retention time of idempotency keys. Default: a day.
    pub keep_idempotency: Duration,
    /// Retention time of entries in the audit log; limited only by `most_audit` if `None`. Default:
    /// 90 days.
    pub keep_audit: Option<Duration>,
    /// Maximum number of entries in the audit log, at least 1; the oldest are removed first.
    /// Default: 100,000, about 40 MB.
    pub most_audit: u64,
    /// Settings of the store.
    pub store: crate::store::Settings,
    /// Wall clock of the service, for tests. Default: the system clock.
    pub clock: Option<ManualClock>,
}

impl Settings {
    /// Creates default settings with the store at `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        const DAY: Duration = Duration::from_secs(24 * 3600);
        Settings {
            path: path.into(),
            slots: 64,
            order: Order::default(),
            bounds: Bounds::default(),
            keep: Some(7 * DAY),
            keep_idempotency: DAY,
            keep_audit: Some(90 * DAY),
            most_audit: 100_000,
            store: crate::store::Settings::default(),
            clock: None,
        }
    }
}

/// Minimum interval between log messages about requests refused because the store is full.
const FULL_LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Error from the start of the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] crate::store::OpenError),
    /// The store was opened but cannot be read.
    #[error(
        "{0}; if that is damage, `keylane store salvage FROM TO` copies all that can be read into a new store"
    )]
    Read(#[from] crate::store::ReadError),
    /// An unfinished job cannot continue.
    #[error("{id} cannot go on: {why}")]
    Job {
        /// Id of the job.
        id: JobId,
        /// Reason.
        why: String,
    },
    /// The registry of child processes could not be opened.
    #[error(transparent)]
    Children(#[from] keylane_process::OpenError),
    /// A thread could not be started.
    #[error("a thread was not started")]
    Thread(#[source] std::io::Error),
}

/// State shared by all parts of the service.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) kinds: Kinds,
    pub(crate) store: Store,
    /// Registry of the processes that handlers start.
    pub(crate) children: keylane_process::Registry,
    pub(crate) clock: Clock,
    /// Wall clock of the schedules.
    pub(crate) calendar: calendar::Calendar,
    pub(crate) schedules: schedules::Schedules,
    /// Counters of the audit log.
    audit: audit::Audit,
    /// End times of finished jobs.
    ends: ends::Ends,
    pub(crate) events: Arc<events::Events>,
    pub(crate) timeline: timeline::Recorder,
    pub(crate) runtime: tokio::runtime::Handle,
    /// Local attempts, from their start until their handlers end.
    pub(crate) tasks: TaskTracker,
    /// Leases held by remote workers.
    pub(crate) leases: TaskTracker,
    /// Cancelled when the service starts to shut down: it accepts and starts nothing more.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the service has stopped: it waits for nothing more.
    pub(crate) stopped: CancellationToken,
    bell: dispatch::Bell,
    /// State of the engine. The lock is fair (`parking_lot`): a thread that has waited for long
    /// gets it before others.
    engine: parking_lot::Mutex<engine_state::EngineState>,
    /// Locks of the idempotency keys and client ids of requests in progress.
    claims: Arc<claims::Claims>,
    /// Replies to clients whose jobs are accepted, sent when their commit has ended. Locked alone,
    /// or after every other lock.
    answers: Mutex<Vec<intake::PendingReply>>,
    health: Mutex<StoreHealth>,
    /// The last write for a client found no free space. Set when a client gets that answer, cleared
    /// by every later write. It stops nothing: running work may end in the space that is left,
    /// which may be too small for a new job. A store that cannot be written at all is reported by
    /// `health`.
    found_no_room: AtomicBool,
    /// Time of the last log message about a full store.
    full_logged_at: Mutex<Option<Instant>>,
    /// State of the random number generator for jitter.
    chance: AtomicU64,
    pub(crate) websockets: AtomicU64,
    /// Capacity used by jobs whose submission is in progress.
    incoming: room::Incoming,
    /// Subtasks by key, of the job whose results were last requested in that order.
    by_key: Mutex<Option<ask::ByKey>>,
    /// Last summary, reused for a while.
    summary: Mutex<Option<ask::KeptSummary>>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Core {
    /// Locks the state. The lock has no poison flag: only a bug panics under it, and every change
    /// made before the panic is complete.
    fn engine(&self) -> parking_lot::MutexGuard<'_, engine_state::EngineState> {
        self.engine.lock()
    }

    pub(crate) fn health(&self) -> MutexGuard<'_, StoreHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the health of the store. Returns true if it changed.
    fn set_health(&self, health: StoreHealth) -> bool {
        let mut now = self.health();
        // A failed store stays failed until it is opened again.
        let is_news = !matches!(*now, StoreHealth::Failed(_)) && *now != health;
        if is_news {
            match &health {
                StoreHealth::Well => tracing::info!("the store has free space again"),
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
            StoreHealth::Well if self.found_no_room.load(Relaxed) => Some(
                "a new job was refused: the disk, or the size that the store may have, is full"
                    .to_owned(),
            ),
            StoreHealth::Well => None,
        }
    }

    fn found_no_room(&self) {
        if self.found_no_room.swap(true, Relaxed) {
            return;
        }
        // Small requests may succeed between large ones that are refused, so log at most once per
        // interval.
        let mut logged_at = self.full_logged_at.lock().unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_none_or(|logged_at| logged_at.elapsed() >= FULL_LOG_INTERVAL) {
            *logged_at = Some(Instant::now());
            tracing::error!("the store is full: requests are refused with status 507");
        }
    }

    /// Records that a write succeeded, or that space was freed.
    fn found_room(&self) {
        // The flag is rarely set. Loading it first keeps its cache line shared.
        if self.found_no_room.load(Relaxed) && self.found_no_room.swap(false, Relaxed) {
            tracing::debug!("the store has free space again: the last write succeeded");
        }
    }

    /// Returns a pseudorandom number, good enough for jitter: SplitMix64 (Steele, Lea and Flood,
    /// "Fast Splittable Pseudorandom Number Generators", 2014).
    fn chance(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.chance.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Converts an error of the store's writer into the answer for clients.
    fn write_refused(&self, error: crate::store::WriteError) -> Refused {
        use crate::store::WriteError;
        match error {
            WriteError::Full => {
                self.found_no_room();
                Refused::StoreFull
            }
            WriteError::TooLarge { what, most } => {
                Refused::TooLarge(format!("at most {most} {what} are allowed"))
            }
            // The earlier request of this client has gone without waiting for its answer.
            WriteError::Duplicate { .. } => {
                let why = "a request with this key or id was being handled; ask again";
                Refused::Conflict(why.into())
            }
            WriteError::OtherVersion { schedule } => {
                Refused::Conflict(format!("schedule {schedule} has changed meanwhile"))
            }
            WriteError::Failed { .. } => {
                let why = error.to_string();
                self.set_health(StoreHealth::Failed(why.clone()));
                Refused::StoreFailed(why)
            }
            // Another request changed it first.
            WriteError::NoSuchJob { .. } | WriteError::NoSuchSubtask { .. } => {
                Refused::Gone { what: "the job".into() }
            }
            WriteError::Ended { .. } | WriteError::NotEnded { .. } => {
                Refused::Conflict(format!("{error}; another request changed it meanwhile"))
            }
            WriteError::Busy => Refused::Backlog {
                what: "another program works on the store's file".into(),
                after: Duration::from_secs(1),
            },
        }
    }
}
