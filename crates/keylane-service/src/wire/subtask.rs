use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{Because, Timestamp};

/// How a subtask is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SubtaskState {
    /// It waits for a key, for a time, or because somebody holds it.
    Waiting,
    /// It could begin.
    Ready,
    /// It runs.
    Running,
    /// It waits for its next attempt.
    BackingOff,
    /// It has succeeded.
    Succeeded,
    /// It has failed for good.
    Failed,
    /// It was cancelled with its job.
    Cancelled,
    /// Somebody skipped it.
    Skipped,
}

impl SubtaskState {
    /// All of them.
    pub const ALL: [SubtaskState; 8] = [
        SubtaskState::Waiting,
        SubtaskState::Ready,
        SubtaskState::Running,
        SubtaskState::BackingOff,
        SubtaskState::Succeeded,
        SubtaskState::Failed,
        SubtaskState::Cancelled,
        SubtaskState::Skipped,
    ];

    /// Its word in the API.
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
        }
    }
}

/// A subtask.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct SubtaskView {
    /// Its number in its job, from 0.
    pub number: u32,
    /// Its keys.
    pub keys: Vec<String>,
    /// How it is.
    pub state: SubtaskState,
    /// Attempts that have begun.
    pub attempts: u32,
    /// What its handler gets.
    #[schema(value_type = serde_json::Value)]
    pub payload: Box<RawValue>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub outcome: Option<OutcomeView>,
    /// Why it does not run.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub waiting_because: Option<Because>,
}

/// How a subtask ended: a line of `GET /v1/jobs/{id}/results`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct OutcomeView {
    /// Its number in its job.
    pub number: u32,
    /// Its keys.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub keys: Vec<String>,
    /// `succeeded`, `failed`, `cancelled` or `skipped`.
    pub outcome: SubtaskState,
    /// The attempt that it ended with.
    pub attempt: u32,
    /// When that began.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub started_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Timestamp,
    /// What its handler returned.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}
