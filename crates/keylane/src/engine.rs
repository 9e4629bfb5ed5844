//! Composes the stages: admit, order, allocate, run, complete.
//!
//! The engine knows nothing of closures, handles or messages: what a task *is* and how it runs is
//! the business of its [`Execute`]. It moves tasks from the gate through the inboxes and lanes to
//! the workers, and their claims back.

mod admit;
mod batch;
mod bounds;
mod controls;
mod deadlock;
mod enqueue;
mod explain;
mod failure_policy;
mod jobs;
mod latest;
#[cfg(all(test, loom))]
mod models;
mod poison;
mod predicate;
mod rates;
mod resize;
mod snapshot;
mod step;
mod stop;
mod timing;
mod trace;

use std::any::Any;
use std::hash::{BuildHasher, Hash};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::admit::{Admission, ByteBound, Cost, KeyBound, KeyRef, TryAcquireError};
use crate::allocate::{MAX_SHARDS, ReadyBitmap};
use crate::error::SubmitErrorKind;
use crate::observe::{
    Checker, Clock, Counters, DetachedTurns, Statistics, TraceEvents, Tracer, WaitSamples,
};
use crate::order::{
    Claims, ConflictRegistry, Held, Inbox, InboxEntry, KeyClaim, Lanes, Rate, Replaced, Repr,
    Rollup, Scope, SlotRef, TaskMeta, TaskSlot, Weighed, merge_claims,
};
use crate::run::{
    Affinity, ExecContext, Idle, MockClock, Placement, TurnResult, WorkerSet, engine_of_this_thread,
};
use crate::sync::{AtomicBool, AtomicUsize, Lock, LockGuard, Mutex, MutexGuard, Ordering};

pub(crate) use jobs::{
    Assignment, BatchReport, CurrentJob, JobControl, JobRules, JobRunner, JobSharing,
    WeakJobControl, WorkerCtx, WorkerReport,
};

pub(crate) use self::bounds::{AdmissionTicket, Bounds};
pub use self::failure_policy::OnFailure;
pub(crate) use self::latest::{LatestResult, Superseded};
use self::rates::Rates;
pub(crate) use self::trace::TraceInfo;

/// What the tasks of an engine are, and how one runs.
pub(crate) trait Execute<K>: Send + Sync + 'static {
    /// All that is particular to one task.
    type Work: Send + 'static;

    /// Whether work that another has replaced is dropped by who submits that other, and before that
    /// begins. Else it goes back to the caller.
    const DROPS_REPLACED: bool = false;

    /// Whether `execute` is to be given the key.
    const WANTS_KEY: bool;

    /// Runs a task. The turn ends when this returns, unless the stage was asked to keep it.
    fn execute(&self, key: Option<&K>, work: SlotRef<'_, Self::Work>, ctx: &mut dyn ExecContext);

    /// The name of the task that somebody may wait for, if it has one.
    fn name(work: &Self::Work) -> Option<usize>;

    /// Whether a task may be taken out of the lanes, alone. Else it belongs to something larger.
    fn may_take(_: &Self::Work) -> bool {
        true
    }

    /// What a task weighs besides what its claims say.
    fn weigh(&self, _: &Self::Work) -> usize {
        0
    }

    /// Has a task give back its cost when it ends. Without this `execute` does, by what the task
    /// weighs.
    fn charge(work: Self::Work, cost: Cost) -> Self::Work {
        cost.leave();
        work
    }
}

/// A key that the engine can order by.
pub trait Key: Hash + Eq + Clone + Send + Sync + 'static {}
impl<K: Hash + Eq + Clone + Send + Sync + 'static> Key for K {}

/// Called with what a task panicked with.
pub(crate) type PanicHook = dyn Fn(&(dyn Any + Send)) + Send + Sync;

/// What can be chosen when an engine is built. Every field has been validated.
pub(crate) struct EngineSettings {
    pub(crate) workers: usize,
    /// Accepted and unfinished tasks, at the most.
    pub(crate) capacity: usize,
    /// Of one key, at the most, if that is bounded.
    pub(crate) per_key: Option<usize>,
    /// What they weigh together, at the most, if that is bounded.
    pub(crate) bytes: Option<usize>,
    /// A lane yields to others after so many tasks,
    pub(crate) quantum_tasks: usize,
    /// or after so long.
    pub(crate) quantum_time: Duration,
    /// and, while others are ready, stays beyond that on no worker at all.
    pub(crate) strict_quantum: bool,
    /// A key is stopped after so many failures in a row, if at all.
    pub(crate) stop_after: Option<u32>,
    /// How often tasks may begin,
    pub(crate) rate: Option<Rate>,
    /// and those of each key,
    pub(crate) rate_per_key: Option<Rate>,
    /// by this clock, if not by the system's.
    pub(crate) clock: Option<MockClock>,
    /// Worker threads are called this, and their number.
    pub(crate) thread_name: String,
    /// Bytes of stack of a worker thread; the platform's default if absent.
    pub(crate) stack_size: Option<usize>,
    pub(crate) on_panic: Option<Box<PanicHook>>,
    /// Which worker runs the tasks of a key.
    pub(crate) placement: Placement,
    /// How jobs share the workers.
    pub(crate) jobs: JobRules,
    /// What is measured.
    pub(crate) statistics: Statistics,
    /// Every task is checked against the contract when it begins.
    pub(crate) self_check: bool,
    /// Where futures run.
    #[cfg(feature = "tokio")]
    pub(crate) runtime: Option<crate::complete::Runtime>,
    /// How many of them at a time.
    #[cfg(feature = "tokio")]
    pub(crate) concurrency: usize,
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
    /// A power of two, never changed.
    shards: Box<[Shard<K, X::Work>]>,
    /// The unfinished tasks that have a descriptor, each in one lock of a few words but for the look-ups.
    /// Innermost: taken by submitters while they have inboxes, and by whoever ends such a task.
    registry: Mutex<ConflictIndexes<K, X::Work>>,
    /// Hashes keys; half of a hash chooses the shard, half the place in its table.
    hasher: S,
    /// A slot for each accepted and unfinished task.
    pub(crate) admission: Admission,
    /// What else is bounded, if anything is. Never changed.
    pub(crate) bounds: Option<Box<Bounds<K>>>,
    /// How often tasks may begin.
    pub(crate) rates: Rates,
    /// Which shards have something to offer.
    pub(crate) ready_shards: ReadyBitmap,
    /// The jobs, and who is to serve them.
    pub(crate) sharing: JobSharing<K, X::Work>,
    /// Which workers look for something, and which sleep.
    pub(crate) idle: Idle,
    /// Which worker is at home where, if keys are to return to theirs. Never changed.
    pub(crate) affinity: Option<Box<Affinity>>,
    /// The worker threads.
    pub(crate) workers: WorkerSet,
    /// Runs a task.
    executor: X,
    /// As the engine was built; the number of workers and the capacity may have changed since.
    pub(crate) settings: EngineSettings,
    /// Gives labels their time.
    pub(crate) clock: Clock,
    /// What is counted by nobody else.
    pub(crate) counters: Counters,
    /// Where it is recorded what runs, while that is wanted.
    pub(crate) tracer: Tracer<K>,
    /// Checks each task against the contract, if that was asked for.
    pub(crate) checker: Option<Box<Checker<K>>>,
    /// Barriers that have ended and still lower their fences, one shard after the other. Raised and
    /// lowered by who ends them, read by who asks what is behind a task.
    ending_barriers: AtomicUsize,
    /// Workers take no more tasks, and end. Set once.
    stopping: AtomicBool,
    /// Keys that were finished and whose tasks are refused. Changed under the lock of the key's inbox, read
    /// without it by who finds no room.
    refusing: AtomicUsize,
    /// A key has been paused, or is stopped if its tasks fail: subtasks that were granted their keys ask before
    /// they begin. Set before the first key is held, and never lowered.
    steers: AtomicBool,
    /// A panic has left something half done, and the engine has ended. Set once, by the thread that
    /// noticed; read by callers that were refused, and by drainers.
    poisoned: AtomicBool,
    /// Keys whose last task has failed and that go on. Changed under the lock of the key's lanes.
    failing: AtomicUsize,
}

/// The tasks of a part of the keys.
struct Shard<K, W> {
    /// Taken by producers for an append, and by workers to take over what is there.
    inbox: CachePadded<Lock<Inbox<K, W>>>,
    /// Taken by workers, twice a task or less. A worker that holds it may take the inbox's lock;
    /// never the other way round.
    lanes: CachePadded<Lock<Lanes<K, W>>>,
    /// When the tasks were submitted whose wait is measured. Taken under the inbox's lock when such a
    /// task comes, and alone when it begins.
    waits: CachePadded<Mutex<WaitSamples>>,
    /// The turns that have outlived their bodies; Taken
    /// alone, or under the lock of the lanes.
    turns: CachePadded<Mutex<DetachedTurns<Held<K, W>, TurnResult>>>,
}

/// What a worker wants of a shard after a task has ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepRequest {
    /// It goes on with the lane of the ended task, if that has a next one.
    pub(crate) go_on: bool,
    /// It wants another task of this shard.
    pub(crate) stay: bool,
    /// The lane of the ended task may go on.
    pub(crate) quantum_left: bool,
    /// It may go on if more waits in it than in the lane whose turn it would be.
    pub(crate) while_longer: bool,
    /// How many tasks the lane has run in this turn.
    pub(crate) ran: usize,
}

/// What a worker does next.
pub(crate) struct StepResult<K, W> {
    /// What the task in the worker's hand holds.
    pub(crate) held: Held<K, W>,
    /// It is the next of the lane whose task has just ended, in the same turn.
    pub(crate) goes_on: bool,
    /// It stands where the task before it stood.
    pub(crate) in_place: bool,
    /// Something that came before it could not run.
    pub(crate) passed: bool,
    /// It may well be the last for a moment.
    pub(crate) runs_dry: bool,
}

/// Work that is made at the last moment, at the place where it will stay, so that it is not copied
/// on the way there.
pub(crate) trait IntoWork<W> {
    fn into_work(self) -> W;

    /// The work, if it is there already.
    fn peek(&self) -> Option<&W> {
        None
    }
}

/// Work that is there already.
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

/// A task that stands in several places.
pub(crate) type SharedRollup<K, W> = Arc<Rollup<K, W>>;

/// The tasks that have a descriptor.
type ConflictIndexes<K, W> = ConflictRegistry<SharedRollup<K, W>>;

/// Which claims of a task, by their index, go to which shard.
type ClaimShards = Vec<(usize, usize)>;

/// Several inboxes, each with its shard, under their locks.
type OpenInboxes<'a, K, W> = Vec<(usize, OpenInbox<'a, K, W>)>;

/// An inbox under its lock.
type OpenInbox<'a, K, W> = LockGuard<'a, Inbox<K, W>>;

/// The lanes of a shard under their lock.
type OpenLanes<'a, K, W> = LockGuard<'a, Lanes<K, W>>;

/// A task that was not accepted, and why.
pub(crate) type RejectedTask<K, M> = (SubmitErrorKind, Claims<K>, M);

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// `bytes` is the bound on what the tasks weigh, which some executors share.
    pub(crate) fn new(
        settings: EngineSettings,
        bytes: Option<Arc<ByteBound>>,
        hasher: S,
        executor: X,
    ) -> Self {
        let shards = shard_count(&settings);
        let clock = Clock::new();
        let checker = settings.self_check.then(Box::default);
        let keys = settings.per_key.map(|most| KeyBound::new(most, shards));
        let stop_after = settings.stop_after;
        let restricts = keys.is_some() || bytes.is_some();
        let bounds = (restricts || stop_after.is_some())
            .then(|| Box::new(Bounds { stop_after, keys, bytes }));
        let rates = Rates::new(&settings);
        let is_checked = bounds.is_some();
        Engine {
            shards: (0..shards).map(|shard| Shard::new(shard, &settings, is_checked)).collect(),
            registry: Mutex::new(ConflictRegistry::default()),
            hasher,
            // Where there are other bounds too, a slot that is kept in an inbox would lead past them.
            admission: Admission::new(settings.capacity, if restricts { 0 } else { shards }),
            bounds,
            rates,
            ready_shards: ReadyBitmap::new(shards),
            sharing: JobSharing::new(),
            idle: Idle::new(),
            affinity: (settings.placement == Placement::Sticky)
                .then(|| Box::new(Affinity::new(settings.workers))),
            workers: WorkerSet::new(settings.workers, settings.statistics, clock.epoch()),
            executor,
            settings,
            clock,
            counters: Counters::default(),
            tracer: Tracer::default(),
            checker,
            ending_barriers: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            refusing: AtomicUsize::new(0),
            steers: AtomicBool::new(stop_after.is_some()),
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

    /// Whether the calling thread runs a task of this engine.
    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        engine_of_this_thread() == std::ptr::from_ref(self).addr()
    }

    pub(crate) fn executor(&self) -> &X {
        &self.executor
    }
}

/// How long a submitter waits for room.
#[derive(Clone, Copy, Debug)]
pub(crate) enum WaitLimit {
    None,
    Until(Instant),
    Endless,
}

impl WaitLimit {
    /// Whether it waits at all.
    fn waits(self) -> bool {
        !matches!(self, WaitLimit::None)
    }

    /// What a refusal means to somebody with this patience.
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
    /// `is_checked` says that each step has more to do than to find the next task.
    fn new(index: usize, settings: &EngineSettings, is_checked: bool) -> Self {
        let every = settings.statistics == Statistics::Every;
        let mut inbox = Inbox::default();
        if settings.statistics != Statistics::Off {
            // The first one is.
            inbox.measure_at = 0;
        }
        let mut lanes = Lanes::new(settings.quantum_tasks);
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

/// So that workers seldom meet in a shard, but a visit is worth while. In a model they shall meet.
const SHARDS_PER_WORKER: usize = if cfg!(loom) { 1 } else { 4 };

/// A power of two, so that a mask picks one. Turns go round the lanes of a shard, so where lanes are to get on evenly
/// there is one shard, which slow tasks can afford.
fn shard_count(settings: &EngineSettings) -> usize {
    if settings.strict_quantum {
        return 1;
    }
    (SHARDS_PER_WORKER * settings.workers).next_power_of_two().min(MAX_SHARDS)
}
