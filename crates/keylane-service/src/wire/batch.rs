use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::{Job, Problem, SubmitJob};

/// Several jobs to be done: `POST /v1/jobs/batch`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubmitBatch {
    /// From 1 to 1000. They are accepted in this order.
    #[schema(value_type = Vec<SubmitJob>, min_items = 1, max_items = 1000)]
    pub jobs: Vec<Box<RawValue>>,
}

/// What became of them.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct Batch {
    /// One for each, in their order.
    pub items: Vec<BatchItem>,
}

/// What became of one of several jobs.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub struct BatchItem {
    /// The status that it would have had by itself: 202 if it was accepted.
    pub status: u16,
    /// The job, if it was.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub job: Option<Box<Job>>,
    /// Why it was not.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub problem: Option<Problem>,
}
