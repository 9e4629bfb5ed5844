//! Composition of the engine: which part uses which.

use std::sync::{Arc, Mutex};

use keylane_process::Registry;
use tokio_util::task::TaskTracker;

use super::attempt::AttemptRunner;
use super::attempt_ends::AttemptEnds;
use super::audit::AuditLog;
use super::backups::{BackupDependencies, Backups};
use super::capacity::CapacityReservations;
use super::clock::Clock;
use super::clock::millis;
use super::control::Control;
use super::core::{Core, Signals};
use super::engine_dependencies::Outside;
use super::engine_state::{EngineState, SharedState};
use super::events::EventHub;
use super::executor::Executor;
use super::fences;
use super::history::History;
use super::idempotency::IdempotencyKeys;
use super::job_end_times::JobEndTimes;
use super::job_retry::JobRetries;
use super::leases::Leases;
use super::persistence::Persistence;
use super::query::Query;
use super::random::JitterSource;
use super::remote_workers::RemoteWorkers;
use super::schedules::Schedules;
use super::settings::ServiceSettings;
use super::store_status::StoreStatus;
use super::submission::Submission;
use super::timeline::TimelineRecorder;
use super::traces::Traces;
use super::wall_clock::WallClock;
use super::webhooks::{WebhookDependencies, Webhooks};
use crate::kind_registry::KindRegistry;
use crate::scheduler::{Scheduler, SchedulerSettings};
use crate::store::Store;
use crate::tenant::TenantRegistry;

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
        let random = JitterSource::seeded(wall.now().0 ^ store.boot().rotate_left(32));
        let clock = Arc::new(Clock::start(wall.clone(), steady));
        let base = Foundation::new(settings, kinds, store, clock, executor);
        let query = Arc::new(base.query());
        let idempotency = Arc::new(base.idempotency());
        let audit = Arc::new(base.audit(&idempotency));
        let end_times = Arc::default();
        let persistence = Arc::new(base.persistence(&end_times));
        let attempt_ends = Arc::new(base.attempt_ends(&persistence, random));
        let runner = Arc::new(base.runner(&attempt_ends));
        let leases = Arc::new(base.leases(&attempt_ends));
        let remote_workers = Arc::new(base.remote_workers(&persistence, &leases));
        let submission = Arc::new(base.submission(&persistence, &query, &idempotency));
        let control = Arc::new(base.control(&persistence, &query, &audit, &leases));
        let retries = Arc::new(base.retries(&persistence, &query, &audit));
        let backups = Arc::new(base.backups(wall.clone(), &audit));
        let webhooks = Arc::new(base.webhooks(&persistence, &audit));
        let schedules = Arc::new(base.schedules(wall, &submission, &audit));
        Core {
            settings: base.settings,
            kinds: base.kinds,
            tenants: base.tenants,
            store: base.store,
            children,
            clock: base.clock,
            executor: base.executor,
            state: base.state,
            status: base.status,
            events: base.events,
            end_times,
            audit,
            idempotency,
            query,
            persistence,
            attempt_ends,
            runner,
            leases,
            remote_workers,
            submission,
            control,
            retries,
            schedules,
            backups,
            webhooks,
            history: Arc::new(History::default()),
            timeline: base.timeline,
            traces: base.traces,
            tasks: TaskTracker::new(),
            signals: base.signals,
        }
    }
}

/// What most parts use.
struct Foundation {
    settings: ServiceSettings,
    kinds: Arc<KindRegistry>,
    tenants: Arc<TenantRegistry>,
    store: Store,
    clock: Arc<Clock>,
    executor: Executor,
    state: Arc<SharedState>,
    status: Arc<StoreStatus>,
    events: Arc<EventHub>,
    timeline: Arc<TimelineRecorder>,
    traces: Arc<Traces>,
    incoming: Arc<CapacityReservations>,
    signals: Signals,
}

impl Foundation {
    fn new(
        settings: ServiceSettings,
        kinds: KindRegistry,
        store: Store,
        clock: Arc<Clock>,
        executor: Executor,
    ) -> Self {
        let boot = store.boot();
        let scheduler = Scheduler::new(SchedulerSettings {
            order: settings.order,
            ageing: settings.priority_ageing.map(millis),
            first_fence: fences::first(boot),
            ..SchedulerSettings::new(settings.slots)
        });
        let state = Arc::new(SharedState::new(EngineState::new(scheduler, boot)));
        let tenants = Arc::new(TenantRegistry::new(settings.tenants.clone()));
        Foundation {
            status: Arc::new(StoreStatus::new(Arc::clone(&clock))),
            events: Arc::new(EventHub::new(boot)),
            timeline: Arc::default(),
            traces: Arc::new(Traces::new(settings.traces.clone())),
            incoming: Arc::new(CapacityReservations::new(
                Arc::clone(&state),
                Arc::clone(&tenants),
                &settings.bounds,
            )),
            tenants,
            signals: Signals::default(),
            kinds: Arc::new(kinds),
            settings,
            store,
            clock,
            executor,
            state,
        }
    }

    fn query(&self) -> Query {
        Query::new(
            self.store.clone(),
            Arc::clone(&self.state),
            Arc::clone(&self.kinds),
            Arc::clone(&self.tenants),
            Arc::clone(&self.clock),
            Arc::clone(&self.status),
            Arc::clone(&self.timeline),
        )
    }

    fn idempotency(&self) -> IdempotencyKeys {
        let (store, clock) = (self.store.clone(), Arc::clone(&self.clock));
        IdempotencyKeys::new(store, clock, self.executor.clone(), self.settings.keep_idempotency)
    }

    fn audit(&self, idempotency: &Arc<IdempotencyKeys>) -> AuditLog {
        AuditLog::new(
            self.store.clone(),
            Arc::clone(&self.clock),
            Arc::clone(&self.status),
            Arc::clone(idempotency),
            self.settings.keep_audit,
            self.settings.max_audit,
        )
    }

    fn backups(&self, wall: WallClock, audit: &Arc<AuditLog>) -> Backups {
        let uses = BackupDependencies {
            store: self.store.clone(),
            clock: Arc::clone(&self.clock),
            wall,
            status: Arc::clone(&self.status),
            executor: self.executor.clone(),
            audit: Arc::clone(audit),
            stopped: self.signals.stopped.clone(),
        };
        Backups::new(self.settings.backups.clone(), uses)
    }

    fn webhooks(&self, persistence: &Arc<Persistence>, audit: &Arc<AuditLog>) -> Webhooks {
        let uses = WebhookDependencies {
            state: Arc::clone(&self.state),
            store: self.store.clone(),
            clock: Arc::clone(&self.clock),
            executor: self.executor.clone(),
            audit: Arc::clone(audit),
            persistence: Arc::clone(persistence),
        };
        Webhooks::new(self.settings.webhooks.clone(), uses)
    }

    fn persistence(&self, end_times: &Arc<JobEndTimes>) -> Persistence {
        Persistence {
            state: Arc::clone(&self.state),
            store: self.store.clone(),
            status: Arc::clone(&self.status),
            clock: Arc::clone(&self.clock),
            events: Arc::clone(&self.events),
            traces: Arc::clone(&self.traces),
            end_times: Arc::clone(end_times),
        }
    }

    fn attempt_ends(&self, persistence: &Arc<Persistence>, random: JitterSource) -> AttemptEnds {
        AttemptEnds {
            state: Arc::clone(&self.state),
            clock: Arc::clone(&self.clock),
            kinds: Arc::clone(&self.kinds),
            random,
            events: Arc::clone(&self.events),
            timeline: Arc::clone(&self.timeline),
            traces: Arc::clone(&self.traces),
            persistence: Arc::clone(persistence),
            wake: Arc::clone(&self.signals.wake),
        }
    }

    fn runner(&self, ends: &Arc<AttemptEnds>) -> AttemptRunner {
        AttemptRunner {
            kinds: Arc::clone(&self.kinds),
            bounds: self.settings.bounds,
            store: self.store.clone(),
            state: Arc::clone(&self.state),
            clock: Arc::clone(&self.clock),
            incoming: Arc::clone(&self.incoming),
            ends: Arc::clone(ends),
            wake: Arc::clone(&self.signals.wake),
        }
    }

    fn leases(&self, ends: &Arc<AttemptEnds>) -> Leases {
        Leases { kinds: Arc::clone(&self.kinds), ends: Arc::clone(ends), held: TaskTracker::new() }
    }

    fn remote_workers(
        &self,
        persistence: &Arc<Persistence>,
        leases: &Arc<Leases>,
    ) -> RemoteWorkers {
        RemoteWorkers {
            state: Arc::clone(&self.state),
            clock: Arc::clone(&self.clock),
            kinds: Arc::clone(&self.kinds),
            store: self.store.clone(),
            leases: Arc::clone(leases),
            ends: Arc::clone(&leases.ends),
            persistence: Arc::clone(persistence),
            wake: Arc::clone(&self.signals.wake),
            draining: self.signals.draining.clone(),
        }
    }

    fn submission(
        &self,
        persistence: &Arc<Persistence>,
        query: &Arc<Query>,
        idempotency: &Arc<IdempotencyKeys>,
    ) -> Submission {
        Submission {
            kinds: Arc::clone(&self.kinds),
            tenants: Arc::clone(&self.tenants),
            bounds: self.settings.bounds,
            store: self.store.clone(),
            status: Arc::clone(&self.status),
            clock: Arc::clone(&self.clock),
            executor: self.executor.clone(),
            state: Arc::clone(&self.state),
            incoming: Arc::clone(&self.incoming),
            idempotency: Arc::clone(idempotency),
            query: Arc::clone(query),
            events: Arc::clone(&self.events),
            persistence: Arc::clone(persistence),
            wake: Arc::clone(&self.signals.wake),
            answers: Mutex::default(),
        }
    }

    fn control(
        &self,
        persistence: &Arc<Persistence>,
        query: &Arc<Query>,
        audit: &Arc<AuditLog>,
        leases: &Arc<Leases>,
    ) -> Control {
        Control {
            state: Arc::clone(&self.state),
            store: self.store.clone(),
            status: Arc::clone(&self.status),
            clock: Arc::clone(&self.clock),
            events: Arc::clone(&self.events),
            audit: Arc::clone(audit),
            kinds: Arc::clone(&self.kinds),
            query: Arc::clone(query),
            leases: Arc::clone(leases),
            persistence: Arc::clone(persistence),
            wake: Arc::clone(&self.signals.wake),
            draining_node: Mutex::default(),
        }
    }

    fn retries(
        &self,
        persistence: &Arc<Persistence>,
        query: &Arc<Query>,
        audit: &Arc<AuditLog>,
    ) -> JobRetries {
        JobRetries {
            state: Arc::clone(&self.state),
            store: self.store.clone(),
            status: Arc::clone(&self.status),
            clock: Arc::clone(&self.clock),
            kinds: Arc::clone(&self.kinds),
            executor: self.executor.clone(),
            incoming: Arc::clone(&self.incoming),
            audit: Arc::clone(audit),
            query: Arc::clone(query),
            persistence: Arc::clone(persistence),
            wake: Arc::clone(&self.signals.wake),
            stopped: self.signals.stopped.clone(),
        }
    }

    fn schedules(
        &self,
        wall: WallClock,
        submission: &Arc<Submission>,
        audit: &Arc<AuditLog>,
    ) -> Schedules {
        Schedules {
            table: Arc::default(),
            kinds: Arc::clone(&self.kinds),
            tenants: Arc::clone(&self.tenants),
            bounds: self.settings.bounds,
            wall,
            clock: Arc::clone(&self.clock),
            executor: self.executor.clone(),
            store: self.store.clone(),
            status: Arc::clone(&self.status),
            state: Arc::clone(&self.state),
            events: Arc::clone(&self.events),
            audit: Arc::clone(audit),
            submission: Arc::clone(submission),
            stopped: self.signals.stopped.clone(),
        }
    }
}
