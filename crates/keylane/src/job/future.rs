//! Subtasks that are futures. They go on on the pool's runtime, each with its turn, and no worker waits
//! for them.

use std::any::Any;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tokio::task::AbortHandle;

use super::subtask::SubtaskBody;
use crate::complete::{Outcome, PanicPayload, Runtime, with_cancel_flag};
use crate::run::{SavedContext, Turn};
use crate::sync::AtomicBool;
use crate::unwind::drop_catch_unwind;

/// A job, as its futures see it.
pub(super) trait FutureEvents<T, E>: Send + Sync {
    /// A future has begun. It is aborted when the job is cancelled.
    fn began(&self, at: usize, abort: AbortHandle);

    /// It has ended, and its turn is about to.
    fn ended(&self, at: usize, number: u64, outcome: Outcome<T, E>, place: &SavedContext);

    /// Its turn has ended. Called inside the pool, for the job may have something left to fold.
    fn left(&self, failed: bool);
}

/// What a future takes along.
pub(super) struct RunningFuture<T, E> {
    pub(super) job: Arc<dyn FutureEvents<T, E>>,
    /// Its place among the job's futures,
    pub(super) at: usize,
    /// and among its subtasks.
    pub(super) number: u64,
    pub(super) cancelled: Arc<AtomicBool>,
    pub(super) place: SavedContext,
    /// Ended last.
    pub(super) turn: Option<Turn>,
}

/// A future and where it is to run.
pub(super) struct FutureSubtask<F> {
    pub(super) future: F,
    /// There is one: a job of futures is not accepted without.
    pub(super) runtime: Option<Runtime>,
}

impl<T, E, F> SubtaskBody<T, E> for FutureSubtask<F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Future<Output = Result<T, E>> + Send + 'static,
{
    const IS_FUTURE: bool = true;

    fn run(self, keep: impl FnOnce() -> RunningFuture<T, E>) -> Option<Result<T, E>> {
        let FutureSubtask { future, runtime } = self;
        let runtime = runtime.expect("a job of futures is accepted only where there is a runtime");
        let running = keep();
        let (job, at) = (running.job.clone(), running.at);
        let catching = CatchUnwind { future: Some(Box::pin(future)), outcome: None, running };
        let abort = runtime.spawn(catching.run());
        job.began(at, abort);
        None
    }
}

/// A future that has begun. However it is dropped it lets go of the future first, then hands the outcome
/// on, then ends the turn.
struct CatchUnwind<T: 'static, E: 'static, F> {
    future: Option<Pin<Box<F>>>,
    outcome: Option<Outcome<T, E>>,
    running: RunningFuture<T, E>,
}

impl<T, E, F: Future<Output = Result<T, E>>> CatchUnwind<T, E, F> {
    async fn run(mut self) {
        self.outcome = Some(poll_fn(|cx| self.step(cx)).await);
    }

    /// Polls the future as a part of its subtask: inside its pool, in its place.
    fn step(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<T, E>> {
        let CatchUnwind { future, running, .. } = self;
        let future = future.as_mut().expect("it is there until it is dropped");
        let poll = AssertUnwindSafe(|| {
            running
                .place
                .visit(|| with_cancel_flag(running.cancelled.clone(), || future.as_mut().poll(cx)))
        });
        match catch_unwind(poll) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(value))) => Poll::Ready(Outcome::Completed(value)),
            Ok(Poll::Ready(Err(error))) => Poll::Ready(Outcome::Failed(error)),
            Err(payload) => Poll::Ready(self.panicked(payload)),
        }
    }

    fn panicked(&self, payload: Box<dyn Any + Send>) -> Outcome<T, E> {
        self.running.place.panicked(&*payload);
        Outcome::Panicked(PanicPayload::new(payload))
    }
}

impl<T, E, F> Drop for CatchUnwind<T, E, F> {
    fn drop(&mut self) {
        let future = self.future.take();
        let RunningFuture { job, at, number, place, turn, .. } = &mut self.running;
        place.visit(|| drop_catch_unwind(future));
        let outcome = self.outcome.take().unwrap_or(Outcome::Cancelled);
        let failed = !outcome.is_completed();
        job.ended(*at, *number, outcome, place);
        drop(turn.take());
        place.leave_turn();
        place.visit(|| job.left(failed));
    }
}
