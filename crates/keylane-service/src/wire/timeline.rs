//! Use of the slots over time, and the state of the server in numbers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{KeyChain, Timestamp};

/// Use of a slot by an attempt, for a picture of the slots over time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Slice {
    /// Number of the slot, from 0.
    pub slot: u32,
    /// Id of the job.
    pub job: String,
    /// Number of the subtask in the job.
    pub number: u32,
    /// Its keys.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub keys: Vec<String>,
    /// Its keys that other subtasks may share.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shared_keys: Vec<String>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Start of the attempt.
    pub begin: Timestamp,
    /// End of the attempt; absent while it runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<Timestamp>,
    /// Outcome: `succeeded`, `failed`, `retry`, `cancelled` or `lost`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<String>,
    /// Rule by which the job got the slot: `keep`, `aged`, `admit` or `least`.
    pub rule: String,
}

/// Recent runs: `GET /v1/timeline`. Under load it is a sample, and `dropped` has the number of
/// missing slices.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    /// Slices in the order of their ends; running ones last.
    pub slices: Vec<Slice>,
    /// Cursor for later slices: the next request's `after`.
    pub next: u64,
    /// Number of ended slices that are not shown.
    pub dropped: u64,
}

/// State of the server in numbers: once per second in the dashboard's stream, and `GET
/// /v1/summary`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// Time of the summary.
    pub at: Timestamp,
    /// Maximum number of running subtasks.
    pub slots: u64,
    /// Number of running subtasks.
    pub busy: u64,
    /// Number of unfinished jobs by state; only states with jobs.
    pub jobs: std::collections::BTreeMap<String, u64>,
    /// Unfinished subtasks that wait for a key or a time, or are stopped or paused.
    pub waiting: u64,
    /// Subtasks that wait for a slot.
    pub ready: u64,
    /// Subtasks that wait for their next attempt.
    pub backing_off: u64,
    /// Subtasks that succeeded since the server started.
    pub succeeded_total: u64,
    /// Subtasks that failed on their last attempt since the server started.
    pub failed_total: u64,
    /// Subtasks that were cancelled or skipped since the server started.
    pub cancelled_total: u64,
    /// Subtasks that were replaced by later ones since the server started.
    #[serde(default)]
    pub superseded_total: u64,
    /// Failed attempts that were followed by another.
    pub retried_total: u64,
    /// Keys with unfinished subtasks.
    pub keys: u64,
    /// Key with the most unfinished subtasks, if one has several.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub longest_key: Option<KeyChain>,
    /// Time for which the oldest head of a key has been its head, in milliseconds.
    pub oldest_head_ms: u64,
    /// Size of the store on disk, in bytes: its file and its write-ahead log.
    pub store_bytes: u64,
    /// `ok`, `full`, or `failed`.
    pub store: String,
    /// Number of WebSocket connections.
    pub websockets: u64,
    /// Start time of the server.
    pub started_at: Timestamp,
    /// Whether the server is shutting down.
    pub draining: bool,
}
