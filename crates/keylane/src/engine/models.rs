//! Checks the engine, and how its workers sleep, in every order of events.
//!
//! The engine is the real one, with one shard for each worker and a minimal worker loop: a real
//! worker reads the clock, and a model has none. Each model names the defects that it was seen to
//! catch.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering as StdOrdering};
use std::time::Duration;

use super::ready_bitmap::ReadyBitmap;
use super::{
    Engine, EngineSettings, Execute, ReadyWork, StepRequest, StepResult, SupersededWork, WaitLimit,
};
use crate::observe::Statistics;
use crate::order::{Claims, HeldLanes, SlotRef, TaskSlot};
use crate::run::{ExecContext, IdleWorkers, Placement};
use crate::sync::model::{Plain, check, spawn};
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, wait};

/// Barrier for threads that can only pass it together.
pub(super) struct Meeting {
    missing: Mutex<usize>,
    complete: Condvar,
}

impl Meeting {
    pub(super) fn of(threads: usize) -> Arc<Self> {
        Arc::new(Meeting { missing: Mutex::new(threads), complete: Condvar::new() })
    }

    pub(super) fn attend(&self) {
        let mut missing = self.missing.lock();
        *missing -= 1;
        if *missing == 0 {
            drop(missing);
            self.complete.notify_all();
            return;
        }
        while *missing != 0 {
            missing = wait(&self.complete, missing);
        }
    }
}

// Sleeping, on plain shards that hold a number of tasks.

struct MiniPool {
    idle: IdleWorkers,
    ready_shards: ReadyBitmap,
    /// Number of tasks in each shard.
    shards: [Mutex<usize>; 2],
    stopping: AtomicBool,
    /// Number of unfinished tasks.
    left: AtomicUsize,
}

impl MiniPool {
    fn new(tasks: usize) -> Arc<Self> {
        Arc::new(MiniPool {
            idle: IdleWorkers::new(),
            ready_shards: ReadyBitmap::new(1),
            shards: [Mutex::new(0), Mutex::new(0)],
            stopping: AtomicBool::new(false),
            left: AtomicUsize::new(tasks),
        })
    }

    fn produce(&self, shard: usize) {
        *self.shards[shard].lock() += 1;
        if self.ready_shards.set(shard) {
            self.idle.notify_work();
        }
    }

    /// Takes a task; clears the bit if there is none. A shard with more tasks is offered.
    fn take(&self, shard: usize) -> bool {
        let mut tasks = self.shards[shard].lock();
        if *tasks == 0 {
            self.ready_shards.clear(shard);
            return false;
        }
        *tasks -= 1;
        let more = *tasks != 0;
        drop(tasks);
        if more && self.ready_shards.set(shard) {
            self.idle.notify_work();
        }
        true
    }

    /// Runs a worker's loop. The worker has been counted as searching.
    fn work(&self, task: impl Fn()) {
        let mut searching = true;
        while !self.stopping.load(Ordering::Acquire) {
            let Some(shard) = self.ready_shards.next_from(0) else {
                if !std::mem::replace(&mut searching, true) {
                    self.idle.start_searching();
                }
                self.idle.sleep(0, || {
                    self.ready_shards.any_synced() || self.stopping.load(Ordering::Acquire)
                });
                continue;
            };
            while self.take(shard) {
                if std::mem::take(&mut searching) {
                    self.idle.stop_searching_and_pass_on(|| self.ready_shards.any_synced());
                }
                task();
                if self.left.fetch_sub(1, StdOrdering::Relaxed) == 1 {
                    self.stop();
                }
            }
        }
        if searching {
            self.idle.stop_searching();
        }
    }

    fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.idle.wake_all();
    }

    fn assert_idle(&self) {
        assert_eq!((self.idle.asleep(), self.idle.searching()), (0, 0));
        assert_eq!(self.left.load(StdOrdering::Relaxed), 0);
    }
}

/// A worker that falls asleep while two producers offer overlooks neither.
///
/// Caught: `sleep` that reads the ready bitmap before it enters the list; `sleep` with a plain
/// load of the ready bitmap; `notify_work` before the bit is set.
#[test]
fn no_offer_is_overlooked() {
    check(|| {
        let pool = MiniPool::new(2);
        pool.idle.start_searching();
        let producers = [0, 1].map(|shard| {
            let pool = pool.clone();
            spawn(move || pool.produce(shard))
        });
        pool.work(|| {});
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        pool.assert_idle();
    });
}

/// Two tasks that can only end together, offered in a row: both workers are woken, though the
/// second offer wakes no worker while the first one is still searching.
///
/// Caught: `stop_searching_and_pass_on` that does not pass the offer on; `wake_one` that does not
/// count the woken worker as searching (`searching` falls below zero).
#[test]
fn no_worker_sleeps_beside_a_task() {
    check(|| {
        let pool = MiniPool::new(2);
        let meeting = Meeting::of(2);
        let workers = [0, 1].map(|_| {
            let (pool, meeting) = (pool.clone(), meeting.clone());
            pool.idle.start_searching();
            spawn(move || pool.work(|| meeting.attend()))
        });
        pool.produce(0);
        pool.produce(1);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        pool.assert_idle();
    });
}

/// Every worker learns of the end, whether asleep, falling asleep or being woken.
///
/// Caught: `wake_all` before the flag is set; `sleep` that does not look at the flag.
#[test]
fn every_sleeper_learns_of_the_end() {
    check(|| {
        let pool = MiniPool::new(1);
        let workers = [0, 1].map(|_| {
            let pool = pool.clone();
            pool.idle.start_searching();
            spawn(move || pool.work(|| {}))
        });
        pool.produce(0);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        pool.assert_idle();
    });
}

// The engine under test.

pub(super) type BoxedWork = Box<dyn FnOnce() + Send>;

/// Executor of closures, for the models' own workers.
pub(super) struct Closures;

impl Execute<u64> for Closures {
    type Work = BoxedWork;
    const DROPS_REPLACED: bool = true;
    const WANTS_KEY: bool = false;

    fn execute(&self, _: Option<&u64>, work: SlotRef<'_, BoxedWork>, _: &mut dyn ExecContext) {
        work.take()();
    }

    fn name(_: &BoxedWork) -> Option<usize> {
        None
    }
}

/// Hasher that keeps the number: even keys are in the first of two shards, odd ones in the second.
#[derive(Clone, Copy)]
pub(super) struct NumberHasher;

impl BuildHasher for NumberHasher {
    type Hasher = Number;

    fn build_hasher(&self) -> Number {
        Number(0)
    }
}

pub(super) struct Number(u64);

impl Hasher for Number {
    fn write(&mut self, _: &[u8]) {
        unreachable!("the keys are numbers")
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number << 32 | number;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Task that a worker has run last, with its lanes.
type OnTask = StepResult<u64, BoxedWork>;

/// Engine whose workers end when `left` tasks have ended.
pub(super) struct ModelEngine {
    pub(super) engine: Engine<u64, Closures, NumberHasher>,
    pub(super) left: AtomicUsize,
}

/// Returns settings with one shard or two.
pub(super) fn settings(shards: usize) -> EngineSettings {
    EngineSettings {
        workers: shards,
        capacity: 16,
        per_key: None,
        bytes: None,
        quantum_tasks: 64,
        quantum_time: Duration::MAX,
        strict_quantum: false,
        in_order: false,
        stop_after: None,
        rate: None,
        rate_per_key: None,
        clock: None,
        thread_name: String::new(),
        stack_size: None,
        on_panic: None,
        placement: Placement::Any,
        jobs: super::JobRules::default(),
        // Their locks are innermost, and have no protocol.
        statistics: Statistics::Off,
        self_check: false,
        key_states: None,
        #[cfg(feature = "tokio")]
        runtime: None,
        #[cfg(feature = "tokio")]
        concurrency: 1,
    }
}

impl ModelEngine {
    pub(super) fn new(shards: usize, tasks: usize) -> Arc<Self> {
        let model = Self::of(settings(shards), tasks);
        assert_eq!(model.engine.shards(), shards);
        model
    }

    pub(super) fn of(settings: EngineSettings, tasks: usize) -> Arc<Self> {
        let engine = Engine::new(settings, None, NumberHasher, Closures);
        Arc::new(ModelEngine { engine, left: AtomicUsize::new(tasks) })
    }

    /// Submits a task, if the engine is open.
    pub(super) fn submit(
        self: &Arc<Self>,
        claims: Claims<u64>,
        work: impl FnOnce() + Send + 'static,
    ) -> bool {
        let model = self.clone();
        let work = move || {
            work();
            if model.left.fetch_sub(1, StdOrdering::Relaxed) == 1 {
                model.engine.stopping.store(true, Ordering::Release);
                model.engine.idle.wake_all();
            }
        };
        self.engine.submit(claims, ReadyWork(Box::new(work) as BoxedWork), WaitLimit::None).is_ok()
    }

    /// Counts tasks that will not run as ended.
    fn discount(&self, tasks: usize) {
        if tasks != 0 && self.left.fetch_sub(tasks, StdOrdering::Relaxed) == tasks {
            self.engine.stopping.store(true, Ordering::Release);
            self.engine.idle.wake_all();
        }
    }

    /// Runs a worker's loop. It is counted as searching.
    pub(super) fn work(&self, home: usize) {
        let engine = &self.engine;
        let mut searching = true;
        while !engine.stopping() {
            if let Some(shard) = engine.ready_shards.next_from(home) {
                self.serve(shard, &mut searching);
                continue;
            }
            if !std::mem::replace(&mut searching, true) {
                engine.idle.start_searching();
            }
            engine.idle.sleep(0, || engine.ready_shards.any_synced() || engine.stopping());
        }
        if searching {
            engine.idle.stop_searching();
        }
    }

    pub(super) fn serve(&self, shard: usize, searching: &mut bool) {
        let engine = &self.engine;
        let mut task_slot = TaskSlot::default();
        let mut ended = None;
        loop {
            let request = StepRequest {
                go_on: !engine.stopping(),
                stay: !engine.stopping(),
                quantum_left: true,
                while_longer: false,
                ran: 1,
            };
            let Some(next) = engine.step(shard, ended.take(), request, &mut task_slot) else {
                return;
            };
            if std::mem::take(searching) {
                engine.idle.stop_searching_and_pass_on(|| engine.offers_more(shard));
            }
            task_slot.key = None;
            task_slot.take()();
            match next.held {
                HeldLanes::Rollup(rollup) => engine.end_rollup(&rollup),
                held => ended = Some(held),
            }
        }
    }

    /// Takes a single step of a worker in a shard, and runs the body of the task that it has found.
    pub(super) fn step(&self, shard: usize, ended: Option<OnTask>, stay: bool) -> Option<OnTask> {
        let request =
            StepRequest { go_on: stay, stay, quantum_left: true, while_longer: false, ran: 1 };
        let mut task_slot = TaskSlot::default();
        let ended = ended.map(|on| on.held);
        let next = self.engine.step(shard, ended, request, &mut task_slot);
        if next.is_some() {
            task_slot.take()();
        }
        next
    }

    /// Runs `other` beside a worker, and checks that nothing is left when both have ended.
    pub(super) fn run_beside(self: &Arc<Self>, other: impl FnOnce(&Arc<Self>) + Send + 'static) {
        self.engine.idle.start_searching();
        let other = spawn({
            let model = self.clone();
            move || other(&model)
        });
        self.work(0);
        other.join().unwrap();
        self.assert_over();
    }

    pub(super) fn assert_over(&self) {
        let engine = &self.engine;
        assert_eq!((engine.idle.asleep(), engine.idle.searching()), (0, 0));
        engine.admission.release(engine.collect());
        assert_eq!(engine.admission.in_use(), 0);
    }

    /// Submits, then runs a worker's loop.
    fn submit_and_work(self: &Arc<Self>, submit: impl FnOnce(&Arc<Self>)) {
        submit(self);
        self.engine.idle.start_searching();
        self.work(1);
    }
}

/// A worker that continues one lane and a producer that fills it: the producer sends no
/// notification for a task of the pinned lane, and yet no task is left. The tasks see each other's
/// writes.
///
/// Caught: `leave` that does not unpin the lane; `find` that does not look again after it has
/// cleared the bit, or clears it after that look; `refill` that leaves `signaled` set.
#[test]
fn no_unannounced_task_is_left() {
    check(|| {
        let state = Arc::new(Plain::<u32>::default());
        ModelEngine::new(1, 3).run_beside(move |model| {
            for turn in 0..3 {
                let state = state.clone();
                let add = move || {
                    assert_eq!(state.get(), turn);
                    state.change(|value| *value += 1);
                };
                assert!(model.submit(Claims::exclusive(0), add));
            }
        });
    });
}

/// Two producers and two keys in one shard: every task runs.
///
/// Caught: `find` that clears the bit after its last look; `refill` that leaves `signaled` set.
#[test]
fn two_producers_leave_no_task_behind() {
    check(|| {
        let model = ModelEngine::new(1, 3);
        let other = spawn({
            let model = model.clone();
            move || assert!(model.submit(Claims::exclusive(1), || {}))
        });
        model.run_beside(|model| {
            assert!(model.submit(Claims::exclusive(0), || {}));
            assert!(model.submit(Claims::exclusive(0), || {}));
            // The thread may hold permits until it returns, which would be missing in the end.
            other.join().unwrap();
        });
    });
}

/// The second task of one key and the first of another can only end together, and are in one shard:
/// while a worker is on the first key's lane, the other worker finds the second key.
///
/// Caught: `step` that does not offer the tasks it leaves.
#[test]
fn a_hot_lane_hides_no_other_key() {
    check(|| {
        let meeting = Meeting::of(2);
        ModelEngine::new(1, 3).run_beside(move |model| {
            model.submit_and_work(|model| {
                let [here, there] = [0, 1].map(|_| {
                    let meeting = meeting.clone();
                    move || meeting.attend()
                });
                assert!(model.submit(Claims::exclusive(0), || {}));
                assert!(model.submit(Claims::exclusive(0), here));
                assert!(model.submit(Claims::exclusive(1), there));
            });
        });
    });
}

/// While a worker is on the pinned lane, a task of another key is offered to free workers.
///
/// Two workers, in the one order that leads there.
///
/// Caught: `push_single` that takes every key for the pinned lane's.
#[test]
fn a_pinned_lane_covers_its_own_key_alone() {
    check(|| {
        let model = ModelEngine::new(1, usize::MAX);
        let submit = |key| assert!(model.submit(Claims::exclusive(key), || {}));
        submit(1);
        let on_one = model.step(0, None, true);
        submit(1);
        let on_one = model.step(0, on_one, true);
        assert!(on_one.is_some());
        assert!(model.step(0, None, true).is_none(), "the key is taken");
        submit(1);
        assert_eq!(
            model.engine.ready_shards.next_from(0),
            None,
            "no other worker has a use for it"
        );
        submit(2);
        assert_eq!(model.engine.ready_shards.next_from(0), Some(0));
        assert!(model.step(0, None, true).is_some());
    });
}

/// A lane is to replace the pinned lane, while the inbox has a task of the pinned one for which no
/// notification was sent, and whose worker leaves the shard. The task is offered to free workers.
///
/// Three workers, in the one order that showed the defect.
///
/// Caught: `go_on` that pins its lane in place of another one; `unpin` that sends no notification.
#[test]
fn a_new_pinned_lane_hides_no_task_of_the_last() {
    check(|| {
        let model = ModelEngine::new(1, usize::MAX);
        let submit = |key| assert!(model.submit(Claims::exclusive(key), || {}));
        submit(1);
        submit(1);
        let on_one = model.step(0, None, true);
        let on_one = model.step(0, on_one, true);
        submit(2);
        submit(2);
        let on_two = model.step(0, None, true);
        assert!(model.step(0, None, true).is_none(), "both keys are taken");
        submit(1);
        let on_two = model.step(0, on_two, true);
        assert!(on_two.is_some());
        assert!(model.step(0, on_one, false).is_none());
        assert_eq!(model.engine.ready_shards.next_from(0), Some(0), "the first key has no worker");
    });
}

/// A rollup over two shards, whose parts two workers grant: one takes the work, once, and the body
/// sees the writes of its predecessors; the task behind it sees its writes.
///
/// Caught: `Rollup::grant` with relaxed orderings, or that reports every part as the last.
#[test]
fn a_rollup_runs_once_after_both_its_predecessors() {
    check(|| {
        let model = ModelEngine::new(2, 4);
        let cells = Arc::new([Plain::<u32>::default(), Plain::<u32>::default()]);
        for key in [0, 1] {
            let cells = cells.clone();
            let first = move || cells[key as usize].change(|value| *value += 1);
            assert!(model.submit(Claims::exclusive(key), first));
        }
        let both = cells.clone();
        let rollup = move || both.iter().for_each(|cell| cell.change(|value| *value += 10));
        assert!(model.submit(Claims::exclusive(0).and_exclusive(1), rollup));
        let last = move || assert_eq!(cells[1].get(), 11);
        assert!(model.submit(Claims::exclusive(1), last));
        model.run_beside(|model| model.submit_and_work(|_| {}));
    });
}

/// A rollup over two shards that is submitted while a worker runs a predecessor.
///
/// Caught: `end_parts` that offers nothing.
#[test]
fn a_rollup_enters_in_one_step() {
    check(|| {
        let model = ModelEngine::new(2, 3);
        let cells = Arc::new([Plain::<u32>::default(), Plain::<u32>::default()]);
        let both = cells.clone();
        assert!(model.submit(Claims::exclusive(1), move || cells[1].change(|value| *value += 1)));
        model.run_beside(move |model| {
            let after = both.clone();
            let rollup = move || both.iter().for_each(|cell| cell.change(|value| *value += 10));
            assert!(model.submit(Claims::exclusive(0).and_exclusive(1), rollup));
            assert!(model.submit(Claims::exclusive(0), move || assert_eq!(after[0].get(), 10)));
        });
    });
}

/// Two rollups over the same two shards, submitted by two threads with their keys in opposite
/// order, do not wait for each other.
///
/// Caught: inboxes locked in the order of the claims, which deadlocks the two producers; parts
/// appended under one lock at a time, which puts each rollup first in one lane.
#[test]
fn two_rollups_stand_in_the_same_order_everywhere() {
    check(|| {
        let state = Arc::new(Plain::<u32>::default());
        let model = ModelEngine::new(2, 2);
        let add = move || {
            let state = state.clone();
            move || state.change(|value| *value += 1)
        };
        let (one, other) = (add(), add());
        let producer = spawn({
            let model = model.clone();
            move || assert!(model.submit(Claims::exclusive(1).and_exclusive(0), one))
        });
        assert!(model.submit(Claims::exclusive(0).and_exclusive(1), other));
        model.engine.idle.start_searching();
        model.work(0);
        producer.join().unwrap();
        model.assert_over();
    });
}

/// A barrier over two shards sees the writes of earlier tasks, and later tasks see its writes.
///
/// Caught: `grant_fence` that does not wait for the lanes; `end_parts` that offers nothing after a
/// barrier; `Rollup::grant` with relaxed orderings.
#[test]
fn a_barrier_parts_before_from_after() {
    check(|| {
        let model = ModelEngine::new(2, 3);
        let cell = Arc::new(Plain::<u32>::default());
        let (before, at, after) = (cell.clone(), cell.clone(), cell);
        assert!(model.submit(Claims::exclusive(0), move || before.change(|value| *value += 1)));
        assert!(model.submit(Claims::barrier(), move || at.change(|value| *value += 10)));
        model.run_beside(|model| {
            model.submit_and_work(|model| {
                assert!(model.submit(Claims::exclusive(1), move || assert_eq!(after.get(), 11)));
            });
        });
    });
}

/// A thread that drains an engine is woken when the last task has ended, wherever it was counted.
#[test]
fn a_drained_engine_has_run_everything() {
    check(|| {
        let model = ModelEngine::new(1, usize::MAX);
        let ran = Arc::new(Plain::<u32>::default());
        for _ in 0..2 {
            let ran = ran.clone();
            assert!(model.submit(Claims::exclusive(0), move || ran.change(|ran| *ran += 1)));
        }
        model.engine.idle.start_searching();
        let worker = spawn({
            let model = model.clone();
            move || model.work(0)
        });
        assert_eq!(model.engine.drain_for(None), Ok(()));
        assert_eq!(ran.get(), 2);
        assert!(model.engine.stop().is_empty());
        worker.join().unwrap();
        model.assert_over();
    });
}

/// A stop while tasks are submitted and run: each of them ran, was returned, or was refused, and
/// exactly one of these.
///
/// Caught: `enqueue_single` that does not look at `closed`; `Rollup::grant` that reports every part
/// as the last.
#[test]
fn a_stopped_task_ran_or_came_back_or_was_refused() {
    check(|| {
        let model = ModelEngine::new(2, usize::MAX);
        let ran = Arc::new(AtomicUsize::new(0));
        let submit = {
            let ran = ran.clone();
            move |model: &Arc<ModelEngine>, claims| {
                let ran = ran.clone();
                let count = move || {
                    ran.fetch_add(1, StdOrdering::Relaxed);
                };
                usize::from(model.submit(claims, count))
            }
        };
        let before = submit(&model, Claims::exclusive(1));
        model.engine.idle.start_searching();
        let worker = spawn({
            let model = model.clone();
            move || model.work(0)
        });
        let producer = spawn({
            let model = model.clone();
            move || {
                submit(&model, Claims::exclusive(0).and_exclusive(1))
                    + submit(&model, Claims::exclusive(0))
            }
        });
        let unrun = model.engine.stop().len();
        let accepted = before + producer.join().unwrap();
        worker.join().unwrap();
        assert_eq!(accepted, unrun + ran.load(StdOrdering::Relaxed));
        model.assert_over();
    });
}

/// A key is paused while a worker is on its lane, and more tasks come: a task that no worker had
/// taken when `pause_key` returned does not begin until the key is resumed, and then all of them
/// run, in order.
#[test]
fn nothing_of_a_paused_key_begins() {
    check(|| {
        let model = ModelEngine::new(1, 3);
        let begun = Arc::new(AtomicUsize::new(0));
        let task = |n: usize| {
            let begun = begun.clone();
            move || assert_eq!(begun.fetch_add(1, StdOrdering::Relaxed), n)
        };
        let (two, three) = (task(1), task(2));
        assert!(model.submit(Claims::exclusive(0), task(0)));
        let begun = begun.clone();
        model.run_beside(move |model| {
            assert!(model.submit(Claims::exclusive(0), two));
            assert!(model.engine.pause_key(&0));
            let at_rest = model.engine.paused_key(&0).is_some_and(|held| held.running == 0);
            let before = begun.load(StdOrdering::Relaxed);
            assert!(model.submit(Claims::exclusive(0), three));
            let now = begun.load(StdOrdering::Relaxed);
            assert!(now <= 2 && (now == before || !at_rest));
            assert!(model.engine.resume_key(&0));
        });
    });
}

/// The waiting tasks of a key are taken while a worker runs it, and a barrier waits for it: each
/// task runs or is taken, and the barrier runs.
#[test]
fn a_task_runs_or_is_taken() {
    check(|| {
        let model = ModelEngine::new(1, 3);
        let ran = Arc::new(AtomicUsize::new(0));
        let count = |ran: &Arc<AtomicUsize>| {
            let ran = ran.clone();
            move || _ = ran.fetch_add(1, StdOrdering::Relaxed)
        };
        assert!(model.submit(Claims::exclusive(0), count(&ran)));
        assert!(model.submit(Claims::exclusive(0), count(&ran)));
        let taken = Arc::new(AtomicUsize::new(0));
        let (barrier, take) = (count(&ran), taken.clone());
        model.run_beside(move |model| {
            assert!(model.submit(Claims::barrier(), barrier));
            let unrun = model.engine.take_key(&0);
            take.store(unrun.len(), StdOrdering::Relaxed);
            model.discount(unrun.len());
        });
        assert_eq!(ran.load(StdOrdering::Relaxed) + taken.load(StdOrdering::Relaxed), 3);
    });
}

/// Memory that is written by the drop of a task's captures, and read by the bodies of later latest
/// tasks of its key.
type Capture = Arc<Plain<u32>>;

struct Captured(Capture);

impl Drop for Captured {
    fn drop(&mut self) {
        self.0.change(|_| ());
    }
}

/// Two submitters replace the latest task of a key while a worker takes it: each runs or is
/// superseded, the last that waits runs, no permit is lost, and a task that came between two of
/// them is between them. The captures of a replaced task are dropped before its replacement begins.
///
/// Caught: `swap_work` and `replacing` that do not wait for the captures.
#[test]
fn the_latest_runs_or_is_replaced() {
    check(|| {
        let model = ModelEngine::new(1, 4);
        let last = Arc::new(Plain::<u32>::default());
        let captures: Arc<[Capture; 5]> = Arc::default();
        let task = |n: u32| {
            let (model, last, captures) = (model.clone(), last.clone(), captures.clone());
            let capture = Captured(captures[n as usize].clone());
            let run = move || {
                let _capture = capture;
                captures[..n as usize].iter().for_each(|earlier| _ = earlier.get());
                last.change(|value| {
                    assert!(*value < n);
                    *value = n;
                });
                model.discount(1);
            };
            ReadyWork(Box::new(run) as BoxedWork)
        };
        let submit = |model: &Arc<ModelEngine>, task| {
            let replaced =
                model.engine.submit_latest(Claims::exclusive(0), task, WaitLimit::None).ok();
            let Some(SupersededWork { work, by, tombstone }) = replaced.expect("there is capacity")
            else {
                return;
            };
            drop(work);
            tombstone.iter().for_each(|tombstone| model.engine.end_replacing(tombstone));
            model.engine.end_replacing(&by);
            model.discount(1);
        };
        let (one, two, four) = (task(1), task(2), task(4));
        let three = last.clone();
        submit(&model, one);
        model.run_beside(move |model| {
            submit(model, two);
            let between = move || three.change(|value| *value = 3);
            assert!(model.submit(Claims::exclusive(0), between));
            submit(model, four);
        });
        assert_eq!(last.get(), 4);
    });
}

/// A key is finished while another thread submits for it: accepted tasks run before the end, and
/// none after it.
#[test]
fn nothing_comes_after_the_end_of_a_key() {
    check(|| {
        let model = ModelEngine::new(1, usize::MAX);
        let ran = Arc::new(AtomicUsize::new(0));
        let (count, at_the_end) = (ran.clone(), Arc::new(AtomicUsize::new(usize::MAX)));
        let producer = spawn({
            let model = model.clone();
            move || {
                let count = move || _ = count.fetch_add(1, StdOrdering::Relaxed);
                usize::from(model.submit(Claims::exclusive(0), count))
            }
        });
        let (seen, look) = (at_the_end.clone(), ran.clone());
        let end = move || seen.store(look.load(StdOrdering::Relaxed), StdOrdering::Relaxed);
        let end = ReadyWork(Box::new(end) as BoxedWork);
        assert!(model.engine.submit_end(Claims::exclusive(0), true, end, WaitLimit::None).is_ok());
        let accepted = producer.join().unwrap();
        model.engine.idle.start_searching();
        model.serve(0, &mut true);
        model.engine.idle.start_searching();
        model.engine.idle.stop_searching();
        assert_eq!(at_the_end.load(StdOrdering::Relaxed), accepted);
        assert_eq!(ran.load(StdOrdering::Relaxed), accepted);
        model.assert_over();
    });
}
