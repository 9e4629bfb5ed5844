//! Remote workers.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Timestamp;

/// Remote worker: `GET /v1/workers`. Workers that give the same name with the same token are one.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerView {
    /// Name that the worker gives in its requests for leases; absent if it gives none.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub name: Option<String>,
    /// Name of its token; `anyone` on a server without tokens. Absent after a restart of the server,
    /// until the first request of the worker.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token: Option<String>,
    /// Kinds that it asked for last.
    pub kinds: Vec<String>,
    /// Number of its requests that wait for leases.
    pub waiting: u32,
    /// Number of its leases.
    pub leases: u64,
    /// Its oldest leases, at most 20.
    pub running: Vec<WorkerLease>,
    /// Time of its last request, or of the last answer to one that waited. Absent after a restart of the
    /// server, until the first request of the worker.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub last_contact: Option<Timestamp>,
}

/// Lease of a remote worker.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WorkerLease {
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
    /// Start of the attempt.
    pub since: Timestamp,
    /// End of the lease without a heartbeat.
    pub expires_at: Timestamp,
}
