//! Subtasks that are futures: each runs on the pool's runtime with its turn, without a worker.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::AbortHandle;

use crate::complete::{FutureRuntime, Outcome, PanicPayload};
use crate::run::{SavedContext, Turn, with_cancel_flag};
use crate::sync::AtomicBool;
use crate::unwind::drop_catch_unwind;

/// Callbacks of a job's futures.
pub(super) trait FutureEvents<T, E>: Send + Sync {
    /// Reports that a future was spawned. The handle aborts it when the job is cancelled.
    fn began(&self, index: usize, abort: AbortHandle);

    /// Reports that a future has ended, before its turn ends.
    fn ended(&self, index: usize, number: u64, outcome: Outcome<T, E>, context: &SavedContext);

    /// Reports that the turn of a future has ended. Called inside the pool, because the job may
    /// still have to fold results.
    fn left(&self, failed: bool);
}

/// State that a future takes along.
pub(super) struct RunningFuture<T, E> {
    pub(super) job: Arc<dyn FutureEvents<T, E>>,
    /// Index among the job's futures.
    pub(super) index: usize,
    /// Number of the subtask.
    pub(super) number: u64,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) context: SavedContext,
    /// Turn of the subtask. Ended last.
    pub(super) turn: Option<Turn>,
}

/// Future with its runtime.
pub(super) struct FutureSubtask<F> {
    pub(super) future: F,
    /// Runtime; `Some` for every accepted job of futures.
    pub(super) runtime: Option<FutureRuntime>,
}

impl<F> FutureSubtask<F> {
    /// Spawns the future on its runtime, with the state that `keep` returns.
    pub(super) fn spawn<T, E>(self, keep: impl FnOnce() -> RunningFuture<T, E>)
    where
        T: Send + 'static,
        E: Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
    {
        let FutureSubtask { future, runtime } = self;
        let runtime = runtime.expect("a job of futures is accepted only with a runtime");
        let running = keep();
        let (job, index) = (running.job.clone(), running.index);
        let catching = CatchUnwind { future: Some(Box::pin(future)), outcome: None, running };
        let abort = runtime.spawn(catching.run());
        job.began(index, abort);
    }
}

/// Running future. Dropping it at any point first drops the future, then delivers the outcome, then
/// ends the turn.
struct CatchUnwind<T: 'static, E: 'static, F> {
    future: Option<Pin<Box<F>>>,
    outcome: Option<Outcome<T, E>>,
    running: RunningFuture<T, E>,
}

impl<T, E, F: Future<Output = Result<T, E>>> CatchUnwind<T, E, F> {
    async fn run(mut self) {
        self.outcome = Some(poll_fn(|cx| self.step(cx)).await);
    }

    /// Polls the future in the context of its subtask: inside its pool, at its position.
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        let CatchUnwind { future, running, .. } = self;
        let future = future.as_mut().expect("the future is present until the drop");
        let poll = AssertUnwindSafe(|| {
            running
                .context
                .scope(|| with_cancel_flag(running.cancelled.clone(), || future.as_mut().poll(cx)))
        });
        match catch_unwind(poll) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(value))) => Poll::Ready(Outcome::Completed(value)),
            Ok(Poll::Ready(Err(error))) => Poll::Ready(Outcome::Failed(error)),
            Err(payload) => Poll::Ready(self.panicked(payload)),
        }
    }

    fn panicked(&self, payload: Box<dyn Any + Send>) -> Outcome<T, E> {
        self.running.context.panicked(&*payload);
        Outcome::Panicked(PanicPayload::new(payload))
    }
}

impl<T, E, F> Drop for CatchUnwind<T, E, F> {
    fn drop(&mut self) {
        let future = self.future.take();
        let RunningFuture { job, index, number, context, turn, .. } = &mut self.running;
        context.scope(|| drop_catch_unwind(future));
        let outcome = self.outcome.take().unwrap_or(Outcome::Cancelled);
        let failed = !outcome.is_completed();
        job.ended(*index, *number, outcome, context);
        drop(turn.take());
        context.leave_turn();
        context.scope(|| job.left(failed));
    }
}
