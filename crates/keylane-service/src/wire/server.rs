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
