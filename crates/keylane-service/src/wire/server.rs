use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What this server is: `GET /version`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Version {
    /// `keylane`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// What people call this one, to tell production from a test.
    pub environment: Option<String>,
    /// Whether it accepts no changes over the API.
    pub read_only: bool,
}

/// How the server is: `GET /readyz`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Health {
    /// `ok`, or `unavailable`.
    pub status: String,
    /// What was looked at.
    pub checks: Vec<HealthCheck>,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct HealthCheck {
    /// What.
    pub name: String,
    /// Whether it is well.
    pub ok: bool,
    /// What is wrong, and what can be done.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub detail: Option<String>,
}

/// A kind of job: `GET /v1/kinds`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KindView {
    /// What it is called.
    pub name: String,
    /// What handles it: `command`, `worker`, `http`, `lease` or `function`.
    pub handler: String,
    /// How many of its subtasks run at once at most.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub concurrency: Option<u64>,
    /// How many of its subtasks begin in a second at most.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_second: Option<f64>,
    /// How often a subtask is tried.
    pub attempts: u32,
    /// How long an attempt may take.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub timeout_ms: Option<u64>,
    /// Whether its jobs are split by a step of its own.
    pub split: bool,
    /// Whether its jobs have a step over the results.
    pub fan_in: bool,
}
