//! Worker thread: picks a shard with ready tasks, runs them for a time slice, and moves to the next
//! shard.

mod jobs;
mod task_ctx;
mod trace;

use std::any::Any;
use std::hash::BuildHasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use keylane_allocate::{Claimant, End, Take};

use self::task_ctx::{TaskCtx, TaskTurn};
use self::trace::TraceBuffer;
use super::batch_size::BatchSize;
use super::current::{self, EngineHooks, OrderPosition};
use super::stretch::Stretch;
use super::{AttemptEngine, BlockAnswer, ExecContext, Sampler, ShardChoiceInput, TurnResult};
use crate::engine::{
    BatchReport, CurrentJob, Engine, Execute, Key, ReadyWork, StepRequest, StepResult, WorkerReport,
};
use crate::observe::{Statistics, TraceEvents, TraceOutcome, WorkerCounters};
use crate::order::{HeldLanes, TaskSlot};
use crate::sync::{JoinHandle, spawn, spin_hint, yield_now};
use crate::unwind::{KeyPanic, call_catch_unwind, catch_key_panic, drop_catch_unwind};

/// Polls of the ready bitmap by a worker without work, with a pause after each, before it sleeps.
/// Together they take about as long as one sleep and wake-up. The pauses let producers submit more
/// than one task at a time.
const SPINS: u32 = 16;
const PAUSES_PER_SPIN: u32 = 32;
/// Further polls, with a yield in place of the pause.
const YIELDS: u32 = 4;

/// Pauses of a worker with short tasks before it reads an inbox that has just returned few: less
/// than a microsecond, in which a busy producer submits a dozen tasks undisturbed.
const DRY_SPINS: u32 = 128;

pub(crate) struct Worker<K: Key, X: Execute<K>, S> {
    engine: Arc<Engine<K, X, S>>,
    id: usize,
    counters: Arc<WorkerCounters>,
    /// First shard of the next round: the one after the last that was picked.
    round: usize,
    /// Shard that is being served, or was served last.
    last: usize,
    /// Whether the shard was picked by its load; the next is then picked in turn.
    by_load: bool,
    sampler: Sampler,
    turn: LaneTurn,
    /// Longest time of a turn on one lane, in nanoseconds; `quantum_time` of the settings.
    quantum_nanos: u64,
    task_slot: TaskSlot<K, X::Work>,
    /// Job that was last assigned to the worker.
    current_job: CurrentJob<K, X::Work>,
    /// Number of its subtasks without keys that the worker takes at once.
    batch_size: BatchSize,
    /// Number of its subtasks with keys that the worker enqueues at once.
    keyed_batch_size: BatchSize,
    /// Assignments of the worker while it serves a shard.
    stretch: Stretch,
    /// Set after a fruitless search: the worker takes any task, whatever its home worker.
    eager: bool,
    /// Whether the worker is counted as searching.
    searching: bool,
    /// Whether `before_task` must run: the worker was searching, or measures the next task.
    needs_before_task: bool,
    /// Whether the worker is counted as on a lane beyond its quantum.
    on_overtime: bool,
    /// Buffer of the trace recording, while there is one.
    trace_buffer: Option<Box<TraceBuffer<K>>>,
    /// Assignment that the scheduler expects a report for. Set for each batch of a job.
    assignment: Option<(Claimant, Take)>,
}

/// Time of the worker on one lane without releasing it.
struct LaneTurn {
    tasks: usize,
    /// Start of the turn, in nanoseconds since the pool was built.
    started: u64,
}

/// Starts the workers of an engine.
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
        let name = format!("{}-{id}", engine.settings.thread_name);
        let stack_size = engine.settings.stack_size;
        engine.idle.start_searching();
        let failed = engine.clone();
        let started = spawn(name, stack_size, move || {
            let round = id * 4 % engine.shards();
            let quantum_nanos = u64::try_from(engine.settings.quantum_time.as_nanos());
            let now = counters.now();
            let turn = LaneTurn { tasks: 0, started: now };
            // The self-check inspects every task, so it needs every one to be measured.
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
                batch_size: BatchSize::new(),
                keyed_batch_size: BatchSize::new(),
                stretch: Stretch::new(),
                eager: false,
                searching: true,
                needs_before_task: true,
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
        // Panics of bodies are caught where the bodies run. This catches all others, such as a
        // panic of a key's comparison.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| self.work())) {
            self.handle_panic(payload);
        }
        current::leave_engine();
    }

    /// Cleans up after a panic outside of a body: ends all of the worker's counts and reports, and
    /// poisons the engine, because the lanes of its current task are never released.
    #[cold]
    fn handle_panic(&mut self, payload: Box<dyn Any + Send>) {
        self.end_overtime();
        if self.searching {
            // Poisoning wakes all sleepers, so no wake-up is lost with this worker.
            self.engine.idle.stop_searching();
        }
        self.engine.panicked(&*payload);
        drop_catch_unwind(payload);
        // Dropping the task reports it to its handle as cancelled.
        drop_catch_unwind(std::mem::take(&mut self.task_slot));
        self.engine.poison();
        let stretch = self.stretch.close(&self.counters);
        let batch = self.assignment.take().map(|(who, take)| {
            let report = BatchReport::ended(End::Failed);
            WorkerReport { who, take, report }
        });
        if let Some(report) = batch.or(stretch) {
            call_catch_unwind(|| {
                _ = self.engine.next_assignment(Some(report), false, &mut self.current_job)
            });
        }
        self.current_job.clear();
    }

    fn work(&mut self) {
        while !self.is_retired() {
            // One at a time, so that neither attempts nor tasks wait for all of the others.
            self.run_attempt();
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
                Some(shard) => {
                    self.run_shard(shard);
                    self.report_stretch();
                }
                None => self.idle(),
            }
        }
        self.set_idle(false);
        if self.searching {
            self.engine.idle.stop_searching();
            // A producer may have skipped a wake-up because this worker was searching, so pass the
            // search on.
            if self.engine.ready_shards.any_synced()
                || self.engine.sharing.offers_synced()
                || self.engine.attempts.is_ready_synced()
            {
                self.engine.idle.notify_work();
            }
        }
    }

    /// Picks the shard to serve next: in turn, so that each is reached; and every other time,
    /// unless tasks are short, the one with the highest load. Serving all shards alike would leave
    /// the most loaded ones to the end, with their longest lanes still to run, one task after the
    /// other.
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

    /// Picks the shard to serve next where placement is sticky.
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

    /// Returns the shards from which the worker would choose where placement is sticky, or `None`
    /// if there are none.
    fn choices(&self, eager: bool) -> Option<u64> {
        let Engine { affinity, ready_shards, clock, .. } = &*self.engine;
        let choice =
            ShardChoiceInput { offers: ready_shards.ready_bits(), eager, now: clock.now() };
        let choices = affinity.as_ref()?.choices(self.id, choice);
        (choices != 0).then_some(choices)
    }

    /// Returns whether there is a task that the worker would choose.
    fn has_choice(&self) -> bool {
        let engine = &self.engine;
        let Some(_) = &engine.affinity else { return engine.offers_anything() };
        engine.attempts.is_ready()
            || !engine.rates.is_shut() && (self.choices(false).is_some() || engine.sharing.offers())
    }

    /// Publishes whether the worker is idle: other workers leave tasks of its home shards to it
    /// only then.
    fn set_idle(&self, idle: bool) {
        if let Some(affinity) = &self.engine.affinity {
            affinity.set_idle(self.id, idle);
        }
    }

    fn is_retired(&self) -> bool {
        self.engine.stopping()
            || self.engine.workers.has_surplus() && self.engine.workers.retire(self.id)
    }

    /// Runs tasks of a shard until it has none, or other shards have waited long enough.
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
            if self.stretch.is_open() && self.task_slot.peek().is_none_or(X::may_take) {
                // It is no subtask. It may take long, and the job may have just ended.
                self.report_stretch();
            }
            if !in_place {
                self.publish_position(shard, &held);
            }
            let mut failure = None;
            if self.needs_before_task || self.task_slot.meta.is_measured() {
                self.before_task(shard, &held);
                failure = self.task_slot.take_failure();
            }
            self.begin_turn(goes_on);
            ended = match failure {
                None => self.run_task(shard, held),
                Some(payload) => self.fail_task(shard, held, payload),
            };
            // After the end of its slice, the worker continues at most with its current lane.
            stay = (!self.sampler.should_check() || self.after_slice(shard, &ended)) && stay;
            // Tasks that could not run wait, directly or not, for rollups with claims in other
            // shards. Staying here would queue more and more tasks behind them.
            stay = stay && !(passed && self.engine.ready_shards.any_except(shard));
            if runs_dry && self.sampler.is_fast() {
                (0..DRY_SPINS).for_each(|_| spin_hint());
            }
        }
        self.end_overtime();
    }

    /// Prepares the body of a task that ends a search, or is measured.
    #[cold]
    fn before_task(&mut self, shard: usize, held: &HeldLanes<K, X::Work>) {
        if self.searching {
            self.searching = false;
            self.set_idle(false);
            let engine = &self.engine;
            engine.idle.stop_searching_and_pass_on(|| {
                engine.offers_more(shard)
                    || engine.sharing.offers_synced()
                    || engine.attempts.is_ready_synced()
            });
            self.join_trace();
            self.sampler.restart(self.counters.now());
            self.counters.fell_busy(self.sampler.now());
        }
        let now = self.counters.now();
        let meta = self.task_slot.meta;
        let mut wait = None;
        if meta.is_measured()
            && let Some((submitted, weight)) = self.engine.end_wait(shard, held, meta.seq)
        {
            let nanos = now.saturating_sub(submitted);
            self.counters.waited(nanos, weight.into());
            wait = Some(Duration::from_nanos(nanos));
        }
        self.engine.check_begin(shard, held, meta.seq);
        self.needs_before_task = false;
        if let Some(trace_buffer) = &mut self.trace_buffer
            && self.sampler.is_timing()
        {
            let info = self.engine.trace(shard, held, Some(meta.seq), wait);
            let now = self.counters.now();
            trace_buffer.task_started(info, now);
            self.sampler.task_started(now);
        } else {
            self.sampler.task_started(now);
        }
    }

    /// Joins or leaves the trace recording, with effect from the next slice.
    fn join_trace(&mut self) {
        if self.trace_buffer.is_some() || self.engine.tracer.is_on() {
            self.trace_buffer =
                TraceBuffer::refresh(self.trace_buffer.take(), &self.engine, self.id);
            self.sampler.set_every(self.trace_buffer.is_some());
        }
    }

    /// Reads the clock after a task. Returns whether to stay on the shard.
    #[cold]
    fn after_slice(&mut self, shard: usize, ended: &Option<HeldLanes<K, X::Work>>) -> bool {
        if let Some(ended) = ended {
            self.engine.check_end(shard, ended);
        }
        let stop = self.sampler.check(|| self.counters.now());
        if let Some((took, weight)) = stop.measured {
            self.counters.took(took, weight);
        }
        if let Some(trace_buffer) = &mut self.trace_buffer {
            trace_buffer.task_ended(self.counters.now(), stop.measured.is_some(), None);
        }
        if stop.slice_ended {
            self.join_trace();
        }
        self.needs_before_task = self.sampler.is_timing();
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

    /// Returns whether the worker may stay on its lane beyond the quantum: at most half of the
    /// workers may, so that the others serve all other lanes.
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

    /// Ends a slice. Returns whether to stay on the shard.
    fn end_slice(&mut self, shard: usize) -> bool {
        self.counters.looked(self.sampler.now());
        !self.engine.ready_shards.any_except(shard) && !self.must_leave()
    }

    /// Returns whether to leave the shard at the end of the slice. While there are jobs, the worker
    /// then asks the scheduler for its next assignment.
    fn must_leave(&self) -> bool {
        self.must_end() || self.engine.sharing.has_jobs() || self.engine.attempts.is_ready()
    }

    /// Runs a further attempt of failed work, if one is ready.
    fn run_attempt(&mut self) {
        if !self.engine.attempts.is_ready() {
            return;
        }
        let Some(attempt) = self.engine.take_attempt() else { return };
        self.stop_searching();
        self.counters.set_position_free();
        let engine: Arc<dyn AttemptEngine> = self.engine.clone();
        attempt.run(&engine);
        // The attempt has reported its result to its turn.
        current::take_turn_result();
        current::take_abnormal_end();
        self.sampler.restart(self.counters.now());
        self.counters.looked(self.sampler.now());
        self.needs_before_task = true;
    }

    /// Ends the search of a worker that has found something else than a task of a shard.
    fn stop_searching(&mut self) {
        if self.searching {
            self.searching = false;
            self.set_idle(false);
            let engine = &self.engine;
            engine.idle.stop_searching_and_pass_on(|| {
                engine.sharing.offers_synced()
                    || engine.ready_shards.any_synced()
                    || engine.attempts.is_ready_synced()
            });
            self.counters.fell_busy(self.counters.now());
        }
    }

    fn must_end(&self) -> bool {
        self.engine.stopping() || self.engine.workers.has_surplus()
    }

    /// Runs the task in the slot. Returns its claims, unless they are released already or kept.
    #[inline]
    fn run_task(
        &mut self,
        shard: usize,
        held: HeldLanes<K, X::Work>,
    ) -> Option<HeldLanes<K, X::Work>> {
        let _span =
            TraceEvents::task(&self.engine.settings.thread_name, self.id, self.task_slot.meta.seq);
        let mut key = self.task_slot.key.take();
        if X::WANTS_KEY
            && key.is_none()
            && let HeldLanes::Rollup(rollup) = &held
        {
            match catch_key_panic(|| rollup.only_key().cloned()) {
                Ok(own) => key = own,
                Err(payload) => return self.fail_task(shard, held, payload),
            }
        }
        let work = self.task_slot.open();
        let (engine, counters) = (&self.engine, &*self.counters);
        let turn = TaskTurn::Here(held);
        let stretch = &mut self.stretch;
        let mut ctx = TaskCtx { engine, counters, shard, key: key.as_ref(), turn, stretch };
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
        self.end_task(shard, held)
    }

    /// Ends the task in the slot without running it, because its key has panicked.
    #[cold]
    fn fail_task(
        &mut self,
        shard: usize,
        held: HeldLanes<K, X::Work>,
        payload: KeyPanic,
    ) -> Option<HeldLanes<K, X::Work>> {
        drop_catch_unwind(self.task_slot.key.take());
        current::set_turn_result(TurnResult::Failed);
        let work = self.task_slot.take();
        self.engine.fail_work(work, payload);
        self.end_task(shard, held)
    }

    /// Ends a task. Returns its claims, unless they are released already.
    #[inline(always)]
    fn end_task(
        &mut self,
        shard: usize,
        held: HeldLanes<K, X::Work>,
    ) -> Option<HeldLanes<K, X::Work>> {
        self.counters.ran_one();
        match held {
            held @ HeldLanes::Rollup(_) => {
                self.engine.check_end(shard, &held);
                let HeldLanes::Rollup(rollup) = held else { unreachable!("it has just been one") };
                // Another owner of the rollup remains, so no key is dropped here.
                current::clear_rollup();
                self.counters.clear_rollup();
                if let Some(trace_buffer) = &mut self.trace_buffer {
                    // Ends the slice before the keys are released, so that it cannot overlap the
                    // next task of a key.
                    trace_buffer.task_ended(self.counters.now(), true, None);
                }
                self.engine.end_rollup(&rollup);
                drop_catch_unwind(rollup);
                None
            }
            held => Some(held),
        }
    }

    /// Handles the return of a body that has kept its turn. Returns the claims if the turn was
    /// dropped before: the task then ends like one that never kept it.
    #[cold]
    #[inline(never)]
    fn leave_body(&mut self, shard: usize, turn: usize) -> Option<HeldLanes<K, X::Work>> {
        // The results of the body and of the turn's holder are combined by the last of the two.
        let ended = self.engine.leave_body(shard, turn, current::take_turn_result());
        let Some((held, turn_result)) = ended else {
            self.sampler.skip_sample();
            self.counters.ran_one();
            // Gives the next task that keeps its turn a current start time.
            self.counters.looked(self.counters.now());
            return None;
        };
        current::set_turn_result(turn_result);
        Some(held)
    }

    /// Searches for work a little longer, then sleeps.
    #[cold]
    fn idle(&mut self) {
        if !self.searching {
            self.searching = true;
            self.needs_before_task = true;
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
        // Tasks left to other workers were not taken during this search, so take them next time.
        self.eager = self.engine.offers_anything();
        let before = self.counters.now();
        let engine = &self.engine;
        engine.idle.sleep(self.id, || {
            engine.offers_synced() || engine.stopping() || engine.workers.has_surplus()
        });
        self.counters.has_slept(self.counters.now().saturating_sub(before));
    }

    /// Publishes the position of the current task, to the thread and to diagnostics.
    #[inline]
    fn publish_position(&self, shard: usize, held: &HeldLanes<K, X::Work>) {
        match held {
            HeldLanes::Free => {
                current::set_position_free();
                self.counters.set_position_free();
            }
            HeldLanes::Lane(slot) => {
                current::set_position_lane(shard, *slot);
                self.counters.set_position_lane(shard, *slot);
            }
            HeldLanes::Rollup(rollup) => {
                current::set_position_rollup(rollup.clone());
                self.counters.set_position_rollup(rollup.clone());
            }
        }
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Records that the task of this thread ended abnormally.
    fn record_abnormal_end(&self, how: TraceOutcome) {
        current::set_abnormal_end(how);
        TraceEvents::abnormal_end(&self.settings.thread_name, how);
    }

    /// Counts a panic of a task or of one of its callbacks, and calls the panic hook.
    pub(crate) fn panicked(&self, payload: &(dyn Any + Send)) {
        self.counters.count_panic();
        self.record_abnormal_end(TraceOutcome::Panicked);
        if let Some(hook) = &self.settings.on_panic
            && let Err(payload) = catch_unwind(AssertUnwindSafe(|| hook(payload)))
        {
            drop_catch_unwind(payload);
        }
    }
}

/// Engine, as seen by the tasks of its own workers.
struct EngineRef<K: Key, X: Execute<K>, S>(Arc<Engine<K, X, S>>);

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> EngineHooks
    for EngineRef<K, X, S>
{
    fn engine(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    fn is_behind(&self, position: &OrderPosition, is_it: &dyn Fn(usize) -> bool) -> bool {
        self.0.is_behind(position, is_it)
    }

    fn block(&self) -> bool {
        let engine = &self.0;
        let start = |id, counters| Worker::start(engine.clone(), id, counters);
        let BlockAnswer { may_wait, spawn_error } = engine.workers.block(start);
        if spawn_error.is_some() {
            // No error of the wait: the next one tries again, for this one too.
            TraceEvents::thread_refused(&engine.settings.thread_name);
        }
        engine.resync_worker_count();
        may_wait
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

    #[cfg(feature = "tokio")]
    fn failed(&self) {
        self.0.counters.count_failed();
    }
}
