use keylane::Turn;

use super::key_batches::LineTurn;

/// What keeps the other records of a lane back, until it is dropped.
#[derive(Debug)]
pub(super) enum LaneTurn {
    /// The pool's turn.
    Pool(#[expect(dead_code, reason = "it is there to be dropped")] Turn),
    /// Batches of a key: the lane's turn in their lines.
    Line(LineTurn),
}
