//! Guard of a lane: the pool's turn, or a batch thread's right to the lane.

use keylane::Turn;

use super::key_batches::BatchGuard;

/// Keeps the other records of a lane from starting until it is dropped.
#[derive(Debug)]
pub(super) enum KeyGuard {
    /// Turn of the pool.
    Pool(#[expect(dead_code, reason = "held for its drop")] Turn),
    /// Guard of the key batcher.
    Batch(BatchGuard),
}
