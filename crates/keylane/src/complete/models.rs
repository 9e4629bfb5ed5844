//! A task and its handle in every order of events.
//!
//! Each model names the mistakes that it was seen to catch.

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
        unreachable!("no body here asks for it")
    }
}

/// The stage of a task with a key, whose next task begins when the turn ends.
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

/// What the body of a task does to the world.
#[derive(Default)]
struct World {
    /// Written by the body, read by who has its outcome.
    plain: Plain<u32>,
    /// Written by the body, by the drop of its captures, and by the next task of its key.
    of_key: Plain<u32>,
    /// How often a body has run. Of `std`, so that it puts nothing in an order.
    runs: AtomicUsize,
    /// How many captures have been dropped.
    drops: AtomicUsize,
}

/// Captures that are seen when they go.
struct Capture(Arc<World>);

impl Drop for Capture {
    fn drop(&mut self) {
        self.0.plain.change(|value| *value += 10);
        self.0.of_key.change(|value| *value += 10);
        self.0.drops.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that leaves 11 in `plain` if it runs and 10 if it does not.
fn task(world: &Arc<World>) -> Arc<dyn WorkerAndHandle> {
    let capture = Capture(world.clone());
    Arc::new(TaskCell::<u32, Infallible, _>::new(InfallibleFn(move || {
        capture.0.runs.fetch_add(1, Ordering::Relaxed);
        capture.0.plain.change(|value| *value += 1);
        capture.0.of_key.change(|value| *value += 1);
        7
    })))
}

/// A slot as its worker and as its handle see it.
trait WorkerAndHandle: RunSharedBody + JoinState<u32, Infallible> {}
impl<S: RunSharedBody + JoinState<u32, Infallible>> WorkerAndHandle for S {}

fn is_done(outcome: Option<Outcome<u32, Infallible>>) -> bool {
    matches!(outcome, Some(Outcome::Completed(7)))
}

fn is_cancelled(outcome: Option<Outcome<u32, Infallible>>) -> bool {
    matches!(outcome, Some(Outcome::Cancelled))
}

/// A thread that waits is woken by the outcome, sees all that the body did and that its captures
/// are gone, and has the outcome once.
///
/// Caught: `complete` that does not notify, or notifies before it has changed the state.
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

/// A future that waits is woken through the waker of its last poll, though another thread looks
/// for the outcome meanwhile, without one.
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
        // Whoever comes second would wait for ever, so the future looks whether the task has ended.
        let awaited = block_on(std::future::poll_fn(|cx| {
            let had = |waker| JoinState::<(), Infallible>::poll(&*cell, waker).is_some();
            if had(Some(cx.waker())) {
                std::task::Poll::Ready(true)
            } else if cell.is_completed() {
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

/// A task that is cancelled as it begins either runs, and its body is told, or never runs, and its
/// captures are gone when its outcome is there. Either way the
/// captures are gone before the next task of its key begins, and no worker waits for the drop.
///
/// Caught: `cancel` that settles without a look whether the body is still there; a turn that ends when the
/// worker finds no body; `end_when_dropped` that looks at the state once only; `complete` without the turn.
#[test]
fn a_task_is_cancelled_or_runs() {
    check(|| {
        let world = Arc::<World>::default();
        let task = task(&world);
        let worker = spawn({
            let (task, world) = (task.clone(), world.clone());
            move || {
                let mut ctx = KeyContext { world, is_kept: false };
                task.run(&mut ctx);
                if !ctx.is_kept {
                    Box::new(KeyTurn(ctx.world)).end(TurnResult::Done);
                }
            }
        });
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

/// A task that its handle cancels while its pool drops it ends as cancelled, once, and who has that
/// outcome finds its captures gone.
///
/// Caught: a state that is settled before the captures are dropped: the outcome was had early, and a
/// second time when `complete` came.
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
        assert!(task.poll(None).is_none(), "an outcome is given out once");
        assert_eq!(world.drops.load(Ordering::Relaxed), 1);
    });
}

/// A handle that is awaited while its pool drops the task learns that it was cancelled.
///
/// Caught: `abandon` that settles nothing.
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
