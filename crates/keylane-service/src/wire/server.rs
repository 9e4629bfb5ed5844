//! Identity and health of the server.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Identity of the server: `GET /version`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// `keylane`.
    pub name: String,
    /// Version of the server.
    pub version: String,
    /// Name of this environment, to tell production from a test.
    pub environment: Option<String>,
    /// Whether the API refuses all changes.
    pub read_only: bool,
}

/// Health of the server: `GET /readyz`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `unavailable`.
    pub status: String,
    /// Results of the checks.
    pub checks: Vec<HealthCheck>,
}

/// Result of one check.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HealthCheck {
    /// Name of the check.
    pub name: String,
    /// Whether the check passed.
    pub ok: bool,
    /// Description of the failure, and the remedy.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
}

/// A kind of job: `GET /v1/kinds`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KindView {
    /// Name of the kind.
    pub name: String,
    /// Type of handler: `command`, `worker`, `http`, `lease` or `function`.
    pub handler: String,
    /// Maximum number of running subtasks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub concurrency: Option<u64>,
    /// Maximum number of subtasks that run with a key at the same time, if they run in no order.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_per_key: Option<u32>,
    /// Maximum number of starts per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_second: Option<f64>,
    /// Maximum number of starts per second with the same key.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_second_per_key: Option<f64>,
    /// Maximum number of attempts per subtask.
    pub attempts: u32,
    /// Timeout of an attempt, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
    /// Whether the kind has a split step.
    pub split: bool,
    /// Whether the kind has a fan-in step.
    pub fan_in: bool,
}
