//! Observability of a pool: counters, timings, snapshots, explanations and traces.

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
mod statistics_setting;
mod strata;
mod trace;
mod tracing;
mod wait_samples;
mod worker_counters;

pub(crate) use self::tracing::TraceEvents;
pub(crate) use clock::Clock;
pub(crate) use counters::PoolCounters;
pub(crate) use detached_turns::{DetachedTurns, StartRange};
pub use explain::{
    BlockedSubmitter, JobState, KeyExplanation, KeyHolder, KeyQueuePosition, PoolExplanation,
    PoolReason, RunInfo, Stalled, TaskExplanation, TaskState,
};
pub use histogram::Histogram;
pub use paused_key::{PauseReason, PausedKey};
pub(crate) use self_check::OrderChecker;
pub use self_check::Violations;
pub use snapshot::{KeySnapshot, Snapshot, WorkerSnapshot};
pub use stall_watch::StallWatch;
pub use statistics_setting::Statistics;
pub(crate) use strata::XorShift;
pub use trace::{Trace, TraceKey, TraceOutcome, TraceSlice};
pub(crate) use trace::{TraceRecording, TraceRing, Tracer};
pub(crate) use wait_samples::WaitSamples;
pub(crate) use worker_counters::{RunningTask, WorkerCounters, WorkerPosition};
