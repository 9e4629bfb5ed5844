//! Tenants: their settings, and what they have.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A tenant: `GET /v1/tenants`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct TenantView {
    /// Name of the tenant.
    pub name: String,
    /// Whether it has settings in the configuration.
    pub configured: bool,
    /// Weight of its share of the slots.
    pub weight: u32,
    /// Number of slots that it gets before other tenants get more than their minimum.
    pub min_workers: u64,
    /// Maximum number of its running subtasks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_workers: Option<u64>,
    /// Maximum number of its starts per second.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub per_second: Option<f64>,
    /// Maximum number of its unfinished subtasks.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub max_waiting: Option<u64>,
    /// Number of its unfinished jobs.
    pub jobs: u64,
    /// Number of its running steps.
    pub running: u64,
    /// Number of its unfinished subtasks.
    pub unfinished: u64,
}

/// Tenants that are configured or have unfinished jobs.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Tenants)]
pub(crate) struct TenantList {
    /// All tenants, by name.
    pub(crate) items: Vec<TenantView>,
}
