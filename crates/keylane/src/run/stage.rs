//! What a body may ask of the worker that runs it.

use std::any::Any;
use std::fmt;

/// A worker, as the body of a task sees it.
pub(crate) trait Stage {
    /// The body has panicked, and somebody else keeps the payload.
    fn panicked(&self, payload: &(dyn Any + Send));

    /// The body has returned an error, which somebody else keeps.
    fn failed(&self) {}

    /// There was no body any more.
    fn cancelled(&self) {}

    /// The turn is to last beyond the body, until the `Turn` is dropped.
    fn keep_turn(&mut self) -> Turn;
}

/// Ends a kept turn.
pub(crate) trait EndTurn: Send + Sync {
    fn end(self: Box<Self>);
}

/// The turn of a task, kept beyond the return of its handler.
///
/// Until it is dropped the task counts as running: its keys are taken, and nothing that conflicts
/// with it starts. It can be dropped on any thread. The worker that ran the handler is free
/// meanwhile.
#[must_use = "dropping the turn ends it"]
pub struct Turn(Option<Box<dyn EndTurn>>);

impl Turn {
    pub(crate) fn new(end: impl EndTurn + 'static) -> Self {
        Turn(Some(Box::new(end)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if let Some(turn) = self.0.take() {
            turn.end();
        }
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").finish_non_exhaustive()
    }
}

/// A stage that keeps a value for as long as the turn lasts.
pub(crate) struct Keeping<'a, T> {
    stage: &'a mut dyn Stage,
    /// Until somebody keeps the turn, and the value with it.
    value: Option<T>,
}

impl<'a, T: Send + Sync + 'static> Keeping<'a, T> {
    pub(crate) fn new(stage: &'a mut dyn Stage, value: T) -> Self {
        Keeping { stage, value: Some(value) }
    }
}

impl<T: Send + Sync + 'static> Stage for Keeping<'_, T> {
    fn panicked(&self, payload: &(dyn Any + Send)) {
        self.stage.panicked(payload);
    }

    fn failed(&self) {
        self.stage.failed();
    }

    fn cancelled(&self) {
        self.stage.cancelled();
    }

    fn keep_turn(&mut self) -> Turn {
        Turn::new(Both { turn: self.stage.keep_turn(), value: self.value.take() })
    }
}

/// A kept turn, and what is dropped after it has ended.
struct Both<T> {
    turn: Turn,
    value: Option<T>,
}

impl<T: Send + Sync> EndTurn for Both<T> {
    fn end(self: Box<Self>) {
        let Both { turn, value } = *self;
        drop(turn);
        drop(value);
    }
}

/// The stage of a task that is run outside of any pool: nothing is held, so nothing is kept.
pub(crate) fn bystander() -> impl Stage {
    struct Bystander;

    impl Stage for Bystander {
        fn panicked(&self, _: &(dyn Any + Send)) {}

        fn keep_turn(&mut self) -> Turn {
            Turn(None)
        }
    }

    Bystander
}
