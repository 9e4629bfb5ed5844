//! Durations and numbers of waits by reason.

use crate::duration_histogram::DurationHistogram;

/// Durations of the waits that have ended. Part of the scheduler.
///
/// Subtasks without keys have one time in common for all of a job: that at which the last of them came.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitDurations {
    /// For earlier subtasks of a key, the end of a pause of a key, or the rate of a key.
    pub(crate) key: DurationHistogram,
    /// For a slot, with all limits but those of keys.
    pub(crate) slot: DurationHistogram,
    /// For the next attempt, as planned at the end of the attempt before.
    pub(crate) backoff: DurationHistogram,
}

/// Numbers of waiting subtasks by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// For earlier subtasks of a key, the end of a pause of a key, or the rate of a key.
    pub key: u64,
    /// For an operator: they failed on their last attempt and block their keys.
    pub stopped: u64,
    /// For their next attempt.
    pub backoff: u64,
    /// For the start time of their job.
    pub scheduled: u64,
    /// For their entry into the order: a large job enters in slices.
    pub entering: u64,
    /// For the end of a pause of their job or kind, or because the service is stopping.
    pub paused: u64,
    /// For the limit or the rate of their kind.
    pub kind: u64,
    /// For the limit or the rate of their tenant.
    pub tenant: u64,
    /// For a slot only.
    pub slot: u64,
}
