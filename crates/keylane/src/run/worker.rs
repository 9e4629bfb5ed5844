//! A worker: finds a shard with something to offer, serves it for a while, goes on to the next.

mod jobs;
mod trace;

use std::any::Any;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use self::trace::TraceBuffer;
use super::current::{self, EngineHooks, Position};
use super::{EndTurn, ExecContext, Sampler, ShardChoice, Turn, TurnResult};
use crate::allocate::{Claimant, End, Take};
use crate::engine::{
    BatchReport, CurrentJob, Engine, Execute, Key, ReadyWork, StepRequest, StepResult, WorkerReport,
};
use crate::observe::{Statistics, TraceEvents, TraceOutcome, WorkerCounters};
use crate::order::{Held, TaskSlot};
use crate::sync::{spin_hint, yield_now};
use crate::unwind::{call_catch_unwind, drop_catch_unwind};

/// Looks at the ready bitmap, with a pause after each, before a worker without work goes to sleep: about
/// as long as falling asleep and being woken would take. The pauses let producers put down more
/// than one task at a time.
const SPINS: u32 = 16;
const PAUSES_PER_SPIN: u32 = 32;
/// And so many more, giving the processor to others in between.
const YIELDS: u32 = 4;

/// Pauses before a worker with tiny tasks looks into an inbox that has just brought few: less than
/// a microsecond, in which a busy producer puts down a dozen tasks undisturbed.
const DRY_SPINS: u32 = 128;

pub(crate) struct Worker<K: Key, X: Execute<K>, S> {
    engine: Arc<Engine<K, X, S>>,
    id: usize,
    counters: Arc<WorkerCounters>,
    /// Where the next round begins: behind the shard that the last one has reached.
    round: usize,
    /// The shard that is served, or was last.
    last: usize,
    /// The shard was chosen by its load; the next is the next one round.
    by_load: bool,
    sampler: Sampler,
    turn: LaneTurn,
    /// How long a lane may keep the worker; `quantum_time` of the settings.
    quantum_nanos: u64,
    task_slot: TaskSlot<K, X::Work>,
    /// The job that it was last given to.
    current_job: CurrentJob<K, X::Work>,
    /// How many subtasks of that it takes at once.
    batch_size: jobs::BatchSize,
    /// It has looked for long enough: it takes what there is, whoever is at home there.
    eager: bool,
    /// Counted as searching.
    searching: bool,
    /// Something is to be done before the next body: the worker was searching, or measures it.
    alert: bool,
    /// Counted as being on a lane beyond its quantum.
    on_overtime: bool,
    /// Its part of the recording, while there is one.
    trace_buffer: Option<Box<TraceBuffer<K>>>,
    /// The rules have sent it there and wait for its word. Set for each sitting at a job.
    assignment: Option<(Claimant, Take)>,
}

/// How long the worker has been on one lane without giving it back.
struct LaneTurn {
    tasks: usize,
    /// Nanoseconds since the worker was started.
    started: u64,
}

/// Starts, stops and counts the workers of an engine.
pub(crate) trait SpawnWorkers {
    /// Starts workers until there are as many as there should be.
    fn spawn_workers(&self) -> std::io::Result<()>;
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> SpawnWorkers
    for Arc<Engine<K, X, S>>
{
    fn spawn_workers(&self) -> std::io::Result<()> {
        self.workers.spawn_missing(|id, counters| Worker::start(self.clone(), id, counters))
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> Worker<K, X, S> {
    fn start(
        engine: Arc<Engine<K, X, S>>,
        id: usize,
        counters: Arc<WorkerCounters>,
    ) -> std::io::Result<JoinHandle<()>> {
        let mut thread =
            std::thread::Builder::new().name(format!("{}-{id}", engine.settings.thread_name));
        if let Some(bytes) = engine.settings.stack_size {
            thread = thread.stack_size(bytes);
        }
        engine.idle.start_searching();
        let failed = engine.clone();
        let started = thread.spawn(move || {
            let round = id * 4 % engine.shards();
            let quantum_nanos = u64::try_from(engine.settings.quantum_time.as_nanos());
            let now = counters.now();
            let turn = LaneTurn { tasks: 0, started: now };
            // Whoever checks each task looks at each of them.
            let statistics = match engine.settings.self_check {
                true => Statistics::Every,
                false => engine.settings.statistics,
            };
            let sampler = Sampler::new(now, statistics, id as u32);
            let task_slot = TaskSlot::default();
            Worker {
                engine,
                id,
                counters,
                round,
                last: round,
                by_load: false,
                sampler,
                turn,
                quantum_nanos: quantum_nanos.unwrap_or(u64::MAX),
                task_slot,
                current_job: CurrentJob::default(),
                batch_size: jobs::BatchSize::new(),
                eager: false,
                searching: true,
                alert: true,
                on_overtime: false,
                trace_buffer: None,
                assignment: None,
            }
            .run();
        });
        started.inspect_err(|_| failed.idle.stop_searching())
    }

    fn run(mut self) {
        current::join_engine(
            Arc::as_ptr(&self.engine).addr(),
            Arc::new(EngineRef(self.engine.clone())),
        );
        // What bodies throw is caught where they run. This is for what nothing else has caught, such as a
        // key that panics when it is compared.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            self.die(payload);
        }
        current::leave_engine();
    }

    /// The worker has unwound outside of a body. It leaves nothing waiting for it, and ends the engine: the
    /// lanes of the task that it was about are never given back.
    #[cold]
    fn die(&mut self, payload: Box<dyn Any + Send>) {
        self.end_overtime();
        if self.searching {
            // Poisoning wakes all that sleep, so no wake-up is lost with this worker.
            self.engine.idle.stop_searching();
        }
        self.engine.panicked(&*payload);
        drop_catch_unwind(payload);
        // Its handle learns that it was cancelled.
        drop_catch_unwind(std::mem::take(&mut self.task_slot));
        self.engine.poison();
        if let Some((who, take)) = self.assignment.take() {
            let back = WorkerReport { who, take, report: BatchReport::ended(End::Failed) };
            call_catch_unwind(|| {
                _ = self.engine.next_assignment(Some(back), false, &mut self.current_job)
            });
        }
        self.current_job.clear();
    }

    fn work(&mut self) {
        while !self.is_retired() {
            if self.engine.rates.is_shut() {
                self.idle();
                continue;
            }
            if self.engine.sharing.has_jobs() {
                if !self.run_jobs() {
                    self.idle();
                }
                continue;
            }
            match self.pick_shard() {
                Some(shard) => self.run_shard(shard),
                None => self.idle(),
            }
        }
        self.set_idle(false);
        if self.searching {
            self.engine.idle.stop_searching();
            // Whoever relied on this worker to find something needs another.
            if self.engine.ready_shards.any_synced() || self.engine.sharing.offers_synced() {
                self.engine.idle.notify_work();
            }
        }
    }

    /// The shard to serve next: the next one round, so that each is reached; or, where tasks are not
    /// tiny, now and then the one that has most. Were each served alike, those with most would be left
    /// in the end, with their longest lanes still to run, one task after the other.
    fn pick_shard(&mut self) -> Option<usize> {
        if self.engine.affinity.is_some() {
            return self.choose_by_affinity();
        }
        self.by_load = !self.by_load;
        let heavy = match self.by_load && !self.sampler.is_fast() {
            true => self.engine.ready_shards.heaviest_except(self.last),
            false => None,
        };
        let shard = match heavy {
            Some(shard) => shard,
            None => {
                let shard = self.engine.ready_shards.next_from(self.round)?;
                self.round = (shard + 1) % self.engine.shards();
                shard
            }
        };
        self.last = shard;
        Some(shard)
    }

    /// The same where keys are to return to their worker.
    #[cold]
    fn choose_by_affinity(&mut self) -> Option<usize> {
        let eager = std::mem::take(&mut self.eager);
        let choices = self.choices(eager)?;
        let shards = self.engine.shards();
        let round = (0..shards).map(|step| (self.round + step) % shards);
        let shard = round.into_iter().find(|shard| choices & 1 << shard != 0)?;
        self.round = (shard + 1) % shards;
        self.last = shard;
        Some(shard)
    }

    /// The shards from which it would choose, if there are any, where keys are to return to their worker.
    fn choices(&self, eager: bool) -> Option<u64> {
        let Engine { affinity, ready_shards, clock, .. } = &*self.engine;
        let choice = ShardChoice { offers: ready_shards.ready_bits(), eager, now: clock.now() };
        let choices = affinity.as_ref()?.choices(self.id, choice);
        (choices != 0).then_some(choices)
    }

    /// Whether there is anything that it would choose.
    fn has_choice(&self) -> bool {
        let engine = &self.engine;
        let Some(_) = &engine.affinity else { return engine.offers_anything() };
        !engine.rates.is_shut() && (self.choices(false).is_some() || engine.sharing.offers())
    }

    /// Whoever leaves tasks to those who are at home knows whether that is idle.
    fn set_idle(&self, idle: bool) {
        if let Some(affinity) = &self.engine.affinity {
            affinity.set_idle(self.id, idle);
        }
    }

    fn is_retired(&self) -> bool {
        self.engine.stopping()
            || self.engine.workers.has_surplus() && self.engine.workers.retire(self.id)
    }

    /// Runs tasks of a shard until it has none, or others have waited long enough.
    fn run_shard(&mut self, shard: usize) {
        let mut ended = None;
        let mut stay = true;
        loop {
            let stays = self.within_quantum() || self.overtime();
            let while_longer = stays && self.on_overtime && self.engine.settings.strict_quantum;
            let request = StepRequest {
                go_on: stay || !self.must_leave(),
                stay,
                quantum_left: stays && !while_longer,
                while_longer,
                ran: self.turn.tasks,
            };
            let next = self.engine.step(shard, ended.take(), request, &mut self.task_slot);
            let Some(StepResult { held, goes_on, in_place, passed, runs_dry }) = next else {
                break;
            };
            if !in_place {
                self.publish_position(shard, &held);
            }
            if self.alert || self.task_slot.meta.is_measured() {
                self.before_task(shard, &held);
            }
            self.begin_turn(goes_on);
            ended = self.run_task(shard, held);
            // Once its time here is over, the worker goes on with its lane at the most.
            stay = (!self.sampler.should_check() || self.after_slice(shard, &ended)) && stay;
            // What could not run waits, directly or not, for rollups that wait for their parts in
            // other shards. Were this shard served on, more and more tasks would line up in it.
            stay = stay && !(passed && self.engine.ready_shards.any_except(shard));
            if runs_dry && self.sampler.is_fast() {
                (0..DRY_SPINS).for_each(|_| spin_hint());
            }
        }
        self.end_overtime();
    }

    /// Before the body of a task that was searched for, or is measured.
    #[cold]
    fn before_task(&mut self, shard: usize, held: &Held<K, X::Work>) {
        if self.searching {
            self.searching = false;
            self.set_idle(false);
            let engine = &self.engine;
            engine.idle.stop_searching_and_pass_on(|| {
                engine.offers_more(shard) || engine.sharing.offers_synced()
            });
            self.join_trace();
            self.sampler.restart(self.counters.now());
            self.counters.fell_busy(self.sampler.now());
        }
        let now = self.counters.now();
        let meta = self.task_slot.meta;
        let mut wait = None;
        if meta.is_measured()
            && let Some((submitted, stands_for)) = self.engine.end_wait(shard, held, meta.seq)
        {
            let nanos = now.saturating_sub(submitted);
            self.counters.waited(nanos, stands_for.into());
            wait = Some(Duration::from_nanos(nanos));
        }
        self.engine.check_begin(shard, held, meta.seq);
        self.alert = false;
        if let Some(trace_buffer) = &mut self.trace_buffer
            && self.sampler.is_timing()
        {
            let info = self.engine.trace(shard, held, Some(meta.seq), wait);
            let now = self.counters.now();
            trace_buffer.begins(info, now);
            self.sampler.begins(now);
        } else {
            self.sampler.begins(now);
        }
    }

    /// Takes part in a recording from the next slice on, or no longer.
    fn join_trace(&mut self) {
        if self.trace_buffer.is_some() || self.engine.tracer.is_on() {
            self.trace_buffer =
                TraceBuffer::refresh(self.trace_buffer.take(), &self.engine, self.id);
            self.sampler.set_every(self.trace_buffer.is_some());
        }
    }

    /// Looks at the clock after a task. Returns whether to stay on the shard.
    #[cold]
    fn after_slice(&mut self, shard: usize, ended: &Option<Held<K, X::Work>>) -> bool {
        if let Some(ended) = ended {
            self.engine.check_end(shard, ended);
        }
        let stop = self.sampler.check(|| self.counters.now());
        if let Some((took, stands_for)) = stop.measured {
            self.counters.took(took, stands_for);
        }
        if let Some(trace_buffer) = &mut self.trace_buffer {
            trace_buffer.ends(self.counters.now(), stop.measured.is_some(), None);
        }
        if stop.slice_ended {
            self.join_trace();
        }
        self.alert = self.sampler.is_timing();
        !stop.slice_ended || self.end_slice(shard)
    }

    #[inline]
    fn begin_turn(&mut self, goes_on: bool) {
        if goes_on {
            self.turn.tasks += 1;
        } else {
            self.end_overtime();
            self.turn = LaneTurn { tasks: 1, started: self.sampler.now() };
        }
    }

    /// Whether the lane may stay on although its quantum is used up: as long as that is so on no
    /// more than half of the workers. The others are for everybody else.
    #[cold]
    fn overtime(&mut self) -> bool {
        self.on_overtime = self.on_overtime || self.engine.workers.try_overtime();
        self.on_overtime
    }

    #[inline]
    fn end_overtime(&mut self) {
        if self.on_overtime {
            self.on_overtime = false;
            self.engine.workers.end_overtime();
        }
    }

    #[inline]
    fn within_quantum(&self) -> bool {
        self.turn.tasks < self.engine.settings.quantum_tasks
            && self.sampler.now() - self.turn.started < self.quantum_nanos
    }

    /// At the end of a slice: whether to stay on the shard.
    fn end_slice(&mut self, shard: usize) -> bool {
        self.counters.looked(self.sampler.now());
        !self.engine.ready_shards.any_except(shard) && !self.must_leave()
    }

    /// While there are jobs, a slice is a sitting: then the worker asks where it goes next.
    fn must_leave(&self) -> bool {
        self.must_end() || self.engine.sharing.has_jobs()
    }

    fn must_end(&self) -> bool {
        self.engine.stopping() || self.engine.workers.has_surplus()
    }

    /// Runs the task in the hand. Returns what it held, unless that is given back already or kept.
    #[inline]
    fn run_task(&mut self, shard: usize, held: Held<K, X::Work>) -> Option<Held<K, X::Work>> {
        let _span =
            TraceEvents::task(&self.engine.settings.thread_name, self.id, self.task_slot.meta.seq);
        let key = self.task_slot.key.take();
        let work = self.task_slot.open();
        let (engine, counters) = (&self.engine, &*self.counters);
        let mut ctx = TaskCtx { engine, counters, shard, turn: TaskTurn::Here(held) };
        let body =
            AssertUnwindSafe(|| self.engine.executor().execute(key.as_ref(), work, &mut ctx));
        if let Err(payload) = catch_unwind(body) {
            ctx.panicked(&*payload);
            drop_catch_unwind(payload);
        }
        let turn = ctx.turn;
        drop_catch_unwind(key);
        let held = match turn {
            TaskTurn::Here(held) => held,
            TaskTurn::Kept(turn) => self.leave_body(shard, turn)?,
        };
        self.counters.ran_one();
        match held {
            held @ Held::Rollup(_) => {
                self.engine.check_end(shard, &held);
                let Held::Rollup(rollup) = held else { unreachable!("it has just been one") };
                // Not the last to have it, so no key is dropped.
                current::leave_rollup();
                self.counters.leave_rollup();
                if let Some(trace_buffer) = &mut self.trace_buffer {
                    // Before anybody else can have its keys.
                    trace_buffer.ends(self.counters.now(), true, None);
                }
                self.engine.end_rollup(&rollup);
                drop_catch_unwind(rollup);
                None
            }
            held => Some(held),
        }
    }

    /// The body has returned that has kept this turn. Returns what it held, if the turn was dropped before:
    /// then it is as if it had never been kept.
    #[cold]
    #[inline(never)]
    fn leave_body(&mut self, shard: usize, turn: usize) -> Option<Held<K, X::Work>> {
        // What the body says of the task, and what who has the turn says, is put together by who ends it.
        let judged = self.engine.leave_body(shard, turn, current::take_turn_result());
        let Some((held, turn_result)) = judged else {
            self.sampler.skip_sample();
            self.counters.ran_one();
            // The next to keep its turn knows when it began.
            self.counters.looked(self.counters.now());
            return None;
        };
        current::set_turn_result(turn_result);
        Some(held)
    }

    /// Looks for work a little longer, then sleeps.
    #[cold]
    fn idle(&mut self) {
        if !self.searching {
            self.searching = true;
            self.alert = true;
            self.engine.idle.start_searching();
            self.set_idle(true);
            self.counters.fell_idle(self.counters.now());
        }
        for spin in 0..SPINS + YIELDS {
            if spin < SPINS {
                (0..PAUSES_PER_SPIN).for_each(|_| spin_hint());
            } else {
                yield_now();
            }
            if self.has_choice() || self.engine.stopping() {
                return;
            }
        }
        // What has come for others meanwhile they have not taken.
        self.eager = self.engine.offers_anything();
        let before = self.counters.now();
        let engine = &self.engine;
        engine.idle.sleep(self.id, || {
            engine.offers_synced() || engine.stopping() || engine.workers.has_surplus()
        });
        self.counters.has_slept(self.counters.now().saturating_sub(before));
    }

    /// Says where the task in the hand stands, to itself and to who looks from outside.
    #[inline]
    fn publish_position(&self, shard: usize, held: &Held<K, X::Work>) {
        match held {
            Held::Free => {
                current::stand_free();
                self.counters.stand_free();
            }
            Held::Lane(slot) => {
                current::stand_in_lane(shard, *slot);
                self.counters.stand_in_lane(shard, *slot);
            }
            Held::Rollup(rollup) => {
                current::stand_in_rollup(rollup.clone());
                self.counters.stand_in_rollup(rollup.clone());
            }
        }
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// The task that this thread runs has not ended well.
    fn note(&self, how: TraceOutcome) {
        current::note_mishap(how);
        TraceEvents::mishap(&self.settings.thread_name, how);
    }

    /// Counts a panic of a task, or of what is asked about one, and calls the hook.
    pub(crate) fn panicked(&self, payload: &(dyn Any + Send)) {
        self.counters.count_panic();
        self.note(TraceOutcome::Panicked);
        if let Some(hook) = &self.settings.on_panic
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| hook(payload)))
        {
            drop_catch_unwind(payload);
        }
    }
}

/// The stage of one task.
struct TaskCtx<'a, K: Key, X: Execute<K>, S> {
    engine: &'a Arc<Engine<K, X, S>>,
    counters: &'a WorkerCounters,
    shard: usize,
    turn: TaskTurn<Held<K, X::Work>>,
}

/// Where the turn of a task is while its body runs.
enum TaskTurn<H> {
    /// With the body, and this is what it holds.
    Here(H),
    /// With whoever keeps it, and this is what the shard knows it by.
    Kept(usize),
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> ExecContext
    for TaskCtx<'_, K, X, S>
{
    fn panicked(&self, payload: &(dyn Any + Send)) {
        current::set_turn_result(TurnResult::Failed);
        self.engine.panicked(payload);
    }

    fn failed(&self) {
        current::set_turn_result(TurnResult::Failed);
        self.engine.counters.count_failed();
        self.engine.note(TraceOutcome::Failed);
    }

    fn cancelled(&self) {
        self.is_void();
        self.engine.counters.count_cancelled();
        self.engine.note(TraceOutcome::Cancelled);
    }

    fn is_void(&self) {
        current::set_turn_result(TurnResult::Void);
    }

    fn keep_turn(&mut self) -> Turn {
        // No shard has so many that this could be one's number.
        let held = match std::mem::replace(&mut self.turn, TaskTurn::Kept(usize::MAX)) {
            TaskTurn::Here(held) => held,
            TaskTurn::Kept(_) => unreachable!("a turn is kept once"),
        };
        let turn = self.engine.keep_turn(self.shard, held, self.counters.began());
        self.turn = TaskTurn::Kept(turn);
        Turn::new(KeptTurn { engine: self.engine.clone(), shard: self.shard, turn })
    }
}

/// A turn that somebody keeps, for longer than the body goes on or not.
struct KeptTurn<K: Key, X: Execute<K>, S> {
    engine: Arc<Engine<K, X, S>>,
    shard: usize,
    /// What the shard knows it by.
    turn: usize,
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> EndTurn for KeptTurn<K, X, S> {
    fn end(self: Box<Self>, turn_result: TurnResult) {
        self.engine.intact_quietly(|| self.engine.leave_turn(self.shard, self.turn, turn_result));
    }

    fn back_off(&self, pause: Duration) {
        self.engine.back_off(self.shard, self.turn, pause);
    }

    fn place(&self) -> Option<(usize, usize)> {
        Some((self.shard, self.turn))
    }
}

/// An engine, as its own workers see it.
struct EngineRef<K: Key, X: Execute<K>, S>(Arc<Engine<K, X, S>>);

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> EngineHooks
    for EngineRef<K, X, S>
{
    fn is_behind(&self, position: &Position, is_it: &dyn Fn(usize) -> bool) -> bool {
        self.0.intact(|| self.0.is_behind(position, is_it))
    }

    fn block(&self) -> bool {
        self.0.workers.block();
        self.0.resync_worker_count();
        if self.0.spawn_workers().is_err() {
            // The next wait tries again, for this one as well.
            TraceEvents::thread_refused(&self.0.settings.thread_name);
        }
        // Each that waits asks after it was counted, so the last of them sees all.
        let goes_on = self.0.workers.has_unblocked();
        if !goes_on {
            self.unblock();
        }
        goes_on
    }

    fn unblock(&self) {
        self.0.workers.unblock();
        self.0.resync_worker_count();
    }

    #[cfg(feature = "tokio")]
    fn panicked(&self, payload: &(dyn Any + Send)) {
        self.0.panicked(payload);
    }

    #[cfg(feature = "tokio")]
    fn cancelled(&self) {
        self.0.counters.count_cancelled();
    }
}
