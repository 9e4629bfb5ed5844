//! Subtasks and their outcomes.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{Because, Timestamp};

/// State of a subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubtaskState {
    /// It waits for a key or a time, or is stopped or paused.
    Waiting,
    /// It waits for a slot.
    Ready,
    /// It runs.
    Running,
    /// It waits for its next attempt.
    BackingOff,
    /// It has succeeded.
    Succeeded,
    /// It has failed on its last attempt.
    Failed,
    /// It was cancelled with its job.
    Cancelled,
    /// An operator skipped it.
    Skipped,
    /// A later subtask of its key has replaced it.
    Superseded,
}

impl SubtaskState {
    /// All states.
    pub const ALL: [SubtaskState; 9] = [
        SubtaskState::Waiting,
        SubtaskState::Ready,
        SubtaskState::Running,
        SubtaskState::BackingOff,
        SubtaskState::Succeeded,
        SubtaskState::Failed,
        SubtaskState::Cancelled,
        SubtaskState::Skipped,
        SubtaskState::Superseded,
    ];

    /// Name on the wire.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            SubtaskState::Waiting => "waiting",
            SubtaskState::Ready => "ready",
            SubtaskState::Running => "running",
            SubtaskState::BackingOff => "backing_off",
            SubtaskState::Succeeded => "succeeded",
            SubtaskState::Failed => "failed",
            SubtaskState::Cancelled => "cancelled",
            SubtaskState::Skipped => "skipped",
            SubtaskState::Superseded => "superseded",
        }
    }
}

/// A subtask.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubtaskView {
    /// Its number in the job, from 0.
    pub number: u32,
    /// Its keys.
    pub keys: Vec<String>,
    /// Its keys that other subtasks may share.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shared_keys: Vec<String>,
    /// Whether it is a barrier: it runs after all earlier subtasks of its job, and before all later
    /// ones.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub barrier: bool,
    /// Whether it replaces the latest subtask of its key, and may be replaced by the next one.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub latest: bool,
    /// State of the subtask.
    pub state: SubtaskState,
    /// Number of started attempts.
    pub attempts: u32,
    /// Maximum number of attempts.
    #[serde(default)]
    pub max_attempts: u32,
    /// Input of its handler.
    #[schema(value_type = serde_json::Value)]
    pub payload: Box<RawValue>,
    /// Progress of its running attempt, from 0 to 1, if its handler reports it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub progress: Option<f64>,
    /// Outcome, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<OutcomeView>,
    /// Reason for which it does not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_because: Option<Because>,
}

/// Outcome of a subtask: a line of `GET /v1/jobs/{id}/results`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutcomeView {
    /// Its number in the job.
    pub number: u32,
    /// Its keys.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub keys: Vec<String>,
    /// Its keys that other subtasks may share.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shared_keys: Vec<String>,
    /// `succeeded`, `failed`, `cancelled`, `skipped` or `superseded`.
    pub outcome: SubtaskState,
    /// Number of its last attempt.
    pub attempt: u32,
    /// Start of that attempt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<Timestamp>,
    /// End of the subtask.
    pub ended_at: Timestamp,
    /// Result of its handler.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Error of the last attempt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
    /// Subtask that has replaced it, if it is superseded.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub superseded_by: Option<SubtaskRef>,
}

/// Subtask of some job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubtaskRef {
    /// Id of its job.
    pub job: String,
    /// Its number in the job.
    pub number: u32,
}
