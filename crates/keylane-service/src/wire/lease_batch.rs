//! Heartbeats and ends of several leases in one request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::number::whole;
use super::object::{list, object};
use super::{ClaimRequest, Lease, Problem, Timestamp};

/// `POST /v1/leases/heartbeat`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatBatch {
    /// Ids of the leases to extend: from 1 to 1000.
    pub leases: Vec<String>,
    /// Progress of attempts, from 0 to 1, by the ids of their leases. It counts for leases in `leases` only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<BTreeMap<String, f64>>,
}

/// Response to heartbeats of several leases.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatResults {
    /// One item per lease, in the order of the request.
    pub items: Vec<HeartbeatResult>,
}

/// Result of the heartbeat of one lease.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatResult {
    /// HTTP status as for a single heartbeat: 200 if the lease was extended.
    pub status: u16,
    /// New end of the lease, within the job's timeout and the kind's maximum duration.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_at: Option<Timestamp>,
    /// Time until then when the response was made, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub expires_in_ms: Option<u64>,
    /// Always `false`. The heartbeat of a lease whose job was killed has the status 409, `lease-lost`.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub cancel: Option<bool>,
    /// Problem for which the lease was not extended.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<Problem>,
}

/// `POST /v1/leases/complete`: ends of leases, and possibly a request for the next ones.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteBatch {
    /// From 1 to 1000 leases with their results. Each counts by itself.
    #[serde(deserialize_with = "list")]
    pub leases: Vec<LeaseEnd>,
    /// Subtasks to lease after these ends. The response then waits for them.
    #[serde(default, deserialize_with = "object", skip_serializing_if = "Option::is_none")]
    pub claim: Option<ClaimRequest>,
}

/// End of a lease: a failure with `error`, a return with `release`, otherwise a success.
#[derive(Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LeaseEnd {
    /// Id of the lease.
    pub id: String,
    /// Result of a success: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// Error message of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Whether a retry of a failure may help; default true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<bool>,
    /// Minimum delay before the retry of a failure, in milliseconds; default: the kind's backoff.
    #[serde(default, deserialize_with = "whole", skip_serializing_if = "Option::is_none")]
    pub after_ms: Option<u64>,
    /// Whether the worker returns the subtask and has not begun it: the attempt does not count, and the
    /// subtask can be leased at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<bool>,
    /// Log for humans: its end is kept, up to the kind's limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<String>,
}

/// Response to ends of several leases.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CompleteResults {
    /// One item per lease, in the order of the request.
    pub items: Vec<CompleteResult>,
    /// Leases for the claim of the request, if it had one; may be empty.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leases: Option<Vec<Lease>>,
    /// Problem for which the claim got no leases, for example because the server stops.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub claim_problem: Option<Problem>,
}

/// Result of the end of one lease.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct CompleteResult {
    /// HTTP status as for a single lease: 204 if the end counts, and is on the disk.
    pub status: u16,
    /// Problem for which the end does not count.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<Problem>,
}
