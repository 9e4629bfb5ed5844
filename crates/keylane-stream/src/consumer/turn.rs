use std::time::Duration;

use keylane::Turn;

use super::key_batches::LineTurn;

/// What keeps the other records of a lane back, until it is dropped.
#[derive(Debug)]
pub(super) enum LaneTurn {
    /// The pool's turn.
    Pool(Turn),
    /// Batches of a key: the lane's turn in their lines.
    Line(LineTurn),
}

impl LaneTurn {
    /// Lets those who ask the pool know that nothing is done in it for so long.
    pub(super) fn back_off(&self, pause: Duration) {
        match self {
            LaneTurn::Pool(turn) => turn.back_off(pause),
            // The pool has no part in it, and nobody else is asked.
            LaneTurn::Line(_) => {}
        }
    }
}
