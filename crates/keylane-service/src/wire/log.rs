use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{SubtaskState, Timestamp};

/// What an attempt said for people, such as a command on its standard error: one of
/// `GET /v1/jobs/{id}/subtasks/{number}/logs`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptLog {
    /// Which attempt, from 1; a job that is taken up again begins anew.
    pub attempt: u32,
    /// Higher than that of any earlier attempt.
    pub fence: u64,
    /// `running`, or how it ended: `succeeded`, `failed` or `cancelled`.
    pub state: SubtaskState,
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<Timestamp>,
    /// How many bytes it said before what is here.
    pub left_out_bytes: u64,
    /// What it said: all, or the end. What is no UTF-8 is replaced.
    pub text: String,
    /// The same byte by byte, if it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base64: Option<String>,
}
