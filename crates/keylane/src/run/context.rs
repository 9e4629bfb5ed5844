//! What a body may ask of the worker that runs it.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use crate::sync::is_panicking;

/// How a task ended, as far as it concerns its keys. Of two that judge it the greater holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum TurnResult {
    /// It has done what it was to do.
    Done,
    /// It panicked, or said that it failed.
    Failed,
    /// Nothing of it ran, or somebody else judges it.
    Void,
}

/// A worker, as the body of a task sees it.
pub(crate) trait ExecContext {
    /// The body has panicked, and somebody else keeps the payload.
    fn panicked(&self, payload: &(dyn Any + Send));

    /// The body has returned an error, which somebody else keeps.
    fn failed(&self) {}

    /// There was no body any more.
    fn cancelled(&self) {}

    /// Whatever becomes of this, it is no success and no failure of its keys.
    fn is_void(&self) {}

    /// The turn is to last until the body has returned and the `Turn` is dropped.
    fn keep_turn(&mut self) -> Turn;
}

/// Ends a kept turn.
pub(crate) trait EndTurn: Send + Sync {
    fn end(self: Box<Self>, turn_result: TurnResult);

    /// Nothing is done in it for so long, from now on.
    fn back_off(&self, _: Duration) {}

    /// The shard of the turn, and the number by which that knows it.
    fn place(&self) -> Option<(usize, usize)> {
        None
    }

    /// Ends nothing: what the turn held was given back in another way. Returns the value that was kept with it.
    fn discard(self: Box<Self>) -> Option<KeptValue> {
        None
    }
}

/// A value that is kept for as long as a turn lasts.
pub(crate) type KeptValue = Box<dyn Any + Send + Sync>;

/// The turn of a task, kept beyond the return of its handler.
///
/// Until it is dropped the task counts as running: its keys are taken, and nothing that conflicts
/// with it starts. It can be dropped on any thread. The worker that ran the handler is free
/// meanwhile.
///
/// It never shortens a task: if it is dropped while the handler goes on, the task ends when that returns.
/// So a handler that has given its turn away and waits for the next task of its key waits for ever.
///
/// Where failures of a key [count](crate::OnFailure), a turn that is [failed](Self::fail), or dropped
/// by a panic, is one; and so is a handler that panics, wherever its turn is.
#[must_use = "dropping the turn ends it"]
pub struct Turn(Option<Box<dyn EndTurn>>);

impl Turn {
    pub(crate) fn new(end: impl EndTurn + 'static) -> Self {
        Turn(Some(Box::new(end)))
    }

    /// Ends the turn of a task that has failed.
    ///
    /// ```
    /// use keylane::{OnFailure, Pool, Turn};
    ///
    /// let on_failure = OnFailure::StopKey { after: 1 };
    /// let pool = Pool::<u32>::builder()
    ///     .on_failure(on_failure)
    ///     .build_handler_with_turns(|_: &u32, (), turn: Turn| turn.fail())?;
    /// pool.send(7, ())?;
    /// while pool.keys().list_stopped().is_empty() {
    ///     std::thread::yield_now();
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fail(self) {
        self.end(TurnResult::Failed);
    }

    /// Says that nothing is done in this turn for so long, from now on: its work has failed, say, and the next attempt is
    /// then. It keeps its keys all the same. Whoever asks why its keys wait is told: [`Running::backs_off`].
    ///
    /// It holds until that time, or until something else is said; `Duration::ZERO` ends it at once.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use std::time::Duration;
    /// use keylane::observe::{Holder, KeyState};
    /// use keylane::{Pool, Turn};
    ///
    /// let (keep, kept) = channel();
    /// let pool = Pool::<&str>::builder()
    ///     .build_handler_with_turns(move |_: &&str, (), turn: Turn| {
    ///         turn.back_off(Duration::from_secs(60));
    ///         keep.send(turn).unwrap();
    ///     })?;
    /// pool.send("alice", ())?;
    /// let turn = kept.recv()?;
    /// // It is told so from when the handler has returned.
    /// let why = loop {
    ///     let why = pool.inspect().explain_key(&"alice");
    ///     match &why.state {
    ///         KeyState::Held(Holder::Running(running)) if running.backs_off.is_some() => break why,
    ///         _ => std::thread::yield_now(),
    ///     }
    /// };
    /// println!("{why}"); // .. the first backs off for another 59.99s ..
    /// drop(turn);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// [`Running::backs_off`]: crate::observe::Running::backs_off
    pub fn back_off(&self, pause: Duration) {
        if let Some(turn) = &self.0 {
            turn.back_off(pause);
        }
    }

    /// The shard of the turn, and the number by which that knows it.
    pub(crate) fn place(&self) -> Option<(usize, usize)> {
        self.0.as_ref()?.place()
    }

    /// Lets go of the turn without ending it. Returns the value that was kept with it.
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

/// A stage that keeps a value for as long as the turn lasts.
pub(crate) struct KeepValueContext<'a, T> {
    ctx: &'a mut dyn ExecContext,
    /// Until somebody keeps the turn, and the value with it.
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

    fn is_void(&self) {
        self.ctx.is_void();
    }

    fn keep_turn(&mut self) -> Turn {
        Turn::new(TurnAndValue { turn: self.ctx.keep_turn(), value: self.value.take() })
    }
}

/// A kept turn, and what is dropped after it has ended.
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

    fn place(&self) -> Option<(usize, usize)> {
        self.turn.place()
    }

    fn discard(self: Box<Self>) -> Option<KeptValue> {
        let TurnAndValue { turn, value } = *self;
        turn.discard();
        let value: KeptValue = Box::new(value?);
        // One that was kept with an earlier turn of the task stays as it is.
        Some(value.downcast::<KeptValue>().map_or_else(|value| value, |kept| *kept))
    }
}

/// The stage of a task that is run outside of any pool: nothing is held, so nothing is kept.
pub(crate) fn noop_context() -> impl ExecContext {
    struct NoopContext;

    impl ExecContext for NoopContext {
        fn panicked(&self, _: &(dyn Any + Send)) {}

        fn keep_turn(&mut self) -> Turn {
            Turn(None)
        }
    }

    NoopContext
}
