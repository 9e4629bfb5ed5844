//! Webhooks that are not delivered.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Timestamp;

/// State of a webhook that is not delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookState {
    /// It is sent, or waits for its next attempt.
    Waiting,
    /// Its last attempt failed, or its receiver wants no more of it.
    Failed,
}

/// A webhook that is not delivered: `GET /v1/webhooks`.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct WebhookView {
    /// Id of the webhook, which its receiver gets as `webhook-id`.
    pub id: String,
    /// Id of the job.
    pub job: String,
    /// Kind of the job.
    pub kind: String,
    /// Type of the event: `job.succeeded`, `job.failed` or `job.cancelled`.
    pub event: String,
    /// Address of the receiver.
    pub url: String,
    /// State of the webhook.
    pub state: WebhookState,
    /// Number of failed attempts.
    pub attempts: u32,
    /// Maximum number of attempts.
    pub max_attempts: u32,
    /// Time of the job's end.
    pub created_at: Timestamp,
    /// Time of the next attempt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_at: Option<Timestamp>,
    /// Time of the last failed attempt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed_at: Option<Timestamp>,
    /// Error of the last failed attempt.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub error: Option<String>,
}
