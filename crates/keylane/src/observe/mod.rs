//! Tells what the pool does: counts, ages, and snapshots.

mod clock;
mod snapshot;
mod tally;
mod worker_tally;

pub(crate) use clock::Clock;
pub use snapshot::{LaneSnapshot, Snapshot, WorkerSnapshot};
pub(crate) use tally::Tally;
pub(crate) use worker_tally::WorkerTally;
