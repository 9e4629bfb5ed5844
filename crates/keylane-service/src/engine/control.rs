//! Client commands on jobs and keys, each looked up, applied, and answered only after its changes
//! are on the disk.

use std::sync::{Arc, Mutex};

use keylane_storage::ThreadNotify;

use super::audit::{AuditLog, AuditedRequest};
use super::clock::Clock;
use super::engine_state::{EngineState, SharedState};
use super::events::EventHub;
use super::leases::Leases;
use super::persistence::Persistence;
use super::query::Query;
use super::store_status::StoreStatus;
use crate::kind_registry::KindRegistry;
use crate::request_error::RequestError;
use crate::store::{Changes, Store};
use crate::wire::{CancelRequest, Job, JobPatch, KeyView};
use crate::{JobId, Key};

/// Control of jobs and keys by clients.
#[derive(Debug)]
pub(crate) struct Control {
    pub(super) state: Arc<SharedState>,
    pub(super) store: Store,
    pub(super) status: Arc<StoreStatus>,
    pub(super) clock: Arc<Clock>,
    pub(super) events: Arc<EventHub>,
    pub(super) audit: Arc<AuditLog>,
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) query: Arc<Query>,
    pub(super) leases: Arc<Leases>,
    pub(super) persistence: Arc<Persistence>,
    /// Wakes the dispatcher.
    pub(super) wake: Arc<ThreadNotify>,
    /// Held while a server is drained.
    pub(super) draining_node: Mutex<()>,
}

impl Control {
    /// Returns true if a job is active, like `is_live`, but first waits for the acceptance callback
    /// of a job that is already on the disk: until then the job is not in the engine state. Each
    /// further round needs another commit of the job in between, in which it ended and was retried.
    async fn is_in_books(&self, id: JobId) -> Result<bool, RequestError> {
        // A damaged job never enters the engine state and may be unreadable.
        if let Some(refused) = self.query.damaged(id) {
            return Err(refused);
        }
        while !self.query.is_live(id)? {
            if self.query.stored(id)?.status.state.is_final() {
                return Ok(false);
            }
            // Callbacks run in commit order, so this commit completes after the acceptance
            // callback.
            let behind = self.store.submit(Changes::new()).await;
            behind.map_err(|error| self.status.write_refused(error))?;
        }
        Ok(true)
    }

    /// Cancels a job. Leaves a finished job unchanged.
    pub(crate) async fn cancel_job(
        &self,
        id: JobId,
        request: &CancelRequest,
        act: &AuditedRequest,
    ) -> Result<Job, RequestError> {
        if self.is_in_books(id).await? {
            {
                let mut engine = self.persistence.writable_engine()?;
                let now = self.clock.now();
                match self.cancel(&mut engine, id.number(), request.mode, now) {
                    Ok(()) => self.log_in(&mut engine, act),
                    // The job ended in the meantime: the desired state.
                    Err(RequestError::Conflict(_)) => {}
                    Err(refused) => return Err(refused),
                }
                self.persistence.write_next(&mut engine);
            }
            self.wake.notify();
            self.persistence.all_written().await?;
        }
        self.query.job(id)
    }

    /// Pauses or resumes a job.
    pub(crate) async fn pause_job(
        &self,
        id: JobId,
        paused: bool,
        act: &AuditedRequest,
    ) -> Result<Job, RequestError> {
        self.is_in_books(id).await?;
        {
            let mut engine = self.persistence.writable_engine()?;
            let now = self.clock.now();
            self.set_paused(&mut engine, id.number(), paused, now)?;
            self.log_in(&mut engine, act);
            self.persistence.write_next(&mut engine);
        }
        self.wake.notify();
        self.persistence.all_written().await?;
        self.query.job(id)
    }

    /// Changes the name, the labels or the weight of a job.
    pub(crate) async fn patch_job(
        &self,
        id: JobId,
        patch: JobPatch,
        version: Option<u64>,
        act: &AuditedRequest,
    ) -> Result<Job, RequestError> {
        self.is_in_books(id).await?;
        {
            let mut engine = self.persistence.writable_engine()?;
            let now = self.clock.now();
            self.patch(&mut engine, id.number(), patch, version, now)?;
            self.log_in(&mut engine, act);
            self.persistence.write_next(&mut engine);
        }
        self.wake.notify();
        self.persistence.all_written().await?;
        self.query.job(id)
    }

    /// Deletes a finished job and all its data.
    pub(crate) async fn purge_job(
        self: &Arc<Self>,
        id: JobId,
        act: &Arc<AuditedRequest>,
    ) -> Result<(), RequestError> {
        let is_damaged = self.query.damaged(id).is_some()
            || matches!(self.query.stored(id), Err(RequestError::Damaged(_)));
        if is_damaged {
            return self.remove_damaged(id, act).await;
        }
        if self.is_in_books(id).await? {
            return Err(RequestError::Conflict("the job is not over; cancel it first".into()));
        }
        let last = self.query.job(id)?;
        self.claim_removal(id)?;
        let mut changes = Changes::new();
        changes.purge(id.number());
        self.audit.add(act, &mut changes);
        let (reply, replied) = tokio::sync::oneshot::channel();
        let (this, act) = (Arc::clone(self), Arc::clone(act));
        self.store.submit_with(changes, move |written| {
            this.state.lock().dependencies.end_removal(id.number());
            // Answers even if the client has disconnected, so that the callback runs.
            let answer = written
                .map(|_| this.purged(last, &act))
                .map_err(|error| this.status.write_refused(error));
            let _ = reply.send(answer);
        });
        replied.await.map_err(|_| RequestError::StoreFailed("the writer has ended".into()))?
    }

    /// Claims the removal of a finished job, so that no other one begins to wait for it.
    fn claim_removal(&self, id: JobId) -> Result<(), RequestError> {
        let mut engine = self.state.lock();
        let claimed = engine.dependencies.claim_removal(id.number());
        claimed.map_err(|waiting| {
            let name = engine.live.get(&waiting).map(|live| format!("job {}", live.id));
            let name = name.unwrap_or_else(|| "a job that is being submitted".into());
            RequestError::Conflict(format!(
                "{name} waits for this job and needs its result; remove it after the start of the other, or cancel that one"
            ))
        })
    }

    /// Publishes the deletion of a job. Called on the writer's thread, so that followers see it in
    /// commit order.
    fn purged(&self, last: Job, act: &AuditedRequest) {
        self.audit.committed(act);
        self.status.found_room();
        let now = self.clock.now();
        self.events.publish(|event| crate::wire::Event {
            job: Some(Box::new(last)),
            ..super::events::event(event, crate::wire::EventKind::JobPurged, now)
        });
    }

    /// Adds the audit entry of an applied command to its changes, so that both are in one
    /// transaction.
    pub(super) fn log_in(&self, engine: &mut EngineState, act: &AuditedRequest) {
        self.audit.add(act, &mut engine.unwritten.changes);
        self.audit.committed(act);
    }

    /// Applies a command to a key.
    pub(crate) async fn steer_key(
        &self,
        key: &str,
        what: KeyCommand,
        act: &AuditedRequest,
    ) -> Result<Option<KeyView>, RequestError> {
        let key = Key::new(key);
        {
            let mut engine = self.persistence.writable_engine()?;
            let now = self.clock.now();
            match what {
                KeyCommand::Pause => self.set_key_paused(&mut engine, &key, true, now),
                KeyCommand::Resume => self.set_key_paused(&mut engine, &key, false, now),
                KeyCommand::RetryHead => self.retry_head(&mut engine, &key, now)?,
                KeyCommand::SkipHead => self.skip_head(&mut engine, &key, now)?,
            }
            self.log_in(&mut engine, act);
            self.persistence.write_next(&mut engine);
        }
        self.wake.notify();
        self.persistence.all_written().await?;
        Ok(self.query.key(&key.0))
    }
}

/// Command on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyCommand {
    Pause,
    Resume,
    RetryHead,
    SkipHead,
}

#[cfg(test)]
#[path = "control_tests.rs"]
mod tests;
