//! Interface between a task's body and its worker: result reports, and turns kept beyond the body.

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use keylane_allocate::JobId;

use super::attempt::AttemptEngine;
use super::cancel_flag::CancelFlag;
use crate::key_state::ErasedKeyState;
use crate::sync::is_panicking;

/// Result of a task for its keys. Of several reports, the greatest counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TurnResult {
    /// The task succeeded.
    Done,
    /// The task panicked or reported a failure.
    Failed,
    /// The body did not run, or another component reports the result.
    Void,
}

/// Job whose subtask waits in a lane.
pub(crate) trait LaneJob {
    /// Returns the id of the job in the scheduler, which it has before a worker comes.
    fn id(&self) -> Option<JobId>;

    /// Returns the source of `is_cancelled` for its subtasks.
    fn cancel_flag(&self) -> Arc<dyn CancelFlag>;

    /// Returns the address of the job, which no other one has while it is not over.
    fn address(&self) -> usize;
}

/// End of a subtask that a worker has run in its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SubtaskEnd {
    Done,
    /// It panicked or returned an error.
    Failed,
    /// Its result ends the job.
    Cancels {
        failed: bool,
    },
    /// It did not run, because the job was cancelled.
    Dropped,
}

/// Worker of a running body.
pub(crate) trait ExecContext {
    /// Reports a panic of the body. The caller keeps the payload.
    fn panicked(&self, payload: &(dyn Any + Send));

    /// Reports an error returned by the body. The caller keeps the error.
    fn failed(&self) {}

    /// Reports that the body was already gone.
    fn cancelled(&self) {}

    /// Excludes the task from the successes and failures of its keys.
    fn set_void(&self) {}

    /// Keeps the turn until the body has returned and the returned `Turn` is dropped.
    fn keep_turn(&mut self) -> Turn;

    /// Takes back a kept turn, which then ends with the body.
    fn restore_turn(&mut self, turn: Turn) {
        drop(turn);
    }

    /// Returns the engine that runs further attempts of the work, if there is one.
    fn attempts(&self) -> Option<Arc<dyn AttemptEngine>> {
        None
    }

    /// Lets the body run the subtask of this job for which it acts, if the worker may do so here,
    /// with the job's flag as the source of `is_cancelled`. The body must then call
    /// [`end_subtask`](Self::end_subtask).
    fn begin_subtask(&mut self, _: &dyn LaneJob) -> bool {
        false
    }

    /// Reports the end of a subtask.
    fn end_subtask(&mut self, _: SubtaskEnd, _at_once: bool) {}

    /// Takes the state of the task's key, if it has one.
    fn take_state(&mut self) -> Option<ErasedKeyState> {
        None
    }

    /// Puts the state of the task's key back. Returns it if it ends with the task.
    fn put_state(&mut self, state: ErasedKeyState) -> Option<ErasedKeyState> {
        Some(state)
    }
}

/// End of a kept turn.
pub(crate) trait EndTurn: Send + Sync {
    fn end(self: Box<Self>, turn_result: TurnResult);

    /// Marks the turn as idle for the given time from now.
    fn back_off(&self, _: Duration) {}

    /// Shard of the turn, and its number in that shard.
    fn location(&self) -> Option<(usize, usize)> {
        None
    }

    /// Returns the engine that holds the turn.
    fn engine(&self) -> Option<Arc<dyn AttemptEngine>> {
        None
    }

    /// Drops the turn without ending it, because its keys were released in another way. Returns the
    /// value that was kept with it.
    fn discard(self: Box<Self>) -> Option<KeptValue> {
        None
    }
}

/// Value that is kept for the duration of a turn.
pub(crate) type KeptValue = Box<dyn Any + Send + Sync>;

/// Turn of a task, kept beyond the return of its handler.
///
/// Until it is dropped, the task counts as running: it holds its keys, and no conflicting task
/// starts. It can be dropped on any thread. The worker that ran the handler is free meanwhile.
///
/// It never shortens a task: if it is dropped before the handler returns, the task ends when the
/// handler returns. A handler that has passed its turn on and waits for the next task of its key
/// therefore waits forever.
///
/// Where failures of a key [count](crate::OnFailure), a turn that is [failed](Self::fail) or
/// dropped by a panic counts as one, and so does a handler that panics, wherever its turn is.
#[must_use = "dropping the turn ends it"]
pub struct Turn(Option<Box<dyn EndTurn>>);

impl Turn {
    pub(crate) fn new(end: impl EndTurn + 'static) -> Self {
        Turn(Some(Box::new(end)))
    }

    /// Creates a turn that holds nothing.
    pub(crate) fn empty() -> Self {
        Turn(None)
    }

    /// Takes what the turn holds, if it holds anything.
    pub(crate) fn take(&mut self) -> Option<Self> {
        self.0.take().map(|end| Turn(Some(end)))
    }

    /// Ends the turn as failed.
    ///
    /// ```
    /// use keylane::{OnFailure, Pool, TaskContext, handler};
    ///
    /// let on_failure = OnFailure::StopKey { after: 1 };
    /// let pool = Pool::<u32>::builder()
    ///     .on_failure(on_failure)
    ///     .build_handler(handler::with_context(|_: &u32, (), task: TaskContext<'_>| task.keep().fail()))?;
    /// pool.send(7, ())?;
    /// while pool.keys().list_stopped().is_empty() {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fail(self) {
        self.end(TurnResult::Failed);
    }

    /// Marks the turn as idle for `pause` from now, for example until the next attempt of failed
    /// work. It keeps its keys. Diagnostics of waiting keys show the mark: [`RunInfo::backs_off`].
    ///
    /// The mark lasts until that time or until the next call; `Duration::ZERO` removes it at once.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// use keylane::observe::KeyHolder;
    /// use keylane::{Pool, TaskContext, handler};
    ///
    /// let (keep, kept) = channel();
    /// let wait = handler::with_context(move |_: &&str, (), task: TaskContext<'_>| {
    ///     let turn = task.keep();
    ///     turn.back_off(Duration::from_secs(60));
    ///     keep.send(turn).unwrap();
    /// });
    /// let pool = Pool::<&str>::builder().build_handler(wait)?;
    /// pool.send("alice", ())?;
    /// let turn = kept.recv()?;
    /// // The mark becomes visible when the handler has returned.
    /// let why = loop {
    ///     let why = pool.inspect().explain_key(&"alice");
    ///     match &why.holder {
    ///         KeyHolder::Running(running) if running.backs_off.is_some() => break why,
    ///         _ => std::thread::yield_now(),
    ///     }
    /// };
    /// println!("{why}"); // .. the first backs off for another 59.99s ..
    /// drop(turn);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`RunInfo::backs_off`]: crate::observe::RunInfo::backs_off
    pub fn back_off(&self, pause: Duration) {
        if let Some(turn) = &self.0 {
            turn.back_off(pause);
        }
    }

    /// Shard of the turn, and its number in that shard.
    pub(crate) fn location(&self) -> Option<(usize, usize)> {
        self.0.as_ref()?.location()
    }

    /// Returns the engine that holds the turn; none if it holds nothing.
    pub(super) fn engine(&self) -> Option<Arc<dyn AttemptEngine>> {
        self.0.as_ref()?.engine()
    }

    /// Drops the turn without ending it. Returns the value that was kept with it.
    pub(crate) fn discard(mut self) -> Option<KeptValue> {
        self.0.take()?.discard()
    }

    pub(crate) fn end(mut self, turn_result: TurnResult) {
        if let Some(turn) = self.0.take() {
            turn.end(turn_result);
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turn) = self.0.take() {
            turn.end(if is_panicking() { TurnResult::Failed } else { TurnResult::Done });
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

/// Context that keeps a value for the duration of the turn.
pub(crate) struct KeepValueContext<'a, T> {
    ctx: &'a mut dyn ExecContext,
    /// Value, until the turn is kept with it.
    value: Option<T>,
}

impl<'a, T: Send + Sync + 'static> KeepValueContext<'a, T> {
    pub(crate) fn new(ctx: &'a mut dyn ExecContext, value: T) -> Self {
        KeepValueContext { ctx, value: Some(value) }
    }
}

impl<T: Send + Sync + 'static> ExecContext for KeepValueContext<'_, T> {
    fn panicked(&self, payload: &(dyn Any + Send)) {
        self.ctx.panicked(payload);
    }

    fn failed(&self) {
        self.ctx.failed();
    }

    fn cancelled(&self) {
        self.ctx.cancelled();
    }

    fn set_void(&self) {
        self.ctx.set_void();
    }

    fn keep_turn(&mut self) -> Turn {
        Turn::new(TurnAndValue { turn: self.ctx.keep_turn(), value: self.value.take() })
    }

    fn attempts(&self) -> Option<Arc<dyn AttemptEngine>> {
        self.ctx.attempts()
    }

    fn take_state(&mut self) -> Option<ErasedKeyState> {
        self.ctx.take_state()
    }

    fn put_state(&mut self, state: ErasedKeyState) -> Option<ErasedKeyState> {
        self.ctx.put_state(state)
    }
}

/// Kept turn, with a value that is dropped after its end.
struct TurnAndValue<T> {
    turn: Turn,
    value: Option<T>,
}

impl<T: Send + Sync + 'static> EndTurn for TurnAndValue<T> {
    fn end(self: Box<Self>, turn_result: TurnResult) {
        let TurnAndValue { turn, value } = *self;
        turn.end(turn_result);
        drop(value);
    }

    fn back_off(&self, pause: Duration) {
        self.turn.back_off(pause);
    }

    fn location(&self) -> Option<(usize, usize)> {
        self.turn.location()
    }

    fn engine(&self) -> Option<Arc<dyn AttemptEngine>> {
        self.turn.engine()
    }

    fn discard(self: Box<Self>) -> Option<KeptValue> {
        let TurnAndValue { turn, value } = *self;
        turn.discard();
        let value: KeptValue = Box::new(value?);
        // A value that was kept with an earlier turn of the task is returned unchanged, not boxed
        // twice.
        Some(value.downcast::<KeptValue>().map_or_else(|value| value, |kept| *kept))
    }
}

/// Context of a task that runs outside of any pool: it holds no keys, so its turns are empty.
pub(crate) fn noop_context() -> impl ExecContext {
    struct NoopContext;

    impl ExecContext for NoopContext {
        fn panicked(&self, _: &(dyn Any + Send)) {}

        fn keep_turn(&mut self) -> Turn {
            Turn::empty()
        }
    }

    NoopContext
}
