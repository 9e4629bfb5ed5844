use keylane::Turn;

use super::key_batches::BatchGuard;

/// What keeps the other records of a lane back, until it is dropped.
#[derive(Debug)]
pub(super) enum KeyGuard {
    /// The pool's turn.
    Pool(#[expect(dead_code, reason = "it is there to be dropped")] Turn),
    /// Batches of a key: the lane's turn in their lines.
    Batch(BatchGuard),
}
