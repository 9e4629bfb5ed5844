//! Tasks that are attempted again when they fail.
//!
//! The first attempt is the body of the task. When an attempt fails and another one follows, the
//! task is *suspended*: its cell holds the body and the kept turn, and the engine runs the next
//! attempt when its time has come. The cell decides under its lock which thread gets both: the
//! worker of the next attempt, or the thread that cancels the task, which drops the body, completes
//! the handle and ends the turn.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::progress::{LockedProgress, TaskProgress};
use super::task_cell::{JoinState, TakeWork};
use super::{Outcome, PanicPayload, TaskCell};
use crate::retry::{FailedAttempts, Retry, random};
use crate::run::{
    AttemptContext, AttemptEngine, CancelFlag, ExecContext, RetryAttempt, RunSharedBody, Turn,
    with_cancel_flag,
};
use crate::sync::{Mutex, ThreadId};
use crate::unwind::{KeyPanic, drop_catch_unwind};

/// Closure that may be called several times, with its state, shared with its handle.
pub(crate) struct RetryTask<T, E, F> {
    cell: TaskCell<T, E, F>,
    retry: Retry,
    /// Locked alone, by the thread that runs the task, and by one that cancels it.
    state: Mutex<RetryState>,
}

#[derive(Default)]
struct RetryState {
    failures: FailedAttempts,
    /// Next attempt of a suspended task, by its number.
    next: Option<(Arc<dyn AttemptEngine>, u64)>,
}

impl<T, E, F> RetryTask<T, E, F> {
    pub(crate) fn new(body: F, retry: Retry) -> Self {
        RetryTask { cell: TaskCell::new(body), retry, state: Mutex::default() }
    }
}

impl<T, E, F> RetryTask<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: FnMut() -> Result<T, E> + Send + 'static,
{
    /// Runs an attempt, and suspends or completes the task.
    fn attempt(self: &Arc<Self>, mut body: F, ctx: &mut dyn ExecContext) {
        let call = AssertUnwindSafe(&mut body);
        let result = with_cancel_flag(self.clone(), || catch_unwind(call));
        let outcome = match result {
            Ok(Ok(value)) => Outcome::Completed(value),
            Ok(Err(error)) => {
                match self.suspend(body, ctx) {
                    Ok(()) => return drop_catch_unwind(error),
                    Err(last) => body = last,
                }
                ctx.failed();
                Outcome::Failed(error)
            }
            Err(payload) => {
                ctx.panicked(&*payload);
                Outcome::Panicked(PanicPayload::new(payload))
            }
        };
        drop_catch_unwind(body);
        self.cell.complete(outcome);
    }

    /// Suspends the task until its next attempt. Returns the body if no attempt follows.
    fn suspend(self: &Arc<Self>, body: F, ctx: &mut dyn ExecContext) -> Result<(), F> {
        let Some(engine) = ctx.attempts() else { return Err(body) };
        if engine.is_stopping() || self.cell.is_cancelled() {
            return Err(body);
        }
        let mut state = self.state.lock();
        let delay = self.retry.after_failure(&mut state.failures, engine.now(), random);
        let Some(delay) = delay else { return Err(body) };
        let number = engine.number_attempt();
        state.next = Some((engine.clone(), number));
        drop(state);
        let turn = ctx.keep_turn();
        turn.back_off(delay);
        let location = turn.location();
        if let Err((body, turn)) = self.cell.suspend(body, turn) {
            self.state.lock().next = None;
            ctx.restore_turn(turn);
            return Err(body);
        }
        if !engine.schedule_attempt(number, delay, self.clone(), location) {
            self.give_up();
        } else if self.cell.progress().is_completed() {
            // It was cancelled before it was scheduled.
            engine.withdraw_attempt(number);
        }
        Ok(())
    }
}

impl<T, E, F> RunSharedBody for RetryTask<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: FnMut() -> Result<T, E> + Send + 'static,
{
    fn run(self: Arc<Self>, ctx: &mut dyn ExecContext) {
        match self.cell.begin() {
            Some(body) => self.attempt(body, ctx),
            None => {
                ctx.cancelled();
                self.cell.progress().end_when_dropped(&mut || ctx.keep_turn());
            }
        }
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

impl<T, E, F> RetryAttempt for RetryTask<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: FnMut() -> Result<T, E> + Send + 'static,
{
    fn run(self: Arc<Self>, engine: &Arc<dyn AttemptEngine>) {
        let Some((body, turn)) = self.cell.resume() else { return };
        self.state.lock().next = None;
        let mut ctx = AttemptContext::new(engine, turn);
        self.attempt(body, &mut ctx);
        ctx.end();
    }

    fn give_up(&self) {
        self.state.lock().next = None;
        self.cell.drop_unrun(Outcome::Cancelled);
    }
}

impl<T, E, F> CancelFlag for RetryTask<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Send + 'static,
{
    fn is_cancel_requested(&self) -> bool {
        self.cell.is_cancelled()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl<T, E, F> TakeWork<F> for RetryTask<T, E, F> {
    fn take_work(&self) -> Option<F> {
        self.cell.take_body()
    }
}

impl<T, E, F> JoinState<T, E> for RetryTask<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Send + 'static,
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
        let next = if in_time { self.state.lock().next.take() } else { None };
        if let Some((engine, number)) = next {
            engine.withdraw_attempt(number);
            engine.cancelled();
        }
        in_time
    }
}
