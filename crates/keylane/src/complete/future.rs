//! Tasks that are futures: their turn lasts until they end, on a runtime of the caller's.
//!
//! A worker takes such a task as it takes any other, hands it to the runtime and goes on. The turn,
//! and with it the task's keys, goes along with the future, and ends when that is done or dropped:
//! by its end, a panic, a cancelled handle, or the end of the runtime.

use std::any::Any;
use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::task_cell::JoinState;
use super::task_cell::{CancelFlag, TaskPhase, with_cancel_flag};
use super::{Outcome, PanicPayload, TaskCell};
use crate::run::{ExecContext, RunSharedBody, SavedContext, Turn, TurnResult};
use crate::sync::Mutex;
use crate::unwind::drop_catch_unwind;

/// Where the futures of a pool run, and how many at a time.
#[derive(Clone, Debug)]
pub(crate) struct Runtime {
    handle: tokio::runtime::Handle,
    /// A permit for each future that may run. First come, first served.
    running: Arc<Semaphore>,
}

/// The most futures that can be allowed to run at a time.
pub(crate) const MAX_FUTURES: usize = Semaphore::MAX_PERMITS;

impl Runtime {
    pub(crate) fn new(handle: tokio::runtime::Handle, concurrency: usize) -> Self {
        Runtime { handle, running: Arc::new(Semaphore::new(concurrency)) }
    }

    /// Runs a future as soon as the limit allows.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let running = self.running.clone();
        let permitted = async move {
            let _permit = running.acquire().await.expect("the semaphore is never closed");
            future.await;
        };
        self.handle.spawn(permitted).abort_handle()
    }
}

/// A future with its place in the order, shared with its handle.
pub(crate) struct FutureTask<T, F> {
    cell: TaskCell<T, Infallible, F>,
    runtime: Runtime,
    /// Drops the future once it has begun. Set by the worker that hands it over.
    abort: Mutex<Option<AbortHandle>>,
}

impl<T, F> FutureTask<T, F> {
    pub(crate) fn new(future: F, runtime: Runtime) -> Self {
        FutureTask { cell: TaskCell::new(future), runtime, abort: Mutex::new(None) }
    }

    pub(crate) fn take_future(&self) -> Option<F> {
        self.cell.take_body()
    }
}

impl<T, F> CancelFlag for FutureTask<T, F> {
    fn is_cancel_requested(&self) -> bool {
        self.cell.is_cancel_requested()
    }
}

impl<T, F> RunSharedBody for FutureTask<T, F>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    fn run(self: Arc<Self>, ctx: &mut dyn ExecContext) {
        let Some(future) = self.cell.begin() else {
            ctx.cancelled();
            return self.cell.end_when_dropped(|| ctx.keep_turn());
        };
        self.cell.leave_thread();
        let end = FutureEnd {
            task: self.clone(),
            place: SavedContext::here(),
            turn: Some(ctx.keep_turn()),
        };
        let running = CatchUnwind { future: Some(Box::pin(future)), outcome: None, end };
        let handle = self.runtime.spawn(running.run());
        let mut abort = self.abort.lock();
        if self.cell.is_cancel_requested() {
            // The handle has asked between `begin` and now.
            handle.abort();
        }
        *abort = Some(handle);
    }

    fn abandon(&self) {
        self.cell.drop_unrun(Outcome::Cancelled);
    }

    fn supersede(&self, turn: Turn) {
        self.cell.supersede_cell(turn);
    }
}

/// A future that has begun. Dropped at any point it lets go of the future first, then tells the
/// handle, then ends the turn.
struct CatchUnwind<T, F>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    future: Option<Pin<Box<F>>>,
    outcome: Option<Outcome<T>>,
    end: FutureEnd<T, F>,
}

struct FutureEnd<T, F> {
    task: Arc<FutureTask<T, F>>,
    place: SavedContext,
    /// There until the handle was told.
    turn: Option<Turn>,
}

impl<T, F> CatchUnwind<T, F>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    async fn run(mut self) {
        self.outcome = Some(poll_fn(|cx| self.step(cx)).await);
    }

    /// Polls the future as a part of its task: inside its pool, in its place.
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<T>> {
        let CatchUnwind { future, end, .. } = self;
        let future = future.as_mut().expect("it is there until it is dropped");
        let poll = AssertUnwindSafe(|| end.place.visit(|| future.as_mut().poll(cx)));
        match with_cancel_flag(end.task.clone(), || catch_unwind(poll)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready(Outcome::Completed(value)),
            Err(payload) => Poll::Ready(self.panicked(payload)),
        }
    }

    fn panicked(&self, payload: Box<dyn Any + Send>) -> Outcome<T> {
        self.end.place.panicked(&*payload);
        Outcome::Panicked(PanicPayload::new(payload))
    }
}

impl<T, F> Drop for CatchUnwind<T, F>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    fn drop(&mut self) {
        let future = self.future.take();
        self.end.place.visit(|| drop_catch_unwind(future));
        let outcome = self.outcome.take().unwrap_or(Outcome::Cancelled);
        let turn_result = match outcome {
            Outcome::Completed(_) => TurnResult::Done,
            Outcome::Cancelled => TurnResult::Void,
            _ => TurnResult::Failed,
        };
        if turn_result == TurnResult::Void {
            self.end.place.cancelled();
        }
        self.end.task.cell.complete(outcome);
        if let Some(turn) = self.end.turn.take() {
            turn.end(turn_result);
        }
    }
}

impl<T, F> JoinState<T, Infallible> for FutureTask<T, F>
where
    T: Send,
    F: Send,
{
    fn poll(&self, waker: Option<&Waker>) -> Option<Outcome<T>> {
        self.cell.poll(waker)
    }

    fn wait(&self, deadline: Option<Instant>) -> Option<Outcome<T>> {
        self.cell.wait(deadline)
    }

    fn is_completed(&self) -> bool {
        self.cell.is_completed()
    }

    fn phase(&self) -> TaskPhase {
        self.cell.phase()
    }

    fn runs_here(&self) -> bool {
        self.cell.runs_here()
    }

    fn cancel(&self) -> bool {
        let in_time = self.cell.cancel();
        if !in_time && let Some(handle) = &*self.abort.lock() {
            handle.abort();
        }
        in_time
    }
}
