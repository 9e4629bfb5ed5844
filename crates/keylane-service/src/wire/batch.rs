//! Several jobs in one request, and the result of each.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{Job, Problem, SubmitJob};

/// Jobs to submit: `POST /v1/jobs/batch`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitBatch {
    /// From 1 to 1000 jobs, accepted in this order.
    #[schema(value_type = Vec<SubmitJob>, min_items = 1, max_items = 1000)]
    pub jobs: Vec<Box<RawValue>>,
}

/// Result of a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// One item per job, in the order of the request.
    pub items: Vec<BatchItem>,
}

/// Result of one job of a batch.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchItem {
    /// HTTP status as for a single submission: 202 if the job was accepted.
    pub status: u16,
    /// The job, if it was accepted.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<Box<Job>>,
    /// Problem for which the job was refused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<Problem>,
}
