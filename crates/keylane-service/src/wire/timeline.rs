use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Timestamp;

/// A slot was used by a subtask for so long: what a picture of lanes is drawn of.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Slice {
    /// The slot, from 0.
    pub slot: u32,
    /// Whose job,
    pub job: String,
    /// and which subtask of it.
    pub number: u32,
    /// Its keys.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub keys: Vec<String>,
    /// Which attempt.
    pub attempt: u32,
    /// From when.
    pub begin: Timestamp,
    /// Until when; nothing while it runs.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end: Option<Timestamp>,
    /// How it ended: `succeeded`, `failed`, `retry`, `cancelled` or `lost`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<String>,
    /// By which rule it got the slot: `keep`, `aged`, `admit` or `least`.
    pub rule: String,
}

/// What ran lately: `GET /v1/timeline`. Under load it is a sample: `dropped` says how many are missing.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Timeline {
    /// In the order of their ends; those that run are last.
    pub slices: Vec<Slice>,
    /// Ask with `after` this for what comes later.
    pub next: u64,
    /// Slices that ended meanwhile and are not shown.
    pub dropped: u64,
}

/// The server in numbers: once a second in the dashboard's stream, and `GET /v1/summary`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Summary {
    /// When.
    pub at: Timestamp,
    /// How many subtasks run at once at most,
    pub slots: u64,
    /// and how many do.
    pub busy: u64,
    /// Jobs that are not over, by state: only states that some have.
    pub jobs: std::collections::BTreeMap<String, u64>,
    /// Unfinished subtasks that wait for a key, for a time, or because somebody holds them.
    pub waiting: u64,
    /// Those that could begin.
    pub ready: u64,
    /// Those that wait for their next attempt.
    pub backing_off: u64,
    /// Subtasks that have succeeded since the server began,
    pub succeeded_total: u64,
    /// and failed for good,
    pub failed_total: u64,
    /// and were cancelled or skipped.
    pub cancelled_total: u64,
    /// Attempts that failed and were followed by another.
    pub retried_total: u64,
    /// Keys with unfinished subtasks.
    pub keys: u64,
    /// How long the oldest head of a key has been that.
    pub oldest_head_ms: u64,
    /// Bytes of the store on the disk: its file and its write-ahead log.
    pub store_bytes: u64,
    /// `ok`, `full`, or `failed`.
    pub store: String,
    /// How many are connected by WebSocket.
    pub websockets: u64,
    /// Since when the server runs.
    pub started_at: Timestamp,
    /// Whether it is about to stop.
    pub draining: bool,
}
