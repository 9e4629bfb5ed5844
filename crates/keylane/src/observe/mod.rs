//! Tells what the pool does: counts, ages, and snapshots.

mod check;
mod clock;
mod events;
mod explain;
mod histogram;
mod hold;
#[cfg(feature = "metrics")]
mod prometheus;
mod snapshot;
mod statistics;
mod strata;
mod tally;
mod trace;
mod turns;
mod waits;
mod watch;
mod worker_tally;

pub(crate) use check::Checker;
pub use check::Violations;
pub(crate) use clock::Clock;
pub(crate) use events::Told;
pub use explain::{
    Ahead, Holder, JobState, KeyExplanation, KeyState, PoolExplanation, PoolReason, Room, Running,
    Stalled, Submitter, TaskExplanation, TaskState,
};
pub use histogram::Histogram;
pub use hold::{HeldKey, Hold};
pub use snapshot::{LaneSnapshot, Snapshot, WorkerSnapshot};
pub use statistics::Statistics;
pub(crate) use strata::Chance;
pub(crate) use tally::Tally;
pub(crate) use trace::{Recording, Ring, Tracer};
pub use trace::{Slice, SliceEnd, Trace, TracedKey};
pub(crate) use turns::{Began, Turns};
pub(crate) use waits::Waits;
pub use watch::StallWatch;
pub(crate) use worker_tally::{Place, Present, WorkerTally};
