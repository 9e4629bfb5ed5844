//! Composes the stages of the pool: admit, order, allocate, run, complete.
//!
//! The engine knows nothing of closures, handles or messages: [`Execute`] defines the content of a
//! task and how it runs. The engine moves tasks from the admission gate through the inboxes and
//! lanes to the workers, and releases their claims.

mod admit;
mod attempt_queue;
mod attempts;
mod batch;
mod bounds;
mod controls;
mod deadlock;
mod delay_queue;
mod delays;
mod enqueue;
mod explain;
mod failed_task;
mod failure_policy;
mod jobs;
mod key_states;
mod latest;
mod mixed_row;
#[cfg(all(test, loom))]
mod models;
mod poison;
mod predicate;
mod rate_state;
mod rates;
mod ready_bitmap;
mod resize;
mod shared_jobs;
mod snapshot;
mod stalled;
mod state_expiry;
mod step;
mod stop;
mod timing;
mod trace;

use std::any::Any;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::admit::{Admission, ByteBound, HeldBytes, KeyBound, KeyRef, TryAcquireError};
use crate::error::SubmitErrorKind;
use crate::observe::{
    Clock, DetachedTurns, OrderChecker, PoolCounters, Statistics, TraceEvents, Tracer, WaitSamples,
};
use crate::order::{
    Claims, ClaimsRepr, ConflictRegistry, HeldLanes, Inbox, InboxEntry, KeyClaim, Lanes, MarkerId,
    Rate, ReplaceResult, Rollup, RollupPart, RollupScope, SlotRef, TaskMeta, TaskSlot,
    WeighedClaims, merge_claims,
};
use crate::run::{
    ExecContext, IdleWorkers, MockClock, Placement, Turn, TurnResult, WorkerAffinity, WorkerSet,
    engine_of_this_thread,
};
use crate::sync::{AtomicBool, AtomicUsize, Lock, LockGuard, Mutex, MutexGuard, Ordering};
use crate::unwind::{KeyPanic, catch_key_panic, drop_catch_unwind};

pub(crate) use jobs::{
    BatchLimits, BatchReport, CurrentJob, JobControl, JobRules, JobRunner, WeakJobControl,
    WorkerAssignment, WorkerCtx, WorkerReport,
};
pub(crate) use shared_jobs::SharedJobs;

use self::attempt_queue::WaitingAttempts;
pub(crate) use self::bounds::{AdmissionTicket, EngineBounds};
pub(crate) use self::delay_queue::DelayedRole;
use self::delay_queue::DelayedTasks;
pub use self::failure_policy::OnFailure;
pub(crate) use self::latest::SupersededWork;
use self::rate_state::RateLimits;
use self::ready_bitmap::{MAX_SHARDS, ReadyBitmap};
use self::state_expiry::StateExpiry;
pub(crate) use self::stop::EngineOwner;
pub(crate) use self::trace::TraceInfo;

/// Tasks of an engine, and how one runs.
pub(crate) trait Execute<K>: Send + Sync + 'static {
    /// Content of one task.
    type Work: Send + 'static;

    /// Whether the submitter of a replacing task drops the replaced work, before the replacing task
    /// begins. Otherwise the replaced work is returned to the caller.
    const DROPS_REPLACED: bool = false;

    /// Whether `execute` receives the key.
    const WANTS_KEY: bool;

    /// Runs a task. The turn ends on return, unless the task has kept it.
    fn execute(&self, key: Option<&K>, work: SlotRef<'_, Self::Work>, ctx: &mut dyn ExecContext);

    /// Prefetches the memory that the work refers to, and that `execute` will use.
    #[inline(always)]
    fn prefetch(_: &Self::Work) {}

    /// Ends work that a later task has replaced, and then `turn`.
    fn supersede(work: Self::Work, turn: Turn) {
        drop_catch_unwind(work);
        drop(turn);
    }

    /// Ends work that does not run, because of a panic with this payload.
    fn fail(work: Self::Work, payload: KeyPanic) {
        drop_catch_unwind(work);
        drop_catch_unwind(payload);
    }

    /// Returns the name by which other tasks may wait for this one, if it has one.
    fn name(work: &Self::Work) -> Option<usize>;

    /// Returns whether a task may be taken out of the lanes on its own. Subtasks of a job may not.
    fn may_take(_: &Self::Work) -> bool {
        true
    }

    /// Returns whether a task belongs to a scope, which waits for it. It is not returned to callers.
    fn is_scoped(_: &Self::Work) -> bool {
        false
    }

    /// Returns the cost of the work in bytes, beside the cost of its claims.
    fn weigh(&self, _: &Self::Work) -> usize {
        0
    }

    /// Attaches its cost to a task, to be released when the task ends. By default `execute`
    /// releases it, computed by [`weigh`](Self::weigh).
    fn charge(work: Self::Work, cost: HeldBytes) -> Self::Work {
        cost.leave();
        work
    }
}

/// Key by which tasks are ordered: every type with these traits is one.
///
/// ```
/// use keylane::{Key, Pool};
///
/// fn pool_for<K: Key>() -> Pool<K> {
///     Pool::builder().build().expect("the defaults are valid")
/// }
/// pool_for::<(String, u64)>().execute(("alice".to_owned(), 7), || println!("paid"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {}
impl<K: Hash + Eq + Clone + Send + Sync + 'static> Key for K {}

/// Hook that is called with the payload of a task's panic.
pub(crate) type PanicHook = dyn Fn(&(dyn Any + Send)) + Send + Sync;

/// Settings of an engine. Every field has been validated.
pub(crate) struct EngineSettings {
    pub(crate) workers: usize,
    /// Maximum number of accepted and unfinished tasks.
    pub(crate) capacity: usize,
    /// Maximum number of accepted and unfinished tasks of one key, if bounded.
    pub(crate) per_key: Option<usize>,
    /// Maximum total cost of unfinished tasks, in bytes, if bounded.
    pub(crate) bytes: Option<usize>,
    /// Number of tasks after which a lane yields to others.
    pub(crate) quantum_tasks: usize,
    /// Time after which a lane yields to others.
    pub(crate) quantum_time: Duration,
    /// Whether a lane yields after its quantum on every worker while others are ready.
    pub(crate) strict_quantum: bool,
    /// Whether tasks begin in the order of submission, as far as their keys allow.
    pub(crate) in_order: bool,
    /// Number of consecutive failures after which a key is stopped, if any.
    pub(crate) stop_after: Option<u32>,
    /// Rate at which tasks of the pool may begin.
    pub(crate) rate: Option<Rate>,
    /// Rate at which tasks of each key may begin.
    pub(crate) rate_per_key: Option<Rate>,
    /// Clock for the rates, if it is not the system's.
    pub(crate) clock: Option<MockClock>,
    /// Name of the worker threads, to which their numbers are appended.
    pub(crate) thread_name: String,
    /// Stack size of a worker thread, in bytes; the platform's default if absent.
    pub(crate) stack_size: Option<usize>,
    pub(crate) on_panic: Option<Box<PanicHook>>,
    /// Placement of keys on workers.
    pub(crate) placement: Placement,
    /// Rules by which jobs share the workers.
    pub(crate) jobs: JobRules,
    /// Extent of the measurements.
    pub(crate) statistics: Statistics,
    /// Whether every task is checked against the contract when it begins and ends.
    pub(crate) self_check: bool,
    /// States of keys, if the handler has them.
    pub(crate) key_states: Option<KeyStates>,
    /// Runtime on which futures run.
    #[cfg(feature = "tokio")]
    pub(crate) runtime: Option<crate::complete::FutureRuntime>,
    /// Maximum number of futures that run at once.
    #[cfg(feature = "tokio")]
    pub(crate) concurrency: usize,
}

/// States that a handler has for keys.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyStates {
    /// Time for which a state outlives the tasks of its key, if it does.
    pub(crate) idle: Option<Duration>,
}

impl std::fmt::Debug for EngineSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineSettings")
            .field("workers", &self.workers)
            .field("capacity", &self.capacity)
            .field("capacity_per_key", &self.per_key)
            .field("capacity_bytes", &self.bytes)
            .field("quantum_tasks", &self.quantum_tasks)
            .field("quantum_time", &self.quantum_time)
            .field("stop_after", &self.stop_after)
            .field("rate", &self.rate)
            .field("rate_per_key", &self.rate_per_key)
            .field("thread_name", &self.thread_name)
            .field("stack_size", &self.stack_size)
            .finish_non_exhaustive()
    }
}

pub(crate) struct Engine<K, X: Execute<K>, S> {
    /// Shards; a power of two, never changed.
    shards: Box<[Shard<K, X::Work>]>,
    /// Locked while a batch enters that needs more than half of the inboxes, before the first of
    /// them.
    wide_rows: Mutex<()>,
    /// Unfinished tasks with a descriptor. The lock is held for a few words, except in a round of a
    /// scan. Innermost: taken by submitters that hold inboxes, and at the end of such a task.
    registry: Mutex<ConflictIndexes<K, X::Work>>,
    /// Hasher of keys: one half of a hash chooses the shard, the other the place in its table.
    hasher: S,
    /// Admission gate: one permit for each accepted and unfinished task.
    pub(crate) admission: Admission,
    /// Bounds beside the capacity, if there are any. Never changed.
    pub(crate) bounds: Option<Box<EngineBounds<K>>>,
    /// Rate limits.
    pub(crate) rates: RateLimits,
    /// Shards that may have work for a free worker.
    pub(crate) ready_shards: ReadyBitmap,
    /// Jobs, and the assignment of workers to them.
    pub(crate) sharing: SharedJobs<K, X::Work>,
    /// Further attempts of failed work.
    pub(crate) attempts: WaitingAttempts,
    /// Tasks whose delay is not over.
    delays: DelayedTasks<K, X::Work, AdmissionTicket>,
    /// Searching and sleeping workers.
    pub(crate) idle: IdleWorkers,
    /// Home shards of the workers, if keys return to their worker. Never changed.
    pub(crate) affinity: Option<Box<WorkerAffinity>>,
    /// Worker threads.
    pub(crate) workers: WorkerSet,
    /// Runs tasks.
    executor: X,
    /// Settings at the time the engine was built; the number of workers and the capacity may have
    /// changed since.
    pub(crate) settings: EngineSettings,
    /// Source of [`TaskMeta::time`].
    pub(crate) clock: Clock,
    /// Counters that no other part keeps.
    pub(crate) counters: PoolCounters,
    /// Recorder of running tasks, while a trace is taken.
    pub(crate) tracer: Tracer<K>,
    /// Checks each task against the contract, if enabled.
    pub(crate) checker: Option<Box<OrderChecker<K>>>,
    /// Barriers that have ended and still lower their fences, one shard after the other. Changed by
    /// the thread that ends them, read by searches for tasks behind another one.
    ending_barriers: AtomicUsize,
    /// Whether workers take no more tasks, and end. Set once.
    stopping: AtomicBool,
    /// Number of finished keys that refuse tasks. Changed under the lock of the key's inbox; read
    /// without it by submitters that get no permit.
    refusing: AtomicUsize,
    /// Whether a key has been paused, or is stopped if its tasks fail: subtasks that were granted
    /// their keys then check before they begin. Set before the first key is paused, and never
    /// cleared.
    may_pause: AtomicBool,
    /// Whether a panic has left the engine inconsistent, which has ended it. Set once, by the
    /// thread that noticed; read by refused callers and by drains.
    poisoned: AtomicBool,
    /// Number of keys whose last task has failed and that are not stopped. Changed under the lock
    /// of the key's lanes.
    failing: AtomicUsize,
}

/// Tasks of one part of the keys.
struct Shard<K, W> {
    /// Inbox. Locked by producers for an append, and by workers for a refill.
    inbox: CachePadded<Lock<Inbox<K, W>>>,
    /// Lanes. Locked by workers, at most twice a task. The inbox's lock may be taken under this
    /// one; never the other way round.
    lanes: CachePadded<Lock<Lanes<K, W>>>,
    /// Times of submission of the tasks whose wait is measured. Locked under the inbox's lock when
    /// such a task comes, and alone when it begins.
    waits: CachePadded<Mutex<WaitSamples>>,
    /// Turns that have outlived their bodies. Locked alone, or under the lock of the lanes.
    turns: CachePadded<Mutex<DetachedTurns<HeldLanes<K, W>, TurnResult>>>,
}

/// Request of a worker to a shard after a task has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRequest {
    /// Whether to continue with the lane of the ended task, if it has a next one.
    pub(crate) go_on: bool,
    /// Whether to take another task of this shard.
    pub(crate) stay: bool,
    /// Whether the quantum of the ended task's lane lasts.
    pub(crate) quantum_left: bool,
    /// Whether the lane may continue beyond its quantum if its wait queue is longer than that of
    /// the lane whose turn is next.
    pub(crate) while_longer: bool,
    /// Number of tasks that the lane has run in this turn.
    pub(crate) ran: usize,
}

/// Next task of a worker.
pub(crate) struct StepResult<K, W> {
    /// Lanes that the task in the worker's slot holds.
    pub(crate) held: HeldLanes<K, W>,
    /// Whether it is the next task of the lane whose task has just ended, in the same turn.
    pub(crate) goes_on: bool,
    /// Whether it uses the lane slot of the task before it.
    pub(crate) in_place: bool,
    /// Whether an earlier entry could not run.
    pub(crate) passed: bool,
    /// Whether it is likely to be the last for a moment.
    pub(crate) runs_dry: bool,
}

/// Work that is made at the last moment, in its final place, so that it is not copied on the way.
pub(crate) trait IntoWork<W> {
    fn into_work(self) -> W;

    /// Returns the work, if it is already made.
    fn peek(&self) -> Option<&W> {
        None
    }
}

/// Work that is already made.
pub(crate) struct ReadyWork<W>(pub(crate) W);

impl<W> IntoWork<W> for ReadyWork<W> {
    #[inline(always)]
    fn into_work(self) -> W {
        self.0
    }

    fn peek(&self) -> Option<&W> {
        Some(&self.0)
    }
}

/// Work of any type on one of the rarer ways into the order. Their code is compiled once for each
/// type of pool, and not for each closure, which made every call of `execute` slow to compile.
pub(crate) trait ErasedWork<W> {
    /// Makes the work. Called at most once.
    fn make(&mut self) -> W;

    fn peek(&self) -> Option<&W>;
}

/// Work as [`ErasedWork`], until it is made.
pub(crate) struct UnmadeWork<M>(Option<M>);

impl<M> UnmadeWork<M> {
    pub(crate) fn new(work: M) -> Self {
        UnmadeWork(Some(work))
    }

    /// Takes the work of a refused task.
    pub(crate) fn take_refused(mut self) -> M {
        self.0.take().expect("the work of a refused task is never made")
    }
}

impl<W, M: IntoWork<W>> ErasedWork<W> for UnmadeWork<M> {
    fn make(&mut self) -> W {
        self.0.take().expect("work is made once").into_work()
    }

    fn peek(&self) -> Option<&W> {
        self.0.as_ref().and_then(IntoWork::peek)
    }
}

impl<W> IntoWork<W> for &mut dyn ErasedWork<W> {
    fn into_work(self) -> W {
        self.make()
    }

    fn peek(&self) -> Option<&W> {
        (**self).peek()
    }
}

/// Rollup that is shared by its parts in several shards.
pub(crate) type SharedRollup<K, W> = Arc<Rollup<K, W>>;

/// Unfinished tasks that have a descriptor.
type ConflictIndexes<K, W> = ConflictRegistry<SharedRollup<K, W>>;

/// Pairs of a shard and the index of a claim that belongs to it.
type ClaimShards = Vec<(usize, usize)>;

/// Several inboxes, each with its shard, under their locks.
type LockedInboxes<'a, K, W> = Vec<(usize, LockedInbox<'a, K, W>)>;

/// Inbox under its lock.
type LockedInbox<'a, K, W> = LockGuard<'a, Inbox<K, W>>;

/// Lanes of a shard under their lock.
type LockedLanes<'a, K, W> = LockGuard<'a, Lanes<K, W>>;

/// Rejected task with its claims, and the reason.
pub(crate) type RejectedTask<K, M> = (SubmitErrorKind, Claims<K>, M);

/// Reason for a refusal, and the claims of the task. Its work was not made.
type RejectedClaims<K> = (SubmitErrorKind, Claims<K>);

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Creates an engine. `bytes` is the bound on the cost of tasks, which some executors share.
    pub(crate) fn new(
        settings: EngineSettings,
        bytes: Option<Arc<ByteBound>>,
        hasher: S,
        executor: X,
    ) -> Self {
        let shards = shard_count(&settings);
        let clock = Clock::new();
        let checker = settings.self_check.then(Box::default);
        let idle = settings.key_states.and_then(|states| states.idle);
        let limit = settings.per_key.or_else(|| settings.key_states.map(|_| usize::MAX));
        let keys = limit.map(|most| KeyBound::new(most, shards, idle.is_some()));
        let expiry = idle.map(StateExpiry::new);
        let stop_after = settings.stop_after;
        let restricts = keys.is_some() || bytes.is_some();
        let bounds = (restricts || stop_after.is_some())
            .then(|| Box::new(EngineBounds { stop_after, keys, bytes, expiry }));
        let rates = RateLimits::new(settings.clock.clone(), settings.rate);
        let is_checked = bounds.is_some();
        Engine {
            shards: (0..shards).map(|shard| Shard::new(shard, &settings, is_checked)).collect(),
            wide_rows: Mutex::default(),
            registry: Mutex::new(ConflictRegistry::default()),
            hasher,
            // With other bounds, a spare permit in an inbox would bypass them.
            admission: Admission::new(settings.capacity, if restricts { 0 } else { shards }),
            bounds,
            rates,
            ready_shards: ReadyBitmap::new(shards),
            sharing: SharedJobs::new(),
            attempts: WaitingAttempts::default(),
            delays: DelayedTasks::default(),
            idle: IdleWorkers::new(),
            affinity: matches!(settings.placement, Placement::Sticky)
                .then(|| Box::new(WorkerAffinity::new(settings.workers))),
            workers: WorkerSet::new(settings.workers, settings.statistics, clock.epoch()),
            executor,
            settings,
            clock,
            counters: PoolCounters::default(),
            tracer: Tracer::default(),
            checker,
            ending_barriers: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            refusing: AtomicUsize::new(0),
            may_pause: AtomicBool::new(stop_after.is_some()),
            poisoned: AtomicBool::new(false),
            failing: AtomicUsize::new(0),
        }
    }

    pub(crate) fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    pub(crate) fn shards(&self) -> usize {
        self.shards.len()
    }

    /// Returns whether the calling thread runs a task of this engine.
    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        engine_of_this_thread() == std::ptr::from_ref(self).addr()
    }

    pub(crate) fn executor(&self) -> &X {
        &self.executor
    }
}

/// Limit on the time that a submitter waits for capacity.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    None,
    Until(Instant),
    Endless,
}

impl WaitLimit {
    pub(crate) fn for_at_most(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(WaitLimit::Endless, WaitLimit::Until)
    }

    /// Returns whether the submitter waits at all.
    fn waits(self) -> bool {
        !matches!(self, WaitLimit::None)
    }

    /// Returns whether the submitter waits until it is admitted, or the pool is closed.
    pub(crate) fn is_endless(self) -> bool {
        matches!(self, WaitLimit::Endless)
    }

    /// Converts a refusal by the gate into the error for a submitter with this limit.
    pub(crate) fn explain(self, error: TryAcquireError) -> SubmitErrorKind {
        match (error, self) {
            (TryAcquireError::Closed, _) => SubmitErrorKind::Closed,
            (TryAcquireError::Full, WaitLimit::Until(_)) => SubmitErrorKind::TimedOut,
            (TryAcquireError::Full, _) => SubmitErrorKind::Full,
        }
    }
}

impl From<TryAcquireError> for SubmitErrorKind {
    fn from(error: TryAcquireError) -> Self {
        WaitLimit::None.explain(error)
    }
}

impl<K: Key, W> Shard<K, W> {
    /// Creates a shard. With `is_checked` each step has more to do than to find the next task.
    fn new(index: usize, settings: &EngineSettings, is_checked: bool) -> Self {
        let every = settings.statistics.is_every();
        let mut inbox = Inbox::default();
        if settings.statistics.is_on() {
            // The first task is measured.
            inbox.measure_at = 0;
        }
        let mut lanes = match settings.in_order {
            true => Lanes::in_order(),
            false => Lanes::new(settings.quantum_tasks),
        };
        lanes.is_checked = is_checked;
        if settings.rate_per_key.is_some() {
            lanes.set_common_rate(settings.rate_per_key, 0);
        }
        Shard {
            inbox: CachePadded::new(Lock::new(inbox)),
            lanes: CachePadded::new(Lock::new(lanes)),
            waits: CachePadded::new(Mutex::new(WaitSamples::new(every, index, settings.capacity))),
            turns: CachePadded::new(Mutex::default()),
        }
    }
}

/// Enough shards that workers seldom meet in one, and few enough that a visit pays. In a model they
/// shall meet.
const SHARDS_PER_WORKER: usize = if cfg!(loom) { 1 } else { 4 };

/// Returns the number of shards: a power of two, so that a mask selects one. Fairness among lanes
/// is per shard, so a strict quantum needs a single shard, which slow tasks can afford. So does one
/// order of all starts.
fn shard_count(settings: &EngineSettings) -> usize {
    if settings.strict_quantum || settings.in_order {
        return 1;
    }
    (SHARDS_PER_WORKER * settings.workers).next_power_of_two().min(MAX_SHARDS)
}
