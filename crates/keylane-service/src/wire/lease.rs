use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::Timestamp;
use super::number::whole;

/// `POST /v1/leases`: a worker outside of the server asks for work.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimRequest {
    /// What it can do: kinds that are for remote workers.
    pub kinds: Vec<String>,
    /// How many subtasks it takes at most; 1 unless said.
    #[serde(default, deserialize_with = "whole")]
    pub max: Option<u32>,
    /// How long it waits until there is one; not at all unless said, at most a minute.
    #[serde(default, deserialize_with = "whole")]
    pub wait_ms: Option<u64>,
    /// What people call it.
    #[serde(default)]
    pub worker: Option<String>,
}

/// What it gets; perhaps nothing.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Claim {
    /// One for each subtask.
    pub leases: Vec<Lease>,
}

/// A subtask that is a remote worker's until the lease ends.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Lease {
    /// What the lease is called. It is of one attempt only.
    pub id: String,
    /// The job of the subtask,
    pub job: String,
    /// its kind,
    pub kind: String,
    /// and its number in the job.
    pub number: u32,
    /// Its keys.
    pub keys: Vec<String>,
    /// Which attempt it is, from 1.
    pub attempt: u32,
    /// Higher than that of any earlier attempt, over restarts and restored backups, and below 2^53: other systems can refuse
    /// what comes with a lower one.
    pub fence: u64,
    /// What is to be done.
    #[schema(value_type = serde_json::Value)]
    pub payload: Box<RawValue>,
    /// Where its job is in its client's trace: what a span of this work has as its parent (W3C Trace Context).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub traceparent: Option<String>,
    /// What tracing systems have added to that.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub tracestate: Option<String>,
    /// When the lease ends, unless a heartbeat comes before. A restart of the server puts that off.
    pub expires_at: Timestamp,
}

/// `POST /v1/leases/{id}/heartbeat`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatRequest {
    /// How much of it is done, from 0 to 1.
    #[serde(default)]
    pub progress: Option<f64>,
}

/// What a worker learns by a heartbeat.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct HeartbeatResponse {
    /// When the lease ends now: no later than the job's timeout and the kind's maximum duration allow.
    pub expires_at: Timestamp,
    /// Whether the worker should stop: the job was cancelled.
    pub cancel: bool,
}

/// `POST /v1/leases/{id}/complete`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CompleteRequest {
    /// What came of it: any JSON.
    #[serde(default)]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// What it has to say for people: the end of it is kept, as its kind allows.
    #[serde(default)]
    pub log: Option<String>,
}

/// `POST /v1/leases/{id}/fail`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailRequest {
    /// What went wrong.
    pub error: String,
    /// Whether trying again could help; yes unless said.
    #[serde(default)]
    pub retry: Option<bool>,
    /// Not before so long; by the kind's backoff unless said.
    #[serde(default, deserialize_with = "whole")]
    pub after_ms: Option<u64>,
    /// What it has to say for people, besides what went wrong: the end of it is kept, as its kind allows.
    #[serde(default)]
    pub log: Option<String>,
}
