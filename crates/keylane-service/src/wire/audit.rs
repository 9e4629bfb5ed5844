//! Entries of the audit log.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Timestamp;

/// Command of an operator, done or refused: an entry of `GET /v1/audit`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct AuditEntry {
    /// Number of the entry: one more than that of the previous entry, and never reused. Only the
    /// oldest entries are removed, so a copier of the log can detect missing entries.
    pub number: u64,
    /// Time of the command.
    pub at: Timestamp,
    /// Name of the token; `anyone` if the server needs none, `in-process` for the program that
    /// embeds the service.
    pub who: String,
    /// Client address: the address of the proxy, if there is one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub from: Option<String>,
    /// Command: `job.cancel`, `job.pause`, `job.resume`, `job.retry`, `job.patch`, `job.purge`,
    /// `key.pause`, `key.resume`, `key.retry-head`, `key.skip-head`, `schedule.put`,
    /// `schedule.delete`, `schedule.pause`, `schedule.resume`, `schedule.run`, `kind.pause`, `kind.resume`, `kind.patch`,
    /// `kind.reset` or `store.backup`; `key.steer` if a
    /// command on a key was refused before it was parsed.
    pub what: String,
    /// Id of the target job, or of the job that the command made.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<String>,
    /// Target key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub key: Option<String>,
    /// Target schedule.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub schedule: Option<String>,
    /// Target kind.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub kind: Option<String>,
    /// Reason given by the operator.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reason: Option<String>,
    /// Parameters of the command, without payloads.
    #[schema(value_type = Object)]
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parameters: Option<serde_json::Value>,
    /// Outcome of the command.
    pub outcome: AuditOutcome,
    /// `code` of the problem with which the command was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<String>,
}

/// Outcome of an operator's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuditOutcome {
    /// The command took effect.
    Done,
    /// The state already was as requested.
    Unchanged,
    /// The command was refused, without effect.
    Refused,
    /// The entry is damaged: its content is not reliable.
    Damaged,
}
