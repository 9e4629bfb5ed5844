//! Leases: requests and responses between the server and remote workers.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Timestamp;
use super::number::whole;

/// Request of a remote worker for subtasks: `POST /v1/leases`.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// Kinds that the worker can handle; each must be for remote workers.
    pub kinds: Vec<String>,
    /// Maximum number of subtasks; default 1.
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub max: Option<u32>,
    /// Time to wait for a subtask, in milliseconds; default 0, maximum one minute.
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Name of the worker for humans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Response to a request for subtasks; may be empty.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Claim {
    /// One lease per subtask.
    pub leases: Vec<Lease>,
}

/// Exclusive right of a remote worker to a subtask until the lease ends.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// Id of the lease, which belongs to one attempt.
    pub id: String,
    /// Id of the job.
    pub job: String,
    /// Kind of the job.
    pub kind: String,
    /// Number of the subtask in the job.
    pub number: u32,
    /// Its keys.
    pub keys: Vec<String>,
    /// Its keys that other subtasks may share.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub shared_keys: Vec<String>,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Fencing token: higher than that of any earlier attempt, across restarts and restored
    /// backups, and below 2^53. Other systems can refuse a lower one.
    pub fence: u64,
    /// Input of the subtask.
    #[schema(value_type = serde_json::Value)]
    pub payload: Box<RawValue>,
    /// `traceparent` of the job: the parent of the worker's spans (W3C Trace Context).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
    /// `tracestate` of the job.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracestate: Option<String>,
    /// End of the lease without a heartbeat. A restart of the server extends it.
    pub expires_at: Timestamp,
    /// Time until then when the response was made, in milliseconds: for workers whose clocks differ from the server's.
    #[serde(default)]
    pub expires_in_ms: u64,
    /// Timeout of the attempt, in milliseconds, if its job or its kind has one. Heartbeats do not extend the lease beyond it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
}

/// `POST /v1/leases/{id}/heartbeat`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// Progress of the attempt, from 0 to 1.
    #[serde(default)]
    pub progress: Option<f64>,
}

/// Response to a heartbeat.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatResponse {
    /// New end of the lease, within the job's timeout and the kind's maximum duration.
    pub expires_at: Timestamp,
    /// Time until then when the response was made, in milliseconds.
    #[serde(default)]
    pub expires_in_ms: u64,
    /// Always `false`. The heartbeat of a lease whose job was killed has the status 409, `lease-lost`.
    pub cancel: bool,
}

/// `POST /v1/leases/{id}/complete`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    /// Result: any JSON.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Log for humans: its end is kept, up to the kind's limit.
    #[serde(default)]
    pub log: Option<String>,
}

/// `POST /v1/leases/{id}/fail`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailRequest {
    /// Error message.
    pub error: String,
    /// Whether a retry may help; default true.
    #[serde(default)]
    pub retry: Option<bool>,
    /// Minimum delay before the retry, in milliseconds; default: the kind's backoff.
    #[serde(default, deserialize_with = "whole")]
    pub after_ms: Option<u64>,
    /// Log for humans, in addition to the error: its end is kept, up to the kind's limit.
    #[serde(default)]
    pub log: Option<String>,
}
