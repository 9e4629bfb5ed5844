//! Settings of webhooks, and what operators see and do: list, retry and remove deliveries.

use std::sync::{Arc, PoisonError, RwLock};

use super::WebhookSettings;
use super::delivery::{Delivery, DeliveryId, DeliveryRecord, MAX_ATTEMPTS};
use crate::engine::audit::{AuditLog, AuditedRequest};
use crate::engine::clock::Clock;
use crate::engine::engine_state::{EngineState, SharedState};
use crate::engine::executor::Executor;
use crate::engine::persistence::Persistence;
use crate::engine::store_status::read_refused;
use crate::request_error::RequestError;
use crate::store::Store;
use crate::wire::{Page, WebhookState, WebhookView};

/// Maximum number of deliveries that a filtered list reads before it returns a cursor.
const MAX_SCANNED: usize = 5_000;

/// Webhooks of the service.
#[derive(Debug)]
pub(crate) struct Webhooks {
    state: Arc<SharedState>,
    store: Store,
    clock: Arc<Clock>,
    executor: Executor,
    audit: Arc<AuditLog>,
    persistence: Arc<Persistence>,
    /// No code panics while it holds this lock.
    settings: RwLock<Option<WebhookSettings>>,
}

/// What [`Webhooks`] uses.
pub(in crate::engine) struct WebhookDependencies {
    pub(in crate::engine) state: Arc<SharedState>,
    pub(in crate::engine) store: Store,
    pub(in crate::engine) clock: Arc<Clock>,
    pub(in crate::engine) executor: Executor,
    pub(in crate::engine) audit: Arc<AuditLog>,
    pub(in crate::engine) persistence: Arc<Persistence>,
}

impl Webhooks {
    pub(in crate::engine) fn new(
        settings: Option<WebhookSettings>,
        uses: WebhookDependencies,
    ) -> Self {
        let WebhookDependencies { state, store, clock, executor, audit, persistence } = uses;
        state.lock().deliveries.is_enabled = settings.is_some();
        let settings = RwLock::new(settings);
        Webhooks { state, store, clock, executor, audit, persistence, settings }
    }

    /// Replaces the settings. Requests that run keep the earlier ones.
    pub(in crate::engine) fn replace(&self, settings: Option<WebhookSettings>) {
        let is_enabled = settings.is_some();
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = settings;
        let mut engine = self.state.lock();
        engine.deliveries.is_enabled = is_enabled;
        engine.deliveries.changed.notify_one();
    }

    pub(super) fn settings(&self) -> Option<WebhookSettings> {
        self.settings.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns a page of the deliveries, the newest jobs first.
    pub(crate) fn page(
        &self,
        state: Option<WebhookState>,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<WebhookView>, RequestError> {
        let before = cursor.map(|cursor| {
            let why = "must be the `next_cursor` of the previous page".to_owned();
            DeliveryId::parse(cursor).ok_or(RequestError::Invalid(vec![("?cursor".into(), why)]))
        });
        let engine = self.state.lock();
        let (mut items, mut last) = (Vec::new(), None);
        for (id, delivery) in engine.deliveries.before(before.transpose()?).take(MAX_SCANNED) {
            if items.len() == limit {
                break;
            }
            last = Some(id);
            let view = view(id, delivery);
            if state.is_none_or(|state| state == view.state) {
                items.push(view);
            }
        }
        let has_more =
            last.is_some_and(|last| engine.deliveries.before(Some(last)).next().is_some());
        Ok(Page::new(items, last.filter(|_| has_more).map(|last| last.to_string())))
    }

    /// Returns a delivery.
    pub(crate) fn get(&self, id: &str) -> Result<WebhookView, RequestError> {
        let id = parse(id)?;
        let engine = self.state.lock();
        engine.deliveries.get(id).map(|delivery| view(id, delivery)).ok_or_else(|| unknown(id))
    }

    /// Sends a delivery now. One that has failed gets all its attempts again.
    pub(crate) async fn retry(
        &self,
        id: &str,
        act: &AuditedRequest,
    ) -> Result<WebhookView, RequestError> {
        let id = parse(id)?;
        let store = self.store.clone();
        let read = self.executor.blocking_or_panic(move || store.setting(&id.record_name())).await;
        let record = read.map_err(read_refused)?.ok_or_else(|| unknown(id))?;
        let damaged = |_| RequestError::Damaged(format!("webhook {id}; remove it"));
        let mut record: DeliveryRecord = serde_json::from_slice(&record.body).map_err(damaged)?;
        let view = {
            let mut engine = self.persistence.writable_engine()?;
            let now = self.clock.now();
            let steady = self.clock.steady_ms();
            let known = engine.deliveries.get(id).ok_or_else(|| unknown(id))?;
            if engine.deliveries.is_in_flight(id) {
                return Err(RequestError::Conflict(format!("webhook {id} is being sent")));
            }
            record.delivery = Delivery { attempts: 0, next: Some(now), ..known.clone() };
            engine.unwritten.changes.setting(&id.record_name(), Some(record.to_bytes()));
            self.log_in(&mut engine, act);
            let view = view(id, &record.delivery);
            engine.deliveries.take_back(id, record.delivery, steady);
            view
        };
        self.persistence.all_written().await?;
        Ok(view)
    }

    /// Removes a delivery. A request that runs goes on.
    pub(crate) async fn remove(&self, id: &str, act: &AuditedRequest) -> Result<(), RequestError> {
        let id = parse(id)?;
        {
            let mut engine = self.persistence.writable_engine()?;
            engine.deliveries.get(id).ok_or_else(|| unknown(id))?;
            engine.forget_delivery(id);
            self.log_in(&mut engine, act);
        }
        self.persistence.all_written().await
    }

    fn log_in(&self, engine: &mut EngineState, act: &AuditedRequest) {
        self.audit.add(act, &mut engine.unwritten.changes);
        self.audit.committed(act);
    }
}

impl EngineState {
    /// Removes a delivery, and its record with the next batch.
    pub(in crate::engine) fn forget_delivery(&mut self, id: DeliveryId) {
        self.deliveries.remove(id);
        self.unwritten.changes.setting(&id.record_name(), None);
    }
}

fn parse(id: &str) -> Result<DeliveryId, RequestError> {
    let unknown = || RequestError::Unknown { what: format!("webhook `{id}`") };
    DeliveryId::parse(id).ok_or_else(unknown)
}

fn unknown(id: DeliveryId) -> RequestError {
    RequestError::Unknown { what: format!("webhook `{id}`") }
}

fn view(id: DeliveryId, delivery: &Delivery) -> WebhookView {
    WebhookView {
        id: id.to_string(),
        job: id.job.to_string(),
        kind: delivery.kind.clone(),
        event: delivery.event.clone(),
        url: delivery.url.clone(),
        state: match delivery.next {
            Some(_) => WebhookState::Waiting,
            None => WebhookState::Failed,
        },
        attempts: delivery.attempts,
        max_attempts: MAX_ATTEMPTS,
        created_at: delivery.created,
        next_at: delivery.next,
        failed_at: delivery.failed,
        error: delivery.error.clone(),
    }
}
