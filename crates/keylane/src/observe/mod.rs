//! Tells what the pool does: counts, ages, and snapshots.

mod clock;
mod counters;
mod detached_turns;
mod explain;
mod histogram;
mod paused_key;
#[cfg(feature = "metrics")]
mod prometheus;
mod self_check;
mod snapshot;
mod stall_watch;
mod statistics;
mod strata;
mod trace;
mod tracing;
mod wait_samples;
mod worker_counters;

pub(crate) use self::tracing::TraceEvents;
pub(crate) use clock::Clock;
pub(crate) use counters::Counters;
pub(crate) use detached_turns::{DetachedTurns, StartRange};
pub use explain::{
    Ahead, Holder, JobState, KeyExplanation, KeyState, PoolExplanation, PoolReason, Room, Running,
    Stalled, Submitter, TaskExplanation, TaskState,
};
pub use histogram::Histogram;
pub use paused_key::{HeldKey, Hold};
pub(crate) use self_check::Checker;
pub use self_check::Violations;
pub use snapshot::{LaneSnapshot, Snapshot, WorkerSnapshot};
pub use stall_watch::StallWatch;
pub use statistics::Statistics;
pub(crate) use strata::Chance;
pub(crate) use trace::{Recording, Ring, Tracer};
pub use trace::{Slice, SliceEnd, Trace, TracedKey};
pub(crate) use wait_samples::WaitSamples;
pub(crate) use worker_counters::{RunningTask, WorkerCounters, WorkerPosition};
