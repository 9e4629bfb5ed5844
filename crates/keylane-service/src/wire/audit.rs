use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Timestamp;

/// What an operator has done, or was refused: an entry of `GET /v1/audit`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// One more than that of the entry before. None is given twice, and only the oldest entries go, so whoever copies
    /// the log knows what is missing.
    pub number: u64,
    /// When.
    pub at: Timestamp,
    /// The name of the token; `anyone` where none is needed, `in-process` for the program that embeds the service.
    pub who: String,
    /// The address from which it was asked: a proxy's, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<String>,
    /// What: `job.cancel`, `job.pause`, `job.resume`, `job.retry`, `job.patch`, `job.purge`, `key.pause`, `key.resume`,
    /// `key.retry-head`, `key.skip-head`, `schedule.put`, `schedule.delete`, `schedule.pause`, `schedule.resume` or
    /// `schedule.run`; `key.steer` if it was refused before that was known.
    pub what: String,
    /// To which job; or which job was made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<String>,
    /// To which key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// To which schedule.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub schedule: Option<String>,
    /// Why, in the words of whoever has asked.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// How it was asked for. No payload is ever in it.
    #[schema(value_type = Object)]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parameters: Option<serde_json::Value>,
    /// What came of it.
    pub outcome: AuditOutcome,
    /// Why it was refused: the `code` of the problem that was the answer.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
}

/// What came of what somebody has asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// It was done.
    Done,
    /// There was nothing to be done: it was so already.
    Unchanged,
    /// It was refused, and nothing was done.
    Refused,
    /// The entry is not what was written: nothing in it is to be believed.
    Damaged,
}
