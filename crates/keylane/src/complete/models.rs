//! Loom models of a task and its handle: every interleaving of run, wait, cancel and abandon.
//!
//! Each model lists the mutations that it was seen to catch.

use std::any::Any;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::task_cell::JoinState;
use super::{Handle, InfallibleFn, Outcome, TaskCell};
use crate::run::{EndTurn, ExecContext, RunSharedBody, Turn, TurnResult};
use crate::sync::model::{Plain, block_on, check, spawn};

struct NoContext;

impl ExecContext for NoContext {
    fn panicked(&self, _: &(dyn Any + Send)) {}

    fn keep_turn(&mut self) -> Turn {
        unreachable!("no body of these models keeps its turn")
    }
}

/// Context of a task with a key, whose next task starts when the turn ends.
struct KeyContext {
    world: Arc<World>,
    is_kept: bool,
}

struct KeyTurn(Arc<World>);

impl EndTurn for KeyTurn {
    fn end(self: Box<Self>, _: TurnResult) {
        self.0.of_key.change(|value| *value += 100);
    }
}

impl ExecContext for KeyContext {
    fn panicked(&self, _: &(dyn Any + Send)) {}

    fn keep_turn(&mut self) -> Turn {
        self.is_kept = true;
        Turn::new(KeyTurn(self.world.clone()))
    }
}

/// State that bodies and drops change.
#[derive(Default)]
struct World {
    /// Written by the body; read by the owner of its outcome.
    plain: Plain<u32>,
    /// Written by the body, by the drop of its captures, and by the next task of its key.
    of_key: Plain<u32>,
    /// Number of runs. An atomic of `std`, so that it adds no ordering to the model.
    runs: AtomicUsize,
    /// Number of dropped captures.
    drops: AtomicUsize,
}

/// Capture that records its drop.
struct Capture(Arc<World>);

impl Drop for Capture {
    fn drop(&mut self) {
        self.0.plain.change(|value| *value += 10);
        self.0.of_key.change(|value| *value += 10);
        self.0.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// Creates a task that leaves 11 in `plain` if it runs and 10 if it does not.
fn task(world: &Arc<World>) -> Arc<dyn WorkerAndHandle> {
    let capture = Capture(world.clone());
    Arc::new(TaskCell::<u32, Infallible, _>::new(InfallibleFn(move || {
        capture.0.runs.fetch_add(1, Ordering::Relaxed);
        capture.0.plain.change(|value| *value += 1);
        capture.0.of_key.change(|value| *value += 1);
        7
    })))
}

/// Returns what a worker does with a task that has a key, whose next task starts afterwards.
fn run_with_key(
    task: &Arc<dyn WorkerAndHandle>,
    world: &Arc<World>,
) -> impl FnOnce() + Send + 'static {
    let (task, world) = (task.clone(), world.clone());
    move || {
        let mut ctx = KeyContext { world, is_kept: false };
        task.run(&mut ctx);
        if !ctx.is_kept {
            Box::new(KeyTurn(ctx.world)).end(TurnResult::Done);
        }
    }
}

/// Cell of a task, as seen by both its worker and its handle.
trait WorkerAndHandle: RunSharedBody + JoinState<u32, Infallible> {}
impl<S: RunSharedBody + JoinState<u32, Infallible>> WorkerAndHandle for S {}

fn is_done(outcome: Option<Outcome<u32, Infallible>>) -> bool {
    matches!(outcome, Some(Outcome::Completed(7)))
}

fn is_cancelled(outcome: Option<Outcome<u32, Infallible>>) -> bool {
    matches!(outcome, Some(Outcome::Cancelled))
}

/// A waiting thread is woken by the outcome, sees all effects of the body and the drop of its
/// captures, and gets the outcome once.
///
/// Caught: `complete` that does not notify, or notifies before it changes the state; an outcome that
/// is left in the cell after the lock is released.
#[test]
fn a_waiting_thread_has_the_outcome_once() {
    check(|| {
        let world = Arc::<World>::default();
        let task = task(&world);
        let worker = spawn({
            let task = task.clone();
            move || task.run(&mut NoContext)
        });
        assert!(is_done(task.wait(None)));
        assert_eq!(world.plain.get(), 11);
        assert!(task.poll(None).is_none());
        worker.join().unwrap();
        assert!(task.poll(None).is_none());
    });
}

/// A waiting future is woken through the waker of its last poll, even if another thread polls for
/// the outcome without one.
///
/// Caught: `complete` that does not wake; `poll` that replaces the waker by none.
#[test]
fn a_waiting_future_is_woken() {
    check(|| {
        let world = Arc::<World>::default();
        let cell = Arc::new(TaskCell::<(), Infallible, _>::new(InfallibleFn({
            let world = world.clone();
            move || world.plain.change(|value| *value += 1)
        })));
        let looker = spawn({
            let cell = cell.clone();
            move || JoinState::<(), Infallible>::poll(&*cell, None).is_some()
        });
        let worker = spawn({
            let cell = cell.clone();
            move || cell.run(&mut NoContext)
        });
        // The second of the two would wait forever, so the future also checks whether the task has
        // ended.
        let awaited = block_on(std::future::poll_fn(|cx| {
            let had = |waker| JoinState::<(), Infallible>::poll(&*cell, waker).is_some();
            if had(Some(cx.waker())) {
                std::task::Poll::Ready(true)
            } else if cell.progress().is_completed() {
                std::task::Poll::Ready(had(None))
            } else {
                std::task::Poll::Pending
            }
        }));
        assert_eq!(world.plain.get(), 1);
        worker.join().unwrap();
        assert!(awaited != looker.join().unwrap(), "one of them has the outcome");
    });
}

/// A task that is cancelled as it starts either runs, and its body is asked to stop, or never runs,
/// and its captures are dropped before its outcome is published. In both cases the captures are
/// dropped before the next task of its key starts, and no worker waits for the drop.
///
/// Caught: `cancel` that completes without checking for the body; a turn that ends when the worker
/// finds no body; `end_when_dropped` that checks the state only once; `complete` that ignores the
/// turn.
#[test]
fn a_task_is_cancelled_or_runs() {
    check(|| {
        let world = Arc::<World>::default();
        let task = task(&world);
        let worker = spawn(run_with_key(&task, &world));
        let in_time = task.cancel();
        let outcome = task.wait(None);
        assert_eq!(world.plain.get(), if in_time { 10 } else { 11 });
        assert!(if in_time { is_cancelled(outcome) } else { is_done(outcome) });
        worker.join().unwrap();
        assert_eq!(world.of_key.get(), if in_time { 110 } else { 111 });
        assert_eq!(world.runs.load(Ordering::Relaxed), usize::from(!in_time));
        assert_eq!(world.drops.load(Ordering::Relaxed), 1);
    });
}

/// The same with a handle that is dropped as the task starts or ends: the worker may be the only owner of the cell then, and
/// looks at it without the lock.
///
/// Caught: a turn that ends when the worker finds no body.
#[test]
fn a_task_whose_handle_is_dropped_is_cancelled_or_runs() {
    check(|| {
        let world = Arc::<World>::default();
        let task = task(&world);
        let worker = spawn(run_with_key(&task, &world));
        let in_time = task.cancel();
        drop(task);
        worker.join().unwrap();
        assert_eq!(world.of_key.get(), if in_time { 110 } else { 111 });
        assert_eq!(world.runs.load(Ordering::Relaxed), usize::from(!in_time));
        assert_eq!(world.drops.load(Ordering::Relaxed), 1);
    });
}

/// A task that its handle cancels while its pool drops it ends as cancelled, once, and its captures
/// are dropped before the outcome is published.
///
/// Caught: a state that is completed before the captures are dropped: the outcome was published
/// early, and again when `complete` came.
#[test]
fn a_task_that_is_cancelled_and_abandoned_ends_once() {
    check(|| {
        let world = Arc::<World>::default();
        let task = task(&world);
        let stopper = spawn({
            let task = task.clone();
            move || task.abandon()
        });
        let canceller = spawn({
            let task = task.clone();
            move || task.cancel()
        });
        assert!(is_cancelled(task.wait(None)));
        assert_eq!(world.plain.get(), 10);
        stopper.join().unwrap();
        canceller.join().unwrap();
        assert!(task.poll(None).is_none(), "an outcome is taken once");
        assert_eq!(world.drops.load(Ordering::Relaxed), 1);
    });
}

/// A handle that is awaited while its pool drops the task completes as cancelled.
///
/// Caught: `abandon` that does not complete the cell.
#[test]
fn an_abandoned_task_wakes_its_handle() {
    check(|| {
        let world = Arc::<World>::default();
        let cell = Arc::new(TaskCell::<(), Infallible, _>::new(InfallibleFn({
            let capture = Capture(world.clone());
            move || drop(capture)
        })));
        let handle = Handle::<(), Infallible>::new(cell.clone());
        let stopper = spawn(move || cell.abandon());
        assert!(matches!(block_on(handle), Ok(Outcome::Cancelled)));
        assert_eq!(world.plain.get(), 10);
        stopper.join().unwrap();
    });
}

/// A suspended task goes either to its next attempt or to the thread that cancels it: its captures
/// are dropped once, its turn ends once and after that, and its handle gets one outcome.
///
/// Caught: `complete` that does not end the turn of a suspended task.
#[test]
fn a_suspended_task_is_resumed_or_cancelled() {
    check(|| {
        let world = Arc::<World>::default();
        let capture = Capture(world.clone());
        let cell = Arc::new(TaskCell::<u32, Infallible, _>::new(move || {
            capture.0.of_key.change(|value| *value += 1);
        }));
        let body = cell.begin().expect("it waits");
        let worker = spawn({
            let (cell, world) = (cell.clone(), world.clone());
            move || {
                body();
                let turn = Turn::new(KeyTurn(world));
                let attempt = match cell.suspend(body, turn) {
                    Ok(()) => cell.resume(),
                    Err(back) => Some(back),
                };
                let Some((body, turn)) = attempt else { return };
                body();
                drop(body);
                cell.complete(Outcome::Completed(7));
                turn.end(TurnResult::Done);
            }
        });
        let canceller = spawn({
            let cell = cell.clone();
            move || JoinState::cancel(&*cell)
        });
        let outcome = cell.wait(None);
        let was_cancelled = canceller.join().unwrap();
        worker.join().unwrap();
        assert_eq!(is_cancelled(outcome), was_cancelled);
        assert_eq!(world.drops.load(Ordering::Relaxed), 1);
        // The captures, the turn, and up to two attempts.
        assert!((110..=112).contains(&world.of_key.get()));
    });
}

/// A cancellation while an attempt fails either finds the suspended task or keeps it from being
/// suspended, so that no attempt follows.
///
/// Caught: `cancel` that sets its flag after it has looked for the body; `suspend` that does not
/// check the flag.
#[test]
fn a_cancellation_during_an_attempt_makes_it_the_last() {
    check(|| {
        let world = Arc::<World>::default();
        let cell = Arc::new(TaskCell::<u32, Infallible, _>::new(|| ()));
        let body = cell.begin().expect("it waits");
        let canceller = spawn({
            let cell = cell.clone();
            move || JoinState::cancel(&*cell)
        });
        let suspended = cell.suspend(body, Turn::new(KeyTurn(world))).is_ok();
        assert_eq!(canceller.join().unwrap(), suspended);
    });
}
