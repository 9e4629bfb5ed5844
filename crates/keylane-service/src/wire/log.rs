//! Logs of attempts.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{SubtaskState, Timestamp};

/// Log of an attempt for humans, such as a command's standard error: an item of
/// `GET /v1/jobs/{id}/subtasks/{number}/logs`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AttemptLog {
    /// Number of the attempt, from 1; a reopened job starts again at 1.
    pub attempt: u32,
    /// Fencing token: higher than that of any earlier attempt.
    pub fence: u64,
    /// `running`, or the outcome: `succeeded`, `failed` or `cancelled`.
    pub state: SubtaskState,
    /// Start of the attempt.
    pub started_at: Timestamp,
    /// End of the attempt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub ended_at: Option<Timestamp>,
    /// Number of bytes of output before `text`.
    pub left_out_bytes: u64,
    /// Output: all of it, or its end. Bytes that are not UTF-8 are replaced.
    pub text: String,
    /// Exact bytes of the output, if it is not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub base64: Option<String>,
}
