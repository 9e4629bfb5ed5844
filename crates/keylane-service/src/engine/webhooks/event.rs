//! The event that a webhook reports, and its record.

use serde::Serialize;

use super::delivery::{Delivery, DeliveryId, DeliveryRecord};
use crate::engine::engine_state::{ActiveJob, CommitEffect, EngineState};
use crate::engine::query::final_view;
use crate::wire::{Job, JobState, Timestamp};

/// Maximum size of a body in bytes, beyond which it has neither the name nor the labels of the job.
const MAX_BODY_BYTES: usize = 20 * 1024;

/// Maximum length of the job's error in a body, in characters.
const MAX_ERROR: usize = 1000;

/// Body of a request.
#[derive(Debug, Serialize)]
struct WebhookBody {
    #[serde(rename = "type")]
    event: String,
    timestamp: Timestamp,
    data: Job,
}

impl WebhookBody {
    fn new(job: Job, now: Timestamp) -> Self {
        let error = job.error.map(|error| error.chars().take(MAX_ERROR).collect());
        // The result may be large. A receiver asks for it.
        let data = Job { result: None, error, ..job };
        let event = format!("job.{}", data.state.as_str());
        WebhookBody { event, timestamp: now, data }
    }

    fn text(mut self) -> String {
        let text =
            |body: &WebhookBody| serde_json::to_string(body).expect("a job can be written as JSON");
        let whole = text(&self);
        if whole.len() <= MAX_BODY_BYTES {
            return whole;
        }
        self.data.name = None;
        self.data.labels.clear();
        text(&self)
    }
}

impl ActiveJob {
    /// Returns the delivery for the job's end, with its final version. The job has a webhook.
    pub(in crate::engine) fn ended_event(
        &self,
        state: JobState,
        now: Timestamp,
    ) -> (DeliveryId, DeliveryRecord) {
        let id = DeliveryId { job: self.id, version: self.end_version.unwrap_or(self.version) };
        let error = self.error.clone().or_else(|| self.unwritten_error.clone());
        let body = WebhookBody::new(Job { error, ..final_view(self, state, now) }, now);
        let url = self.head.webhook.clone().unwrap_or_default();
        let delivery = Delivery::new(body.event.clone(), self.head.kind.clone(), url, now);
        (id, DeliveryRecord { delivery, body: body.text() })
    }
}

impl EngineState {
    /// Adds a delivery to the next batch, unless too many are kept.
    pub(in crate::engine) fn record_delivery(&mut self, id: DeliveryId, record: DeliveryRecord) {
        if !self.deliveries.reserve() {
            let why = "the job has ended without its webhook: too many wait or have failed";
            tracing::error!(job = %id.job, "{why}");
            return;
        }
        self.unwritten.changes.setting(&id.record_name(), Some(record.to_bytes()));
        let delivery = Box::new(record.delivery);
        self.unwritten.effects.push(CommitEffect::Delivery { id, delivery });
    }
}
