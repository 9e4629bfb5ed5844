//! Turn of a lane, and the guard by which it lasts beyond a call of the handler: the pool's turn, or
//! a batch thread's right to the lane.

use std::any::Any;
use std::fmt::Debug;

use keylane::{TaskContext, Turn};

/// Keeps the other records of a lane from starting until it is dropped.
#[derive(Debug)]
pub(super) enum KeyGuard {
    /// Turn of the pool.
    Pool(Turn),
    /// Guard of the key batcher.
    Batch(Box<dyn LaneGuard>),
}

/// Guard of a lane that is not the pool's. Only its owner knows the type, and takes it back.
pub(super) trait LaneGuard: Any + Debug + Send + Sync {}

/// Turn of a lane during a call of the handler.
pub(super) trait LaneTurn {
    /// Lets the turn last until the guard is dropped. Called at most once.
    fn keep(&mut self) -> KeyGuard;
}

/// Turn of a lane of the pool.
pub(super) struct PoolTurn<'a>(Option<TaskContext<'a>>);

impl<'a> PoolTurn<'a> {
    pub(super) fn new(task: TaskContext<'a>) -> Self {
        PoolTurn(Some(task))
    }
}

impl LaneTurn for PoolTurn<'_> {
    fn keep(&mut self) -> KeyGuard {
        KeyGuard::Pool(self.0.take().expect("a turn is kept at most once").keep())
    }
}
