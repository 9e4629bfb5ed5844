//! Sends the deliveries whose time has come.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::WebhookSettings;
use super::delivery::{DeliveryId, DeliveryRecord};
use super::sender::{SendFailure, WebhookRequest};
use super::webhook_control::Webhooks;
use crate::engine::clock::Clock;
use crate::engine::engine_state::SharedState;
use crate::engine::executor::Executor;
use crate::engine::persistence::Persistence;
use crate::store::{ReadError, Store};

/// Delay after a delivery could not be read, in milliseconds.
const UNREADABLE_MS: u64 = 60_000;

/// Loop that sends deliveries.
#[derive(Debug)]
pub(in crate::engine) struct DeliveryRunner {
    pub(in crate::engine) state: Arc<SharedState>,
    pub(in crate::engine) store: Store,
    pub(in crate::engine) clock: Arc<Clock>,
    pub(in crate::engine) executor: Executor,
    pub(in crate::engine) persistence: Arc<Persistence>,
    pub(in crate::engine) webhooks: Arc<Webhooks>,
    /// Cancelled when the service has stopped.
    pub(in crate::engine) stopped: CancellationToken,
}

impl DeliveryRunner {
    /// Sends deliveries until the service stops. Requests that run then are given up; their deliveries are sent again after
    /// the next start.
    pub(in crate::engine) async fn run(self) {
        let changed = Arc::clone(&self.state.lock().deliveries.changed);
        let mut running = FuturesUnordered::new();
        loop {
            let next = {
                let mut engine = self.state.lock();
                let now = self.clock.steady_ms();
                while let Some(id) = engine.deliveries.take_due(now) {
                    running.push(self.deliver(id));
                }
                engine.deliveries.next_due()
            };
            let is_due = async {
                match next {
                    Some(due) => self.clock.reached_steady(Duration::from_millis(due)).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return,
                Some(()) = running.next() => {}
                () = changed.notified() => {}
                () = is_due => {}
            }
        }
    }

    /// Makes an attempt at a delivery.
    async fn deliver(&self, id: DeliveryId) {
        let store = self.store.clone();
        let read = self.executor.blocking_or_panic(move || store.setting(&id.record_name())).await;
        let record = match read {
            Ok(Some(setting)) => serde_json::from_slice::<DeliveryRecord>(&setting.body).ok(),
            // An operator has removed it.
            Ok(None) => return self.forget(id),
            Err(ReadError::Damaged(_)) => None,
            Err(error) => {
                tracing::error!(delivery = %id, %error, "a webhook could not be read");
                return self.postpone(id);
            }
        };
        match record {
            Some(record) => {
                let sent = self.send(id, &record).await;
                self.record_attempt(id, record, sent);
            }
            None => {
                tracing::error!(delivery = %id, "a webhook is removed, because its record is damaged");
                self.forget(id);
            }
        }
    }

    async fn send(&self, id: DeliveryId, record: &DeliveryRecord) -> Result<(), SendFailure> {
        let Some(WebhookSettings { secrets, sender }) = self.webhooks.settings() else {
            let error = "the service is not configured to send webhooks".to_owned();
            return Err(SendFailure { error, may_pass: true, after: None });
        };
        let (id, timestamp_s) = (id.to_string(), self.clock.now().0 / 1000);
        let signature = secrets.sign(&id, timestamp_s, &record.body);
        let (url, body) = (record.delivery.url.clone(), record.body.clone());
        sender.send(WebhookRequest { url, id, timestamp_s, signature, body }).await
    }

    /// Writes the outcome of an attempt.
    fn record_attempt(
        &self,
        id: DeliveryId,
        mut record: DeliveryRecord,
        sent: Result<(), SendFailure>,
    ) {
        let mut engine = self.state.lock();
        let now = self.clock.now();
        let Err(SendFailure { error, may_pass, after }) = sent else {
            engine.deliveries.counters.delivered += 1;
            engine.forget_delivery(id);
            return self.persistence.write_next(&mut engine);
        };
        if engine.deliveries.get(id).is_none() {
            // An operator has removed it meanwhile.
            return;
        }
        let delay = record.delivery.note_failure(error, may_pass, after, now);
        let (attempt, error) = (record.delivery.attempts, record.delivery.error.as_deref());
        match delay {
            Some(_) => {
                engine.deliveries.counters.retried += 1;
                tracing::info!(delivery = %id, attempt, error, "a webhook was not delivered, and is sent again");
            }
            None => {
                engine.deliveries.counters.failed += 1;
                tracing::warn!(delivery = %id, attempt, error, "a webhook was not delivered");
            }
        }
        engine.unwritten.changes.setting(&id.record_name(), Some(record.to_bytes()));
        let due = self.clock.steady_ms() + delay.unwrap_or(0);
        engine.deliveries.take_back(id, record.delivery, due);
        self.persistence.write_next(&mut engine);
    }

    /// Takes back a delivery that could not be read.
    fn postpone(&self, id: DeliveryId) {
        let mut engine = self.state.lock();
        let due = self.clock.steady_ms() + UNREADABLE_MS;
        if let Some(delivery) = engine.deliveries.get(id).cloned() {
            engine.deliveries.take_back(id, delivery, due);
        }
    }

    fn forget(&self, id: DeliveryId) {
        let mut engine = self.state.lock();
        engine.forget_delivery(id);
        self.persistence.write_next(&mut engine);
    }
}
