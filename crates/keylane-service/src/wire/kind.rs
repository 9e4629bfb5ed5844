//! Kinds of jobs: as they are in force, and changes of operators.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Timestamp;
use super::number::whole;

/// A kind of job: `GET /v1/kinds`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KindView {
    /// Name of the kind.
    pub name: String,
    /// Type of handler: `command`, `worker`, `http`, `lease` or `function`.
    pub handler: String,
    /// Maximum number of running subtasks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub concurrency: Option<u64>,
    /// Maximum number of subtasks that run with a key at the same time, if they run in no order.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_per_key: Option<u32>,
    /// Maximum number of starts per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_second: Option<f64>,
    /// Maximum number of starts per second with the same key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_second_per_key: Option<f64>,
    /// Maximum number of attempts per subtask.
    pub attempts: u32,
    /// Timeout of an attempt, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
    /// Time for which its finished jobs are kept, in milliseconds, if it differs from the server's.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub retention_ms: Option<u64>,
    /// Whether its finished jobs are kept until an operator removes them, unlike those of the server.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub keeps_forever: bool,
    /// Whether the kind has a split step.
    pub split: bool,
    /// Whether the kind has a fan-in step.
    pub fan_in: bool,
    /// Number of its running steps.
    pub running: u64,
    /// Whether an operator has paused the kind: nothing of it starts.
    pub paused: bool,
    /// Time of the pause.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paused_since: Option<Timestamp>,
    /// Reason of the pause.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub pause_reason: Option<String>,
    /// Settings that operators have changed. Their values here are those in force; a reset brings the
    /// configured ones back.
    pub changed: Vec<KindSetting>,
}

/// Setting of a kind that an operator can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KindSetting {
    /// Maximum number of running subtasks.
    Concurrency,
    /// Maximum number of starts per second.
    PerSecond,
    /// Maximum number of starts at once after a pause.
    Burst,
    /// Maximum number of starts per second with the same key.
    PerSecondPerKey,
    /// Maximum number of starts with the same key at once after a pause.
    BurstPerKey,
    /// Maximum number of attempts per subtask.
    Attempts,
    /// Timeout of an attempt.
    TimeoutMs,
}

impl KindSetting {
    /// All settings.
    pub const ALL: [KindSetting; 7] = [
        KindSetting::Concurrency,
        KindSetting::PerSecond,
        KindSetting::Burst,
        KindSetting::PerSecondPerKey,
        KindSetting::BurstPerKey,
        KindSetting::Attempts,
        KindSetting::TimeoutMs,
    ];
}

/// Changes of a kind: `PATCH /v1/kinds/{name}`. Absent settings stay as they are.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct KindPatch {
    /// Maximum number of running subtasks. Running ones beyond it go on.
    #[serde(default, deserialize_with = "whole")]
    pub concurrency: Option<u32>,
    /// Maximum number of starts per second.
    #[serde(default)]
    pub per_second: Option<f64>,
    /// Maximum number of starts at once after a pause.
    #[serde(default, deserialize_with = "whole")]
    pub burst: Option<u32>,
    /// Maximum number of starts per second with the same key.
    #[serde(default)]
    pub per_second_per_key: Option<f64>,
    /// Maximum number of starts with the same key at once after a pause.
    #[serde(default, deserialize_with = "whole")]
    pub burst_per_key: Option<u32>,
    /// Maximum number of attempts per subtask, of jobs that are submitted from now on.
    #[serde(default, deserialize_with = "whole")]
    pub attempts: Option<u32>,
    /// Timeout of an attempt, in milliseconds, of jobs that are submitted from now on.
    #[serde(default, deserialize_with = "whole")]
    pub timeout_ms: Option<u64>,
}

/// `POST /v1/kinds/{name}/pause`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseKindRequest {
    /// Reason, shown to operators and to clients whose jobs wait.
    #[serde(default)]
    pub reason: Option<String>,
}

/// `POST /v1/kinds/{name}/reset`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResetKindRequest {
    /// Settings that get their configured values again; all by default.
    #[serde(default)]
    pub settings: Option<Vec<KindSetting>>,
}
