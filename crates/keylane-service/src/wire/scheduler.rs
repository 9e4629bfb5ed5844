//! Slots, decisions, and reasons for waiting.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{KindView, Timestamp};

/// Reason for which subtasks wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Because {
    /// Reason code: `key_order`, `starting`, `no_slot`, `not_admitted`, `kind_at_limit`, `kind_paused`,
    /// `no_worker`, `kind_rate_limited`, `backing_off`, `job_paused`, `key_paused`, `key_stopped`,
    /// `scheduled`, `after_job`, `split`, `fan_in`, `disk_full`, `draining`, `entering`, `no_kind`, `damaged`,
    /// `behind_damaged`, `barrier`, `priority`, `tenant_at_limit`, `tenant_rate_limited`. Later versions may add codes.
    pub reason: String,
    /// Reason in a sentence, with the remedy where there is one.
    pub text: String,
    /// Number of the job's subtasks that wait for this reason, in answers about a job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub count: Option<u64>,
    /// Key that blocks the subtask.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// Position in the key's lane, from 1 for the next one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub position: Option<u64>,
    /// Id of the job that it waits for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<String>,
    /// Number of the subtask that it waits for.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub number: Option<u32>,
    /// Time since which the reason holds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since: Option<Timestamp>,
    /// Time at which the reason ends, if known.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub until: Option<Timestamp>,
}

/// State of the slots and decisions: `GET /v1/scheduler`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SchedulerView {
    /// Maximum number of running subtasks.
    pub slots: u64,
    /// Number of running subtasks.
    pub busy: u64,
    /// Number of unfinished jobs.
    pub jobs: u64,
    /// Number of jobs that run or can run.
    pub active: u64,
    /// Whether the server is shutting down and starts no subtask.
    pub draining: bool,
    /// Running subtasks.
    pub running: Vec<RunningSubtask>,
    /// Last decisions, newest last.
    pub decisions: Vec<Decision>,
}

/// Running subtask.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct RunningSubtask {
    /// Number of its slot, from 0.
    pub slot: u32,
    /// Id of its job.
    pub job: String,
    /// Its number in the job.
    pub number: u32,
    /// Its keys.
    pub keys: Vec<String>,
    /// Its keys that other subtasks may share.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shared_keys: Vec<String>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Start of the attempt.
    pub since: Timestamp,
    /// Progress of the attempt, from 0 to 1, if its handler reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub progress: Option<f64>,
    /// Remote worker that holds its lease.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub worker: Option<String>,
}

/// Assignment of a free slot to a job.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Decision {
    /// Time of the decision.
    pub at: Timestamp,
    /// Id of the job.
    pub job: String,
    /// Rule: `keep`, `aged`, `admit` or `least`.
    pub rule: String,
}

/// Configured kinds.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Kinds)]
pub(crate) struct KindList {
    /// All kinds.
    pub(crate) items: Vec<KindView>,
}
