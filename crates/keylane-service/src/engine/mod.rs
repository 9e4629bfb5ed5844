//! The service without its network: jobs are accepted, ordered, run, written down and asked about.
//!
//! ```text
//! intake ──▶ store ──▶ scheduler ──▶ dispatch ──▶ attempt ──▶ store ──▶ shown
//!            (on the   (which is     (slot, key,  (handler,   (on the   (counts,
//!            disk?)    next?)        rate free?)  lease)      disk?)    events)
//! ```
//!
//! `books.rs` has what all of them share, and the protocol.

mod again;
mod ask;
mod attempt;
mod audit;
mod batch;
mod begin;
mod books;
mod calendar;
mod claims;
mod client_id;
mod clock;
mod command;
mod dispatch;
mod embedded;
mod ends;
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
pub(crate) use events::{Followed, Follower, Said, event, sse_text};
pub(crate) use feeds::{Feed, Reader};
pub(crate) use intake::{HandedOver, Intake, Submitted};
pub(crate) use record::StoreHealth;
pub(crate) use remote::{LONGEST_WAIT, MOST_LEASES};
pub use service::{Service, ServiceBuilder};

/// How the service works.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The store's file.
    pub path: PathBuf,
    /// How many subtasks run at once, those of workers elsewhere included. Default: 64.
    pub slots: usize,
    /// Which job is served before which. Default: the four rules.
    pub order: Order,
    /// Bounds on what is submitted.
    pub bounds: Bounds,
    /// How long a job that is over is kept; for ever without. Default: a week.
    pub keep: Option<Duration>,
    /// How long an idempotency key is. Default: a day.
    pub keep_idempotency: Duration,
    /// How long it is kept in the log what operators have done; as long as there is room for it without. Default: 90
    /// days.
    pub keep_audit: Option<Duration>,
    /// How many entries that log has at most: the newest ones, one at least. Default: 100,000, which are about 40 MB.
    pub most_audit: u64,
    /// The store's own settings.
    pub store: crate::store::Settings,
    /// The wall clock of the service, for tests. Default: the system's.
    pub clock: Option<ManualClock>,
}

impl Settings {
    /// The defaults, with the store in this file.
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

/// How often the log is told at most that requests are refused for want of room.
const FULL_TOLD: Duration = Duration::from_secs(60);

/// Why the service did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store was not opened.
    #[error(transparent)]
    Store(#[from] crate::store::OpenError),
    /// It was opened and cannot be read.
    #[error(
        "{0}; if that is damage, `keylane store salvage FROM TO` copies all that can be read into a new store"
    )]
    Read(#[from] crate::store::ReadError),
    /// A job cannot go on.
    #[error("{id} cannot go on: {why}")]
    Job {
        /// Which.
        id: JobId,
        /// Why.
        why: String,
    },
    /// The registry of child processes was not opened.
    #[error(transparent)]
    Children(#[from] keylane_process::OpenError),
    /// A thread was not started.
    #[error("a thread was not started")]
    Thread(#[source] std::io::Error),
}

/// What all parts of the service share.
pub(crate) struct Core {
    pub(crate) settings: Settings,
    pub(crate) kinds: Kinds,
    pub(crate) store: Store,
    /// Registry of the processes that handlers start.
    pub(crate) children: keylane_process::Registry,
    pub(crate) clock: Clock,
    /// The time by which schedules fire.
    pub(crate) calendar: calendar::Calendar,
    pub(crate) schedules: schedules::Schedules,
    /// What operators have done, in numbers.
    audit: audit::Audit,
    /// When jobs that are over ended.
    ends: ends::Ends,
    pub(crate) events: Arc<events::Events>,
    pub(crate) timeline: timeline::Recorder,
    pub(crate) runtime: tokio::runtime::Handle,
    /// The attempts that have begun here, whether a handler has them yet or not, and their handlers.
    pub(crate) tasks: TaskTracker,
    /// The leases that remote workers have.
    pub(crate) leases: TaskTracker,
    /// Nothing is accepted and nothing begins any more.
    pub(crate) draining: CancellationToken,
    /// Nothing is started any more, and nothing awaited.
    pub(crate) stopped: CancellationToken,
    bell: dispatch::Bell,
    /// Fair: who has waited for long gets it before others (`parking_lot`).
    books: parking_lot::Mutex<books::Books>,
    /// Idempotency keys and clients' ids of requests that are being handled.
    claims: Arc<claims::Claims>,
    /// Clients whose jobs are accepted, and who are told when their commit has ended. Locked alone, or last.
    answers: Mutex<Vec<intake::Answer>>,
    health: Mutex<StoreHealth>,
    /// Whether the last thing that somebody asked to have written found no room. Set by whoever tells a client so,
    /// cleared by whatever is written after it. It stops nothing: what runs may end in the room that is left, which a
    /// new job may be too large for. That nothing can be written is `health`'s to say.
    found_no_room: AtomicBool,
    /// When the log was last told of that.
    told_full: Mutex<Option<Instant>>,
    /// State of a small generator for jitter.
    chance: AtomicU64,
    pub(crate) websockets: AtomicU64,
    /// What jobs on their way in take of the bounds on all jobs together.
    incoming: room::Incoming,
    /// A job's subtasks by key, of the job whose results somebody asked for in that order last.
    by_key: Mutex<Option<ask::ByKey>>,
    /// The whole in numbers, as it was a moment ago.
    summary: Mutex<Option<ask::KeptSummary>>,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("store", &self.store).finish_non_exhaustive()
    }
}

impl Core {
    /// Nothing under this lock unwinds, but for a mistake of ours; what was changed before it is whole.
    fn books(&self) -> parking_lot::MutexGuard<'_, books::Books> {
        self.books.lock()
    }

    pub(crate) fn health(&self) -> MutexGuard<'_, StoreHealth> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether that is news.
    fn set_health(&self, health: StoreHealth) -> bool {
        let mut now = self.health();
        // What has failed stays so until it is opened again.
        let is_news = !matches!(*now, StoreHealth::Failed(_)) && *now != health;
        if is_news {
            match &health {
                StoreHealth::Well => tracing::info!("the store has room again"),
                StoreHealth::Full => {
                    tracing::error!("the store is full: nothing is started until there is room")
                }
                StoreHealth::Failed(why) => tracing::error!(%why, "the store has failed"),
            }
            *now = health;
        }
        is_news
    }

    /// Why new jobs are refused for the store's sake, if they are.
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
        // Small requests may find room between large ones that do not.
        let mut told = self.told_full.lock().unwrap_or_else(PoisonError::into_inner);
        if told.is_none_or(|told| told.elapsed() >= FULL_TOLD) {
            *told = Some(Instant::now());
            tracing::error!("the store is full: requests are refused with status 507");
        }
    }

    /// Something was written, or made room.
    fn found_room(&self) {
        // Mostly it is not set, and then the others' copies of it stay where they are.
        if self.found_no_room.load(Relaxed) && self.found_no_room.swap(false, Relaxed) {
            tracing::debug!("the store has room again, for what was written last");
        }
    }

    /// A number by chance, good enough for jitter: SplitMix64 (Steele, Lea and Flood, "Fast Splittable
    /// Pseudorandom Number Generators", 2014).
    fn chance(&self) -> u64 {
        const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
        let state = self.chance.fetch_add(STEP, Relaxed).wrapping_add(STEP);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// What the store could not do, as it is told to clients.
    fn write_refused(&self, error: crate::store::WriteError) -> Refused {
        use crate::store::WriteError;
        match error {
            WriteError::Full => {
                self.found_no_room();
                Refused::StoreFull
            }
            WriteError::TooLarge { what, most } => {
                Refused::TooLarge(format!("{most} {what} are the most"))
            }
            // Whoever was before has gone away without waiting for the answer.
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
            // Somebody else was faster.
            WriteError::NoSuchJob { .. } | WriteError::NoSuchSubtask { .. } => {
                Refused::Gone { what: "the job".into() }
            }
            WriteError::Ended { .. } | WriteError::NotEnded { .. } => {
                Refused::Conflict(format!("{error}; something else was asked of it meanwhile"))
            }
            WriteError::Busy => Refused::Backlog {
                what: "another program works on the store's file".into(),
                after: Duration::from_secs(1),
            },
        }
    }
}
