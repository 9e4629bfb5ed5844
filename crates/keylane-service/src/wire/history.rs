//! Past of the service at regular intervals.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Slice, Timestamp};

/// Past of the service: `GET /v1/history`. Intervals in which the server did not run are absent.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Begin of the period.
    pub from: Timestamp,
    /// End of the period.
    pub to: Timestamp,
    /// Length of an interval: 10 seconds in the last hour, a minute in the last 24 hours, 15 minutes before.
    pub interval_ms: u64,
    /// Intervals, the earliest first. The last ones may be incomplete.
    pub samples: Vec<HistorySample>,
    /// Longest attempts that ended in the period, the earliest end first; with `include=slices`. Absent before the last
    /// 24 hours.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub slices: Vec<Slice>,
}

/// State of the service in an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistorySample {
    /// Begin of the interval.
    pub at: Timestamp,
    /// Maximum number of running subtasks.
    pub slots: u64,
    /// Average number of running subtasks.
    pub busy: f64,
    /// Subtasks that succeeded.
    pub succeeded: u64,
    /// Subtasks that failed on their last attempt.
    pub failed: u64,
    /// Subtasks that were cancelled, skipped or replaced.
    pub cancelled: u64,
    /// Failed attempts that were followed by another.
    pub retried: u64,
    /// Subtasks that waited, by reason.
    pub waiting: HistoryWaits,
    /// Jobs with the most running subtasks, at most 8.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub jobs: Vec<HistoryShare>,
}

/// Average numbers of waiting subtasks by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryWaits {
    /// For earlier subtasks of a key, the end of a pause of a key, or the rate of a key.
    pub key: f64,
    /// For an operator: they failed on their last attempt and block their keys.
    pub stopped: f64,
    /// For their next attempt.
    pub backoff: f64,
    /// For the start time of their job, or the end of another job.
    pub scheduled: f64,
    /// For their entry into the order.
    pub entering: f64,
    /// For the end of a pause of their job or kind.
    pub paused: f64,
    /// For the limit or the rate of their kind.
    pub kind: f64,
    /// For the limit or the rate of their tenant.
    pub tenant: f64,
    /// For a slot only.
    pub slot: f64,
}

/// Share of a job in the slots.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct HistoryShare {
    /// Id of the job.
    pub job: String,
    /// Kind of the job.
    pub kind: String,
    /// Name of the job, cut to 64 bytes.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Average number of its running subtasks.
    pub busy: f64,
}
