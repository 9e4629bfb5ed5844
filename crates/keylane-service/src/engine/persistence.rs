//! Writes changes to the disk in batches, and publishes them when they are there.

use std::sync::Arc;

use parking_lot::MutexGuard;

use tokio::sync::oneshot;

use super::clock::Clock;
use super::engine_state::{CommitEffect, EngineState, FinalState, SharedState, WriteBatch};
use super::events::EventHub;
use super::job_end_times::{JobEndTimes, JobNumberBlock};
use super::store_status::{StoreHealth, StoreStatus};
use super::traces::Traces;
use crate::request_error::RequestError;
use crate::scheduler::Step;
use crate::store::{CommitReceipt, Store, WriteError};
use crate::wire::{EventKind, JobState, Timestamp};
use crate::{JobNumber, SubtaskId};

/// Converts a refusal for requests that wait for a change that was already applied in memory.
fn to_not_yet_written(refusal: RequestError) -> RequestError {
    match refusal {
        RequestError::StoreFull | RequestError::StoreUnavailable(_) => RequestError::NotYetWritten,
        other => other,
    }
}

/// Reports the refusal to all requests that wait for these effects.
fn report_refused(effects: &mut Vec<CommitEffect>, refusal: &RequestError) {
    for effect in effects.extract_if(.., |effect| matches!(effect, CommitEffect::Reply(_))) {
        if let CommitEffect::Reply(reply) = effect {
            // The client may have disconnected.
            let _ = reply.send(Err(refusal.clone()));
        }
    }
}

/// Returns true if the store refused a change for its content.
pub(super) fn is_logical(error: &WriteError) -> bool {
    match error {
        WriteError::Full | WriteError::Busy | WriteError::Failed { .. } => false,
        WriteError::NoSuchJob { .. }
        | WriteError::NoSuchSubtask { .. }
        | WriteError::Ended { .. }
        | WriteError::NotEnded { .. }
        | WriteError::TooLarge { .. }
        | WriteError::Duplicate { .. }
        | WriteError::OtherVersion { .. } => true,
    }
}

/// Changes on their way to the disk.
#[derive(Debug)]
pub(super) struct PendingWrite(oneshot::Receiver<Result<(), RequestError>>);

impl PendingWrite {
    /// Waits until the changes are on the disk.
    pub(super) async fn done(self) -> Result<(), RequestError> {
        let ended = |_| Err(RequestError::StoreFailed("the writer has ended".into()));
        self.0.await.unwrap_or_else(ended)
    }
}

/// Writer of the engine's changes: hands them to the store in batches, and applies the effects of
/// each batch when it is on the disk.
#[derive(Debug)]
pub(super) struct Persistence {
    pub(super) state: Arc<SharedState>,
    pub(super) store: Store,
    pub(super) status: Arc<StoreStatus>,
    pub(super) clock: Arc<Clock>,
    pub(super) events: Arc<EventHub>,
    pub(super) traces: Arc<Traces>,
    /// End times of finished jobs.
    pub(super) end_times: Arc<JobEndTimes>,
}

impl Persistence {
    /// Submits the next batch to the writer, if there is one, the writer has none, and none was
    /// refused.
    pub(super) fn write_next(self: &Arc<Self>, engine: &mut EngineState) {
        if engine.is_writing || engine.refused.is_some() || engine.unwritten.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut engine.unwritten);
        self.write(engine, batch);
    }

    fn write(self: &Arc<Self>, engine: &mut EngineState, batch: WriteBatch) {
        engine.is_writing = true;
        let WriteBatch { changes, effects, .. } = batch;
        let (this, began) = (Arc::clone(self), self.clock.steady_ms());
        self.store.submit_returning(changes, move |written, changes| {
            let took = this.clock.steady_ms().saturating_sub(began);
            this.written(written, changes, effects, Some(took));
        });
    }

    /// Handles the result of a batch, which took this time in milliseconds if it was written at once. Called on the writer's
    /// thread. New attempts begin after the
    /// last callback of the commit, which wakes the dispatcher.
    pub(super) fn written(
        self: &Arc<Self>,
        written: Result<CommitReceipt, WriteError>,
        changes: crate::store::Changes,
        effects: Vec<CommitEffect>,
        took: Option<u64>,
    ) {
        if let Err(error) = &written
            && is_logical(error)
        {
            tracing::error!(%error, "a batch was refused for one of its changes");
            return self.write_one_by_one(changes.singles(), effects);
        }
        let mut engine = self.state.lock();
        let now = self.clock.now();
        engine.is_writing = false;
        match written {
            Ok(_) => {
                if let Some(took) = took {
                    engine.durations.writes.record(took);
                }
                if self.status.set_health(StoreHealth::Well) {
                    engine.renew_leases(now);
                    engine.released_ms = self.clock.steady_ms();
                }
                self.status.found_room();
                for effect in effects {
                    self.publish(&mut engine, effect, now);
                }
                self.write_next(&mut engine);
            }
            Err(error) => {
                let batch = WriteBatch { changes, effects, ..WriteBatch::default() };
                self.refuse(&mut engine, &error, batch);
            }
        }
    }

    /// Keeps a batch for which the disk has no free space, or that a failed store did not write. It stays
    /// at the front. The ticker retries it, because an immediate retry would fail again.
    pub(super) fn refuse(
        &self,
        engine: &mut EngineState,
        error: &WriteError,
        mut batch: WriteBatch,
    ) {
        engine.is_writing = false;
        self.status.set_health(match error {
            WriteError::Full => StoreHealth::Full,
            WriteError::Busy => StoreHealth::Unavailable,
            error => StoreHealth::Failed(error.to_string()),
        });
        let refusal = self.status.health().refusal().expect("the health was just set");
        let refusal = to_not_yet_written(refusal);
        report_refused(&mut batch.effects, &refusal);
        report_refused(&mut engine.unwritten.effects, &refusal);
        engine.refused = Some(batch);
    }

    /// Locks the engine state for a change that is answered when it is on the disk.
    ///
    /// Returns an error if nothing is written now: then nothing may be changed.
    pub(super) fn writable_engine(&self) -> Result<MutexGuard<'_, EngineState>, RequestError> {
        let engine = self.state.lock();
        match self.status.health().refusal() {
            Some(refusal) => Err(refusal),
            None => Ok(engine),
        }
    }

    /// Waits until all changes so far are on the disk.
    ///
    /// Returns an error if the store has failed or has become full: then they are written later, or
    /// never.
    pub(super) async fn all_written(self: &Arc<Self>) -> Result<(), RequestError> {
        let written = {
            let mut engine = self.state.lock();
            let written = self.await_written(&mut engine)?;
            self.write_next(&mut engine);
            written
        };
        written.done().await
    }

    /// Returns the wait until all changes so far are on the disk, without a start of their write.
    ///
    /// Returns an error as [`all_written`](Self::all_written) does.
    pub(super) fn await_written(
        &self,
        engine: &mut EngineState,
    ) -> Result<PendingWrite, RequestError> {
        // A request after a refusal would wait for the refused batch.
        if let Some(refused) = self.status.health().refusal() {
            return Err(to_not_yet_written(refused));
        }
        let (reply, replied) = oneshot::channel();
        engine.unwritten.effects.push(CommitEffect::Reply(reply));
        Ok(PendingWrite(replied))
    }

    /// Retries the refused batch.
    pub(super) fn retry_refused(self: &Arc<Self>) {
        let mut engine = self.state.lock();
        let may_succeed =
            matches!(*self.status.health(), StoreHealth::Full | StoreHealth::Unavailable);
        if may_succeed && let Some(refused) = engine.refused.take() {
            self.write(&mut engine, refused);
        }
    }

    fn publish(self: &Arc<Self>, engine: &mut EngineState, effect: CommitEffect, now: Timestamp) {
        match effect {
            CommitEffect::Ended { job, step, end, error, result } => {
                self.publish_end(engine, job, step, end, error, result, now);
            }
            CommitEffect::Over { job, state, ended } => {
                self.publish_job_end(engine, job, state, ended)
            }
            CommitEffect::Entered { job } => {
                engine.activate(job, now);
                if let Some(live) = engine.live.get_mut(&job) {
                    live.placed_ms = Some(self.clock.steady_ms());
                }
            }
            CommitEffect::Delivery { id, delivery } => {
                engine.deliveries.add_reserved(id, *delivery, self.clock.steady_ms());
            }
            CommitEffect::Marked { fence } => engine.held_back.push_back(fence),
            CommitEffect::Granted { fence } => engine.granted.push_back(fence),
            CommitEffect::Reserved { boot } => engine.fences.note_reserved(boot),
            // The client may have disconnected.
            CommitEffect::Reply(reply) => _ = reply.send(Ok(())),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one argument per field of an effect")]
    fn publish_end(
        &self,
        engine: &mut EngineState,
        job: JobNumber,
        step: Step,
        end: FinalState,
        error: Option<String>,
        result: Option<Box<serde_json::value::RawValue>>,
        now: Timestamp,
    ) {
        let totals = &mut engine.totals;
        let Some(live) = engine.live.get_mut(&job) else { return };
        if matches!(step, Step::Subtask(_)) {
            end.count(&mut live.recorded);
            match end {
                FinalState::Succeeded => totals.succeeded += 1,
                FinalState::Failed => totals.failed += 1,
                FinalState::Cancelled | FinalState::Skipped => totals.cancelled += 1,
                FinalState::Superseded(_) => totals.superseded += 1,
            }
        }
        if step == Step::FanIn {
            live.result = result;
        }
        if end == FinalState::Failed {
            if live.error.is_none() {
                live.error.clone_from(&error);
            }
            live.touch(&mut engine.versions);
            let view = super::query::brief_view(engine, job);
            self.events.publish(|event| crate::wire::Event {
                job: view.map(Box::new),
                number: match step {
                    Step::Subtask(number) => Some(number),
                    Step::Split | Step::FanIn => None,
                },
                error,
                ..super::events::event(event, EventKind::SubtaskFailed, now)
            });
            return;
        }
        live.touch(&mut engine.versions);
        engine.changed.insert(job);
        if let (FinalState::Superseded(by), Step::Subtask(number)) = (end, step) {
            self.publish_superseded(engine, SubtaskId { job, number }, by, now);
        }
    }

    fn publish_superseded(
        &self,
        engine: &EngineState,
        subtask: SubtaskId,
        by: SubtaskId,
        now: Timestamp,
    ) {
        let view = super::query::brief_view(engine, subtask.job);
        let job = engine.live.get(&by.job).map(|live| live.id.to_string());
        self.events.publish(|id| crate::wire::Event {
            job: view.map(Box::new),
            number: Some(subtask.number),
            superseded_by: job.map(|job| crate::wire::SubtaskRef { job, number: by.number }),
            ..super::events::event(id, EventKind::SubtaskSuperseded, now)
        });
    }

    fn publish_job_end(
        &self,
        engine: &mut EngineState,
        job: JobNumber,
        state: JobState,
        now: Timestamp,
    ) {
        let Some(mut live) = engine.live.remove(&job) else { return };
        engine.order.left(job);
        self.end_times.note(JobNumberBlock::of(job), now.0);
        engine.key_bytes -= live.key_bytes;
        engine.changed.remove(&job);
        engine.holds.forget(job);
        engine.careful.remove(&job);
        live.recorded = live.final_counts();
        let totals = &mut engine.totals;
        match state {
            JobState::Succeeded => totals.jobs_succeeded += 1,
            JobState::Cancelled => totals.jobs_cancelled += 1,
            _ => totals.jobs_failed += 1,
        }
        let view = super::query::final_view(&live, state, now);
        self.traces.job_ended(live.id.0, &view);
        self.events.publish(|id| crate::wire::Event {
            job: Some(Box::new(view)),
            ..super::events::event(id, EventKind::JobEnded, now)
        });
        live.touch(&mut engine.versions);
        engine.note_end_for_others(job, &live, state);
        if let Some(ended) = &live.end_notify {
            ended.notify_waiters();
        }
    }
}
