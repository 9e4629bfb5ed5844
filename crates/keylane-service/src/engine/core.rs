//! Parts of the engine, and their composition.
//!
//! | part | owns | depends on |
//! |---|---|---|
//! | [`EngineState`] | order, active jobs, running attempts, next batch | nothing: time is a parameter |
//! | [`Query`] | cached answers | state, store, kinds, clock |
//! | [`AuditLog`] | counters | store, clock, idempotency keys |
//! | [`IdempotencyKeys`] | locks of requests in progress | store, clock, executor |
//! | [`CapacityReservations`] | reserved capacity | state |
//! | [`Retention`] | nothing | store, clock, end times of jobs, audit log |
//! | [`StoreStatus`] | health of the store | clock |
//! | [`EventHub`], [`TimelineRecorder`] | recent events, recent runs | nothing |
//!
//! Clocks, randomness, the runtime and the store are passed in ([`Dependencies`]). Submission, dispatch,
//! persistence and control are methods of [`Core`], in the files that `mod.rs` lists for them.

use std::fmt;
use std::sync::{Arc, Mutex};

use keylane_process::Registry;
use keylane_storage::ThreadNotify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::audit::AuditLog;
use super::capacity::CapacityReservations;
use super::clock::Clock;
use super::engine_dependencies::Outside;
use super::engine_state::{EngineState, SharedState};
use super::events::EventHub;
use super::executor::Executor;
use super::fences;
use super::idempotency::IdempotencyKeys;
use super::job_end_times::JobEndTimes;
use super::query::Query;
use super::random::JitterSource;
use super::retention::Retention;
use super::schedules::ScheduleTable;
use super::settings::ServiceSettings;
use super::store_status::StoreStatus;
use super::submit_reply::PendingReply;
use super::timeline::TimelineRecorder;
use super::wall_clock::WallClock;
use crate::kind::KindRegistry;
use crate::scheduler::{self, Scheduler};
use crate::store::Store;

/// State shared by all parts of the service.
pub(crate) struct Core {
    pub(crate) settings: ServiceSettings,
    pub(crate) kinds: Arc<KindRegistry>,
    pub(crate) store: Store,
    /// Registry of the processes that handlers start.
    pub(crate) children: Registry,
    pub(crate) clock: Arc<Clock>,
    /// Wall clock of the schedules.
    pub(super) wall: WallClock,
    pub(super) schedules: ScheduleTable,
    pub(crate) audit: Arc<AuditLog>,
    /// End times of finished jobs.
    pub(super) ends: Arc<JobEndTimes>,
    pub(crate) events: Arc<EventHub>,
    pub(super) timeline: Arc<TimelineRecorder>,
    pub(crate) executor: Executor,
    /// Local attempts, from their start until their handlers end.
    pub(crate) tasks: TaskTracker,
    /// Leases held by remote workers.
    pub(crate) leases: TaskTracker,
    /// Cancelled when the service starts to shut down: it accepts and starts nothing more.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the service has stopped: it waits for nothing more.
    pub(crate) stopped: CancellationToken,
    /// Wakes the dispatcher.
    pub(super) wake: ThreadNotify,
    pub(super) state: Arc<SharedState>,
    pub(crate) idempotency: Arc<IdempotencyKeys>,
    /// Replies to clients whose jobs are accepted, sent when their commit has ended. Locked alone,
    /// or after every other lock.
    pub(super) answers: Mutex<Vec<PendingReply>>,
    pub(crate) status: Arc<StoreStatus>,
    /// Jitter of backoffs.
    pub(super) random: JitterSource,
    /// Capacity used by jobs whose submission is in progress.
    pub(super) incoming: Arc<CapacityReservations>,
    pub(crate) query: Query,
}

impl Core {
    /// Composes the parts of the engine. Nothing runs yet.
    pub(super) fn new(
        settings: ServiceSettings,
        kinds: KindRegistry,
        store: Store,
        children: Registry,
        outside: Outside,
    ) -> Self {
        let Outside { wall, steady, executor, .. } = outside;
        let boot = store.boot();
        let seed = wall.now().0 ^ boot.rotate_left(32);
        let clock = Arc::new(Clock::start(wall.clone(), steady));
        let state = Arc::new(SharedState::new(EngineState::new(scheduler(&settings, boot), boot)));
        let (kinds, timeline) = (Arc::new(kinds), Arc::new(TimelineRecorder::default()));
        let status = Arc::new(StoreStatus::new(Arc::clone(&clock)));
        let query = Query::new(
            store.clone(),
            Arc::clone(&state),
            Arc::clone(&kinds),
            Arc::clone(&clock),
            Arc::clone(&status),
            Arc::clone(&timeline),
        );
        let keep = settings.keep_idempotency;
        let idempotency =
            IdempotencyKeys::new(store.clone(), Arc::clone(&clock), executor.clone(), keep);
        let idempotency = Arc::new(idempotency);
        let audit = AuditLog::new(
            store.clone(),
            Arc::clone(&clock),
            Arc::clone(&status),
            Arc::clone(&idempotency),
            settings.keep_audit,
            settings.max_audit,
        );
        Core {
            incoming: Arc::new(CapacityReservations::new(Arc::clone(&state), &settings.bounds)),
            events: Arc::new(EventHub::new(boot)),
            schedules: ScheduleTable::default(),
            audit: Arc::new(audit),
            ends: Arc::default(),
            tasks: TaskTracker::new(),
            leases: TaskTracker::new(),
            draining: CancellationToken::new(),
            stopped: CancellationToken::new(),
            wake: ThreadNotify::default(),
            answers: Mutex::default(),
            random: JitterSource::seeded(seed),
            query,
            settings,
            kinds,
            store,
            children,
            clock,
            wall,
            timeline,
            executor,
            state,
            idempotency,
            status,
        }
    }

    /// Returns the removal of expired data, to be run as a task.
    pub(super) fn retention(&self) -> Arc<Retention> {
        Arc::new(Retention {
            store: self.store.clone(),
            clock: Arc::clone(&self.clock),
            executor: self.executor.clone(),
            status: Arc::clone(&self.status),
            audit: Arc::clone(&self.audit),
            ends: Arc::clone(&self.ends),
            keep: self.settings.keep,
            stopped: self.stopped.clone(),
        })
    }

    /// Returns true if a read that a request began still has the store.
    pub(super) fn is_read(&self) -> bool {
        // This struct and the audit log have it at rest.
        Arc::strong_count(&self.idempotency) > 2
    }
}

fn scheduler(settings: &ServiceSettings, boot: u64) -> Scheduler {
    Scheduler::new(scheduler::SchedulerSettings {
        order: settings.order,
        first_fence: fences::first(boot),
        ..scheduler::SchedulerSettings::new(settings.slots)
    })
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("store", &self.store).finish_non_exhaustive()
    }
}
