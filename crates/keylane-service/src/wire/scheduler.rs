use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Timestamp;

/// Why something waits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Because {
    /// The reason: `key_order`, `starting`, `no_slot`, `not_admitted`, `kind_at_limit`, `no_worker`,
    /// `kind_rate_limited`, `backing_off`, `job_paused`, `key_paused`, `key_stopped`, `scheduled`, `split`, `fan_in`,
    /// `disk_full`, `draining`, `entering`, `no_kind`, `damaged`, `behind_damaged`. There may be more of them one day.
    pub reason: String,
    /// The cause in a sentence, with the remedy where there is one.
    pub text: String,
    /// How many of the job's subtasks it holds, as far as it is about a job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub count: Option<u64>,
    /// The key that it is about.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// The place in the key's lane, from 1 for what is next.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub position: Option<u64>,
    /// The job that it waits for,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<String>,
    /// and the subtask there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub number: Option<u32>,
    /// Since when that is so.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<Timestamp>,
    /// Until when, if that is known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Timestamp>,
}

/// How slots are shared: `GET /v1/scheduler`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SchedulerView {
    /// How many subtasks run at once at most.
    pub slots: u64,
    /// How many do.
    pub busy: u64,
    /// Jobs that are not over.
    pub jobs: u64,
    /// Jobs that run, or could.
    pub active: u64,
    /// Whether the server is about to stop, and begins nothing.
    pub draining: bool,
    /// What runs.
    pub running: Vec<RunningSubtask>,
    /// The last decisions, the newest last.
    pub decisions: Vec<Decision>,
}

/// A subtask that runs.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunningSubtask {
    /// The slot that it has, from 0.
    pub slot: u32,
    /// Its job,
    pub job: String,
    /// and its number there.
    pub number: u32,
    /// Its keys.
    pub keys: Vec<String>,
    /// Which attempt it is.
    pub attempt: u32,
    /// Since when.
    pub since: Timestamp,
    /// The remote worker that has it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worker: Option<String>,
}

/// One free slot, given to a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// When.
    pub at: Timestamp,
    /// The job.
    pub job: String,
    /// By which rule: `keep`, `aged`, `admit` or `least`.
    pub rule: String,
}
