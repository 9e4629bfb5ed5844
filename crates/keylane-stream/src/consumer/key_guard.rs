//! Guard of a lane: the pool's turn, or a batch thread's right to the lane.

use std::any::Any;
use std::fmt::Debug;

use keylane::Turn;

/// Keeps the other records of a lane from starting until it is dropped.
#[derive(Debug)]
pub(super) enum KeyGuard {
    /// Turn of the pool.
    Pool(#[expect(dead_code, reason = "held for its drop")] Turn),
    /// Guard of the key batcher.
    Batch(Box<dyn LaneGuard>),
}

/// Guard of a lane that is not the pool's. Only its owner knows the type, and takes it back.
pub(super) trait LaneGuard: Any + Debug + Send + Sync {}
