//! Parts of the engine, and their composition.
//!
//! | part | decides or does | owns besides |
//! |---|---|---|
//! | [`EngineState`](super::engine_state::EngineState) | order, active jobs, running attempts, next batch | |
//! | [`Persistence`] | when the next batch is written; effects of a written batch | |
//! | [`Submission`] | which jobs are accepted | replies to clients |
//! | [`InboxReader`] | when jobs that were submitted by SQL are accepted | |
//! | [`SubtaskDispatcher`] | which subtasks start | starts of one step |
//! | [`AttemptRunner`], [`AttemptEnds`] | how attempts run and end | jitter |
//! | [`Leases`], [`RemoteWorkers`] | which worker runs a subtask, and until when | |
//! | [`Control`], [`JobRetries`] | commands of clients on jobs and keys | |
//! | [`Schedules`] | when a schedule creates a job | table of schedules |
//! | [`Query`] | answers | caches |
//! | [`AuditLog`] | which actions are recorded | counters |
//! | [`IdempotencyKeys`] | which requests are repeated | locks of requests in progress |
//! | [`CapacityReservations`](super::capacity::CapacityReservations) | capacity of jobs on their way in | reserved capacity |
//! | [`Retention`] | which data has expired | |
//! | [`Backups`] | when the store is copied | counters |
//! | [`Webhooks`], [`DeliveryRunner`] | when the ends of jobs are sent to their receivers | settings |
//! | [`StoreStatus`] | health of the store | |
//! | [`EventHub`], [`TimelineRecorder`] | recent events, recent runs | |
//! | [`Traces`], [`SpanExporter`] | which jobs have spans, when these are sent | spans on their way |
//! | [`HistoryRecorder`], [`History`] | which numbers of the past are kept | file of the past |
//!
//! Each part names what it uses as its fields. Clocks, randomness, the runtime and the store are
//! passed in ([`Outside`](super::engine_dependencies::Outside)). `composition.rs` puts the parts together.

use std::fmt;
use std::sync::Arc;

use keylane_process::Registry;
use keylane_storage::ThreadNotify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::attempt::AttemptRunner;
use super::attempt_ends::AttemptEnds;
use super::audit::AuditLog;
use super::backups::Backups;
use super::clock::Clock;
use super::control::Control;
use super::dispatch::{AT_ONCE, SubtaskDispatcher};
use super::engine_state::SharedState;
use super::events::EventHub;
use super::executor::Executor;
use super::history::{History, HistoryRecorder};
use super::idempotency::IdempotencyKeys;
use super::inbox::InboxReader;
use super::job_end_times::JobEndTimes;
use super::job_retry::JobRetries;
use super::leases::Leases;
use super::metrics::Metrics;
use super::persistence::Persistence;
use super::query::Query;
use super::recovery::Recovery;
use super::remote_workers::RemoteWorkers;
use super::retention::Retention;
use super::scheduler_job::{set_kinds, set_tenants};
use super::schedules::Schedules;
use super::settings::ServiceSettings;
use super::store_status::StoreStatus;
use super::submission::Submission;
use super::ticker::Ticker;
use super::timeline::TimelineRecorder;
use super::traces::{SpanExporter, Traces};
use super::webhooks::{DeliveryRunner, Webhooks};
use crate::kind::Kind;
use crate::kind_registry::KindRegistry;
use crate::store::Store;
use crate::tenant::{TenantRegistry, Tenants};

/// Parts of the engine.
pub(crate) struct Core {
    pub(crate) settings: ServiceSettings,
    pub(crate) kinds: Arc<KindRegistry>,
    pub(crate) tenants: Arc<TenantRegistry>,
    pub(crate) store: Store,
    /// Registry of the processes that handlers start.
    pub(crate) children: Registry,
    pub(crate) clock: Arc<Clock>,
    pub(crate) executor: Executor,
    pub(super) state: Arc<SharedState>,
    pub(crate) status: Arc<StoreStatus>,
    pub(crate) events: Arc<EventHub>,
    /// End times of finished jobs.
    pub(super) end_times: Arc<JobEndTimes>,
    pub(crate) audit: Arc<AuditLog>,
    pub(crate) idempotency: Arc<IdempotencyKeys>,
    pub(crate) query: Arc<Query>,
    pub(super) persistence: Arc<Persistence>,
    pub(super) attempt_ends: Arc<AttemptEnds>,
    pub(super) runner: Arc<AttemptRunner>,
    pub(super) leases: Arc<Leases>,
    pub(crate) remote_workers: Arc<RemoteWorkers>,
    pub(crate) submission: Arc<Submission>,
    pub(crate) control: Arc<Control>,
    pub(crate) retries: Arc<JobRetries>,
    pub(crate) schedules: Arc<Schedules>,
    pub(crate) backups: Arc<Backups>,
    pub(crate) webhooks: Arc<Webhooks>,
    pub(crate) history: Arc<History>,
    pub(super) timeline: Arc<TimelineRecorder>,
    pub(super) traces: Arc<Traces>,
    /// Local attempts, from their start until their handlers end.
    pub(crate) tasks: TaskTracker,
    pub(crate) signals: Signals,
}

/// Signals between the parts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signals {
    /// Wakes the dispatcher.
    pub(crate) wake: Arc<ThreadNotify>,
    /// Cancelled when the service starts to shut down: it accepts and starts nothing more.
    pub(crate) draining: CancellationToken,
    /// Cancelled when the service has stopped: it waits for nothing more.
    pub(crate) stopped: CancellationToken,
}

impl Core {
    /// Returns the loop that records the past.
    pub(super) fn history_recorder(&self) -> HistoryRecorder {
        HistoryRecorder {
            state: Arc::clone(&self.state),
            clock: Arc::clone(&self.clock),
            timeline: Arc::clone(&self.timeline),
            executor: self.executor.clone(),
            history: Arc::clone(&self.history),
            stopped: self.signals.stopped.clone(),
        }
    }

    /// Returns the loop that accepts the jobs that were submitted by SQL.
    pub(super) fn inbox_reader(&self) -> InboxReader {
        InboxReader {
            store: self.store.clone(),
            submission: Arc::clone(&self.submission),
            state: Arc::clone(&self.state),
            clock: Arc::clone(&self.clock),
            executor: self.executor.clone(),
            stopped: self.signals.stopped.clone(),
        }
    }

    /// Returns the loop that sends spans.
    pub(super) fn span_exporter(&self) -> SpanExporter {
        SpanExporter { traces: Arc::clone(&self.traces), stopped: self.signals.stopped.clone() }
    }

    /// Returns the loop that starts subtasks.
    pub(super) fn dispatcher(&self) -> SubtaskDispatcher {
        SubtaskDispatcher {
            state: Arc::clone(&self.state),
            clock: Arc::clone(&self.clock),
            status: Arc::clone(&self.status),
            kinds: Arc::clone(&self.kinds),
            children: self.children.clone(),
            tasks: self.tasks.clone(),
            executor: self.executor.clone(),
            store: self.store.clone(),
            query: Arc::clone(&self.query),
            persistence: Arc::clone(&self.persistence),
            ends: Arc::clone(&self.attempt_ends),
            leases: Arc::clone(&self.leases),
            traces: Arc::clone(&self.traces),
            runner: Arc::clone(&self.runner),
            wake: Arc::clone(&self.signals.wake),
            stopped: self.signals.stopped.clone(),
            starts: Vec::with_capacity(AT_ONCE),
        }
    }

    /// Returns the periodic work, to be run as a task.
    pub(super) fn ticker(&self) -> Ticker {
        Ticker {
            state: Arc::clone(&self.state),
            clock: Arc::clone(&self.clock),
            kinds: Arc::clone(&self.kinds),
            events: Arc::clone(&self.events),
            persistence: Arc::clone(&self.persistence),
            stopped: self.signals.stopped.clone(),
        }
    }

    /// Returns the removal of expired data, to be run as a task.
    pub(super) fn retention(&self) -> Arc<Retention> {
        Arc::new(Retention {
            state: Arc::clone(&self.state),
            store: self.store.clone(),
            clock: Arc::clone(&self.clock),
            executor: self.executor.clone(),
            status: Arc::clone(&self.status),
            audit: Arc::clone(&self.audit),
            ends: Arc::clone(&self.end_times),
            kinds: Arc::clone(&self.kinds),
            persistence: Arc::clone(&self.persistence),
            keep: self.settings.keep,
            stopped: self.signals.stopped.clone(),
        })
    }

    /// Returns the sender of webhooks, to be run as a task.
    pub(super) fn delivery_runner(&self) -> DeliveryRunner {
        DeliveryRunner {
            state: Arc::clone(&self.state),
            store: self.store.clone(),
            clock: Arc::clone(&self.clock),
            executor: self.executor.clone(),
            persistence: Arc::clone(&self.persistence),
            webhooks: Arc::clone(&self.webhooks),
            stopped: self.signals.stopped.clone(),
        }
    }

    /// Returns the recovery of the store's unfinished jobs.
    pub(super) fn recovery(&self) -> Recovery {
        Recovery {
            state: Arc::clone(&self.state),
            store: self.store.clone(),
            status: Arc::clone(&self.status),
            clock: Arc::clone(&self.clock),
            kinds: Arc::clone(&self.kinds),
            tenants: Arc::clone(&self.tenants),
            leases: Arc::clone(&self.leases),
            persistence: Arc::clone(&self.persistence),
        }
    }

    /// Returns the metrics.
    pub(crate) fn metrics(&self) -> Metrics<'_> {
        Metrics {
            build: &self.settings.build,
            state: &self.state,
            store: &self.store,
            kinds: &self.kinds,
            status: &self.status,
            query: &self.query,
            audit: &self.audit,
            backups: &self.backups,
            schedules: self.schedules.table(),
            traces: &self.traces,
        }
    }

    /// Replaces the kinds while jobs run: running attempts keep their kind, and later starts use
    /// the new one. Holds the jobs whose kind was removed, and releases those whose kind was added.
    /// Returns the replaced kinds.
    pub(super) fn replace_kinds(&self, kinds: Vec<(String, Kind)>) -> Vec<Arc<Kind>> {
        // Under the lock of the engine state, so that no start sees a kind with the limits of
        // another one.
        let mut engine = self.state.lock();
        let now = self.clock.now();
        for entry in self.kinds.all() {
            if !kinds.iter().any(|(name, _)| **name == *entry.name) {
                self.kinds.remove(entry.number);
            }
        }
        let replaced = kinds.into_iter().filter_map(|(name, kind)| self.kinds.add(&name, kind));
        let replaced = replaced.collect();
        set_kinds(&self.kinds, &mut engine, now);
        engine.follow_kinds(&self.kinds, now);
        replaced
    }

    /// Replaces the tenants.
    pub(super) fn replace_tenants(&self, tenants: Tenants) {
        // Under the lock of the engine state, so that the order of two reloads is that of their
        // effects.
        let mut engine = self.state.lock();
        let before = self.tenants.replace(tenants);
        set_tenants(&before, &self.tenants.all(), &mut engine, self.clock.now());
    }

    /// Stops accepting and starting work.
    pub(crate) fn drain(&self) {
        let mut engine = self.state.lock();
        engine.is_draining = true;
        engine.scheduler.drain();
        self.signals.draining.cancel();
    }

    /// Returns true if the service shuts down.
    pub(crate) fn is_draining(&self) -> bool {
        self.state.lock().is_draining
    }

    /// Cancels all running attempts.
    pub(super) fn give_up_running(&self) {
        let engine = self.state.lock();
        let here = engine.running.values().filter(|running| running.lease.is_none());
        here.for_each(|running| running.signals.cancel());
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Core").field("store", &self.store).finish_non_exhaustive()
    }
}
