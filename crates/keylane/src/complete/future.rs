//! Tasks that are futures: they run on the caller's runtime and hold their keys until they end.
//!
//! A worker takes such a task like any other, spawns its future on the runtime, and continues. The
//! turn, and with it the task's keys, moves with the future, and ends when the future completes or
//! is dropped: by its end, a panic, a cancellation through the handle, or the end of the runtime.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::sync::Semaphore;
use tokio::task::AbortHandle;

use super::progress::{LockedProgress, TaskProgress};
use super::task_cell::{JoinState, TakeWork};
use super::{Outcome, PanicPayload, TaskCell};
use crate::run::{
    CancelFlag, ExecContext, RunSharedBody, SavedContext, Turn, TurnResult, forget_soft_waits,
    name_of, with_cancel_flag,
};
use crate::sync::{Mutex, ThreadId};
use crate::unwind::{KeyPanic, drop_catch_unwind};

/// Runtime of a pool's futures, with their limit.
#[derive(Clone, Debug)]
pub(crate) struct FutureRuntime {
    handle: tokio::runtime::Handle,
    /// Permits of running futures, granted in the order of arrival.
    running: Arc<Semaphore>,
}

/// Maximum of the limit.
pub(crate) const MAX_FUTURES: usize = Semaphore::MAX_PERMITS;

impl FutureRuntime {
    pub(crate) fn new(handle: tokio::runtime::Handle, concurrency: usize) -> Self {
        FutureRuntime { handle, running: Arc::new(Semaphore::new(concurrency)) }
    }

    /// Runs a future when it gets a permit.
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let running = self.running.clone();
        let permitted = async move {
            let _permit = running.acquire().await.expect("the semaphore is never closed");
            future.await;
        };
        self.handle.spawn(permitted).abort_handle()
    }
}

/// Future with its state, shared with its handle.
pub(crate) struct FutureTask<T, E, F: Future> {
    cell: TaskCell<T, E, F>,
    /// Converts the future's value.
    outcome: fn(F::Output) -> Outcome<T, E>,
    runtime: FutureRuntime,
    /// Aborts the running future. Set by the worker that spawns it.
    abort: Mutex<Option<AbortHandle>>,
}

impl<T, E, F: Future> FutureTask<T, E, F> {
    pub(crate) fn new(
        future: F,
        outcome: fn(F::Output) -> Outcome<T, E>,
        runtime: FutureRuntime,
    ) -> Self {
        FutureTask { cell: TaskCell::new(future), outcome, runtime, abort: Mutex::new(None) }
    }
}

impl<T, E, F: Future> TakeWork<F> for FutureTask<T, E, F> {
    fn take_work(&self) -> Option<F> {
        self.cell.take_body()
    }
}

impl<T, E, F> CancelFlag for FutureTask<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future + Send + 'static,
{
    fn is_cancel_requested(&self) -> bool {
        self.cell.is_cancelled()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl<T, E, F> RunSharedBody for FutureTask<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future + Send + 'static,
{
    fn run(self: Arc<Self>, ctx: &mut dyn ExecContext) {
        let Some(future) = self.cell.begin() else {
            ctx.cancelled();
            return self.cell.progress().end_when_dropped(&mut || ctx.keep_turn());
        };
        self.cell.leave_thread();
        let end = FutureEnd {
            task: self.clone(),
            context: SavedContext::here(),
            turn: Some(ctx.keep_turn()),
        };
        let running = CatchUnwind { future: Some(Box::pin(future)), outcome: None, end };
        let handle = self.runtime.spawn(running.run());
        let mut abort = self.abort.lock();
        if self.cell.is_cancelled() {
            // The handle was cancelled after `begin` and before `abort` is set, so it could not
            // abort the future itself.
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

    fn fail(&self, payload: KeyPanic) {
        self.cell.drop_unrun(Outcome::Panicked(PanicPayload::new(payload)));
    }
}

/// Running future. Dropping it at any point first drops the future, then completes the handle, then
/// ends the turn.
struct CatchUnwind<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future + Send + 'static,
{
    future: Option<Pin<Box<F>>>,
    outcome: Option<Outcome<T, E>>,
    end: FutureEnd<T, E, F>,
}

struct FutureEnd<T, E, F: Future> {
    task: Arc<FutureTask<T, E, F>>,
    context: SavedContext,
    /// Turn, until the handle is completed.
    turn: Option<Turn>,
}

impl<T, E, F> CatchUnwind<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future + Send + 'static,
{
    async fn run(mut self) {
        self.outcome = Some(poll_fn(|cx| self.step(cx)).await);
    }

    /// Polls the future in the context of its task: inside its pool, at its position.
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        let CatchUnwind { future, end, .. } = self;
        let future = future.as_mut().expect("the future is present until the drop");
        let poll = AssertUnwindSafe(|| end.context.scope(|| future.as_mut().poll(cx)));
        match with_cancel_flag(end.task.clone(), || catch_unwind(poll)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(value)) => Poll::Ready((end.task.outcome)(value)),
            Err(payload) => Poll::Ready(self.panicked(payload)),
        }
    }

    fn panicked(&self, payload: Box<dyn Any + Send>) -> Outcome<T, E> {
        self.end.context.panicked(&*payload);
        Outcome::Panicked(PanicPayload::new(payload))
    }
}

impl<T, E, F> Drop for CatchUnwind<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future + Send + 'static,
{
    fn drop(&mut self) {
        let future = self.future.take();
        self.end.context.scope(|| drop_catch_unwind(future));
        forget_soft_waits(name_of(&self.end.task));
        let outcome = self.outcome.take().unwrap_or(Outcome::Cancelled);
        let turn_result = match outcome {
            Outcome::Completed(_) => TurnResult::Done,
            Outcome::Cancelled => TurnResult::Void,
            _ => TurnResult::Failed,
        };
        if turn_result == TurnResult::Void {
            self.end.context.cancelled();
        }
        if matches!(outcome, Outcome::Failed(_)) {
            self.end.context.failed();
        }
        self.end.task.cell.complete(outcome);
        if let Some(turn) = self.end.turn.take() {
            turn.end(turn_result);
        }
    }
}

impl<T, E, F> JoinState<T, E> for FutureTask<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future + Send + 'static,
{
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn progress(&self) -> &TaskProgress {
        self.cell.progress()
    }

    fn take_outcome(&self, locked: LockedProgress<'_>) -> Option<Outcome<T, E>> {
        self.cell.take_outcome(locked)
    }

    fn thread(&self, locked: &mut LockedProgress<'_>) -> Option<ThreadId> {
        self.cell.thread(locked)
    }

    fn cancel(&self) -> bool {
        let in_time = self.cell.cancel();
        if !in_time && let Some(handle) = &*self.abort.lock() {
            handle.abort();
        }
        in_time
    }
}
