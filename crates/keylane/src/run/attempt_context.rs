//! Context of attempts after the first.

use std::any::Any;
use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::AttemptEngine;
use super::context::{ExecContext, Turn, TurnResult};

/// Context of an attempt after the first: it holds the turn that the first one has kept.
pub(crate) struct AttemptContext {
    engine: Arc<dyn AttemptEngine>,
    /// Turn, until the attempt has failed and another one follows.
    turn: Option<Turn>,
    result: Cell<TurnResult>,
}

impl AttemptContext {
    pub(crate) fn new(engine: &Arc<dyn AttemptEngine>, turn: Turn) -> Self {
        turn.back_off(Duration::ZERO);
        let result = Cell::new(TurnResult::Done);
        AttemptContext { engine: engine.clone(), turn: Some(turn), result }
    }

    /// Ends the turn, unless another attempt follows.
    pub(crate) fn end(self) {
        if let Some(turn) = self.turn {
            turn.end(self.result.get());
        }
    }
}

impl ExecContext for AttemptContext {
    fn panicked(&self, payload: &(dyn Any + Send)) {
        self.result.set(TurnResult::Failed);
        self.engine.panicked(payload);
    }

    fn failed(&self) {
        self.result.set(TurnResult::Failed);
        self.engine.failed();
    }

    fn keep_turn(&mut self) -> Turn {
        self.turn.take().expect("an attempt keeps its turn once")
    }

    fn restore_turn(&mut self, turn: Turn) {
        self.turn = Some(turn);
    }

    fn attempts(&self) -> Option<Arc<dyn AttemptEngine>> {
        Some(self.engine.clone())
    }
}
