//! Removal of damaged jobs.

use std::sync::Arc;

use super::audit::AuditedRequest;
use super::control::Control;
use super::query::unknown;
use crate::request_error::RequestError;
use crate::store::{Changes, StoreDamage};
use crate::{JobId, JobNumber};

impl Control {
    /// Removes a damaged job, whatever part of it can be read. Its holds end when the removal is on
    /// the disk.
    pub(super) async fn remove_damaged(
        self: &Arc<Self>,
        id: JobId,
        act: &Arc<AuditedRequest>,
    ) -> Result<(), RequestError> {
        let number = id.number();
        {
            let engine = self.state.lock();
            if engine.live.contains_key(&number) {
                return Err(RequestError::Conflict("the job is not over; cancel it first".into()));
            }
            let known = engine.holds.damaged.get(&number);
            if let Some(damaged) = known
                && let StoreDamage::Pages { why, .. } = &damaged.damage
            {
                return Err(RequestError::Damaged(format!(
                    "pages of the store with rows of job {id} are damaged ({why}), so it cannot be removed; stop the \
                     server and run `keylane store salvage FROM TO`"
                )));
            }
            let is_another = known
                .and_then(|known| known.job.entered.and(known.job.id))
                .is_some_and(|known| known != id);
            if is_another {
                return Err(unknown(id));
            }
        }
        let mut changes = Changes::new();
        changes.remove_damaged(number, self.clock.now().0);
        self.audit.add(act, &mut changes);
        let (reply, replied) = tokio::sync::oneshot::channel();
        let (this, act) = (Arc::clone(self), Arc::clone(act));
        self.store.submit_with(changes, move |written| {
            let answer = written.map(|_| this.removed_damaged(number, &act));
            let _ = reply.send(answer.map_err(|error| this.status.write_refused(error)));
        });
        replied.await.map_err(|_| RequestError::StoreFailed("the writer has ended".into()))?
    }

    /// Ends the holds of a damaged job whose removal is on the disk. Called on the writer's thread.
    fn removed_damaged(&self, job: JobNumber, act: &AuditedRequest) {
        self.audit.committed(act);
        self.status.found_room();
        let now = self.clock.now();
        let mut engine = self.state.lock();
        let engine = &mut *engine;
        if let Some(damaged) = engine.holds.damaged.remove(&job) {
            for key in &damaged.stopped {
                engine.release_key(key, now);
            }
            engine.release_jobs(now);
            engine.note_removed_damaged(job);
        }
        self.wake.notify();
    }
}
