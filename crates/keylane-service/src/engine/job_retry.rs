//! Retries of the failed subtasks of finished jobs.

use std::collections::VecDeque;
use std::sync::Arc;

use keylane_storage::ThreadNotify;
use tokio_util::sync::CancellationToken;

use super::audit::{AuditLog, AuditedRequest};
use super::capacity::{CapacityReservation, CapacityReservations};
use super::clock::Clock;
use super::engine_state::{ActiveJob, SharedState};
use super::executor::Executor;
use super::failures::LastErrors;
use super::persistence::Persistence;
use super::query::Query;
use super::retry_plan::{MAX_PART_SUBTASKS, RetryPart, RetryPlan, RetrySelection};
use super::scheduler_job::{ended_counts, new_job};
use super::store_status::{StoreStatus, read_refused};
use super::timer::sleep;
use crate::job_definition::JobDefinition;
use crate::kind_registry::KindRegistry;
use crate::request_error::RequestError;
use crate::scheduler::{self, EndedCounts, PackedSubtasks};
use crate::store::{
    Changes, JobState as Stored, JobStatus, OutcomeKind, Store, StoredJob, WriteError,
};
use crate::wire::{Job, Timestamp};
use crate::{JobId, JobNumber};

/// Retries of finished jobs.
#[derive(Debug)]
pub(crate) struct JobRetries {
    pub(super) state: Arc<SharedState>,
    pub(super) store: Store,
    pub(super) status: Arc<StoreStatus>,
    pub(super) clock: Arc<Clock>,
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) executor: Executor,
    pub(super) incoming: Arc<CapacityReservations>,
    pub(super) audit: Arc<AuditLog>,
    pub(super) query: Arc<Query>,
    pub(super) persistence: Arc<Persistence>,
    /// Wakes the dispatcher.
    pub(super) wake: Arc<ThreadNotify>,
    /// Cancelled when the service has stopped.
    pub(super) stopped: CancellationToken,
}

impl JobRetries {
    /// Retries the failed subtasks of a finished job. The job continues behind all jobs accepted
    /// meanwhile.
    pub(crate) async fn retry(
        self: &Arc<Self>,
        id: JobId,
        selection: RetrySelection,
        act: &AuditedRequest,
    ) -> Result<Job, RequestError> {
        if self.query.is_live(id)? {
            let why = "the job is not over; wait for its end, or cancel it first";
            return Err(RequestError::Conflict(why.into()));
        }
        // The subtasks to retry are read before they are written, so no other request may retry the
        // job in between.
        let claim = self.claim_retry(id)?;
        let this = Arc::clone(self);
        let again = self.executor.blocking(move || this.again(id, &selection)).await;
        let again = again.map_err(|panic| RequestError::StoreFailed(panic.to_string()))??;
        let mut again = again;
        let room = CapacityReservation::of(
            &self.incoming,
            again.head.tenant.as_deref(),
            again.count,
            again.key_bytes,
        )?;
        self.settle_cancelled(id, &mut again).await?;
        let now = self.clock.now();
        let mut changes = Changes::new();
        let status = JobStatus { started_ms: again.started, ..JobStatus::of(Stored::Waiting) };
        let first = again.parts.pop_front().unwrap_or_default();
        changes.reopen(id.number(), first.reopened, now.0, status);
        // A crash before the other parts leaves their subtasks failed, with their new payloads.
        again.edited.drain(..).for_each(|chunk| changes.edit(chunk));
        if again.head.renew(now) {
            let bytes = serde_json::to_vec(&again.head).expect("a head can be written as JSON");
            changes.head(id.number(), bytes);
        }
        self.audit.add(act, &mut changes);
        let (reply, replied) = tokio::sync::oneshot::channel();
        let this = Arc::clone(self);
        self.store.submit_with(changes, move |written| {
            let answer = written
                .map(|_| this.take_up_again(id, again, first.subtasks))
                .map_err(|error| this.status.write_refused(error));
            // Both are released even if the client has disconnected. The engine state now counts
            // the subtasks.
            drop((room, claim));
            let _ = reply.send(answer);
        });
        let rest = replied
            .await
            .map_err(|_| RequestError::StoreFailed("the writer has ended".into()))??;
        self.audit.committed(act);
        if let Some(rest) = rest {
            rest.await.map_err(|_| RequestError::StoreFailed("the service has ended".into()))?;
        }
        self.query.job(id)
    }

    /// Writes explicit `cancelled` outcomes for subtasks that were cancelled with their job and
    /// stay cancelled, in transactions of some thousands. The job is over meanwhile, and these
    /// outcomes add nothing to a finished job: a crash in between is harmless.
    async fn settle_cancelled(&self, id: JobId, again: &mut RetryPlan) -> Result<(), RequestError> {
        let dropped = std::mem::take(&mut again.dropped);
        for some in dropped.chunks(MAX_PART_SUBTASKS) {
            let mut changes = Changes::new();
            changes.settle(id.number(), again.cancelled(some));
            let written = self.store.submit(changes).await;
            written.map_err(|error| self.status.write_refused(error))?;
        }
        Ok(())
    }

    fn claim_retry(&self, id: JobId) -> Result<RetryClaim, RequestError> {
        let mut engine = self.state.lock();
        if engine.live.contains_key(&id.number()) || !engine.retried.insert(id.number()) {
            return Err(RequestError::Conflict(
                "another retry of the job is in progress; wait for its end".into(),
            ));
        }
        Ok(RetryClaim { state: Arc::clone(&self.state), job: id.number() })
    }

    /// Returns the subtasks and steps of a finished job to retry.
    fn again(&self, id: JobId, selection: &RetrySelection) -> Result<RetryPlan, RequestError> {
        let stored = self.query.stored(id)?;
        let head: JobDefinition = serde_json::from_slice(&stored.head)
            .map_err(|error| RequestError::StoreFailed(format!("the job's head: {error}")))?;
        let kind = self.kinds.number(&head.kind);
        let kind = kind.ok_or_else(|| {
            RequestError::Conflict(format!(
                "kind `{}` is no longer configured; add it to the configuration first",
                head.kind
            ))
        })?;
        let mut again = RetryPlan::new(&stored, head, kind);
        self.find_again(&stored, selection, &mut again)?;
        again.check_numbers(selection)?;
        if again.is_empty() {
            return Err(RequestError::Conflict(
                "no subtask of the job qualifies for this retry".into(),
            ));
        }
        Ok(again)
    }

    fn find_again(
        &self,
        stored: &StoredJob,
        selection: &RetrySelection,
        again: &mut RetryPlan,
    ) -> Result<(), RequestError> {
        for chunk in self.store.chunks(stored.number, 0..stored.total) {
            let chunk = chunk.map_err(read_refused)?;
            let outcomes = self.store.outcomes_of(stored.number, chunk.numbers());
            let outcomes = outcomes.map_err(read_refused)?.into_iter();
            let kinds = outcomes.map(|outcome| outcome.map(|outcome| outcome.kind));
            let kinds = kinds.map(|kind| kind.filter(|kind| *kind != OutcomeKind::Reopened));
            again.look_at_chunk(&chunk, kinds, selection)?;
        }
        Ok(())
    }

    /// Activates a finished job whose new state is on the disk with the first part of its retry.
    /// Called on the writer's thread. Further parts of a large job follow, by the returned task.
    ///
    /// # Protocol of a retry in parts
    ///
    /// 1. The transaction of the first part gives the job its place in the order. Its callback adds
    ///    a *fed* entry to the entry queue, so that everything accepted later enters behind all
    ///    parts (`scheduler/entries.rs`).
    /// 2. Each further part is one transaction that removes the outcomes of its subtasks. The part
    ///    enters when the transaction is on the disk, so no subtask runs while its old outcome
    ///    still counts.
    /// 3. The task that adds the parts is started in the callback. It closes the feed in every case
    ///    except that of a failed store, in which nothing starts any more. It waits while the disk
    ///    is full. A job that is cancelled meanwhile still gets its parts, and is over after the
    ///    last.
    ///
    /// After a crash in between, the job continues at its place with the parts on the disk. The
    /// other subtasks keep their outcomes and can be retried when the job is over. The client has
    /// had no success answer.
    fn take_up_again(
        self: &Arc<Self>,
        id: JobId,
        again: RetryPlan,
        first: PackedSubtasks,
    ) -> Option<tokio::task::JoinHandle<()>> {
        let mut guard = self.state.lock();
        let now = self.clock.now();
        let engine = &mut *guard;
        let number = id.number();
        let RetryPlan { head, kind, created, started, plan, split, parts, ended, .. } = again;
        let new = scheduler::NewJob {
            split: split.then_some(0),
            ended: ended_counts(&ended),
            has_barriers: head.barriers || again.has_barriers,
            ..new_job(number, kind, &head, first)
        };
        let live = ActiveJob {
            id,
            begins_at: None,
            placed_ms: None,
            is_due: false,
            is_entering: false,
            plan,
            created,
            started: started.map(Timestamp),
            pace: None,
            key_bytes: again.key_bytes,
            ended,
            recorded: ended,
            error: None,
            unwritten_error: None,
            failures: LastErrors::default(),
            result: None,
            paused: false,
            cancelling: false,
            is_closing: false,
            version: engine.versions.take(),
            end_version: None,
            notify: None,
            end_notify: None,
            head: Arc::new(head),
        };
        let tenant = live.head.tenant.clone();
        engine.live.insert(number, live);
        engine.watch_expiry(number);
        if again.has_latest {
            engine.careful.insert(number);
        }
        engine.unfinished.add(tenant.as_deref(), again.count);
        engine.key_bytes += again.key_bytes;
        engine.order.entered(number);
        let accepted = match parts.is_empty() {
            true => engine.scheduler.accept_packed(new, now.0),
            false => engine.scheduler.accept_fed(new, again.count, again.keys, now.0),
        };
        engine.hold_if_behind(number, again.key_bytes > 0, now);
        engine.hold_if_kind_is_missing(number, &self.kinds, now);
        engine.apply_accepted(number, &accepted, now);
        engine.changed.insert(number);
        self.persistence.write_next(engine);
        drop(guard);
        self.wake.notify();
        let is_fed = !parts.is_empty();
        is_fed.then(|| self.executor.spawn(Arc::clone(self).bring_parts(number, parts)))
    }

    /// Adds the further parts of a retry.
    async fn bring_parts(self: Arc<Self>, job: JobNumber, parts: VecDeque<RetryPart>) {
        for RetryPart { reopened, subtasks } in parts {
            let mut subtasks = Some(subtasks);
            loop {
                let mut changes = Changes::new();
                changes.reopen_more(job, reopened.iter().copied(), self.clock.now().0);
                match self.store.submit(changes).await {
                    Ok(_) => break,
                    // Like a refused batch, the part is written when the disk has free space.
                    Err(WriteError::Full | WriteError::Busy) => {
                        tokio::select! {
                            biased;
                            () = sleep(FULL_RETRY_INTERVAL) => {}
                            () = self.stopped.cancelled() => return,
                        }
                    }
                    Err(error) => {
                        self.status.write_refused(error);
                        return;
                    }
                }
            }
            let now = self.clock.now();
            let mut engine = self.state.lock();
            let subtasks = subtasks.take().expect("the loop ends after the write");
            if let Some(accepted) = engine.scheduler.feed(job, subtasks, now.0) {
                engine.apply_accepted(job, &accepted, now);
            }
            drop(engine);
            self.wake.notify();
        }
        let now = self.clock.now();
        let mut engine = self.state.lock();
        if let Some(outcome) = engine.scheduler.end_feed(job, EndedCounts::default(), now.0) {
            engine.record_job_end(job, outcome, now);
            self.persistence.write_next(&mut engine);
        }
        drop(engine);
        self.wake.notify();
    }
}

/// Interval between attempts to write a part while the disk is full.
const FULL_RETRY_INTERVAL: std::time::Duration = std::time::Duration::from_millis(250);

/// Exclusive right to retry a job, released on drop.
#[derive(Debug)]
struct RetryClaim {
    state: Arc<SharedState>,
    job: JobNumber,
}

impl Drop for RetryClaim {
    fn drop(&mut self) {
        self.state.lock().retried.remove(&self.job);
    }
}
