//! Ends of subtasks and jobs: what they change in the state of the engine, and what is written.
//!
//! Each end enters the next batch, and clients see it when that is on the disk.

use serde_json::value::RawValue;

use super::engine_state::{ActiveJob, CommitEffect, EngineState, FinalState, RunningAttempt};
use super::scheduler_job::states;
use crate::scheduler::{AcceptResult, EndResult, JobOutcome, Step, SubtaskFate, SupersededSubtask};
use crate::store::{JobStatus, OutcomeKind, SubtaskOutcome as Written};
use crate::wire::{JobState, OnError, Timestamp};
use crate::{JobNumber, SubtaskId, TaskKeys};

impl EngineState {
    /// Records the final outcome of a step without a run of its own.
    pub(super) fn record_outcome(
        &mut self,
        job: JobNumber,
        step: Step,
        attempt: u32,
        end: FinalState,
        error: &str,
        now: Timestamp,
    ) {
        let kind = match end {
            FinalState::Succeeded => OutcomeKind::Succeeded,
            FinalState::Failed => OutcomeKind::Failed,
            FinalState::Cancelled => OutcomeKind::Cancelled,
            FinalState::Skipped => OutcomeKind::Skipped,
            FinalState::Superseded(_) => OutcomeKind::Superseded,
        };
        let number = self.live.get(&job).map_or(0, |live| live.plan.number(step));
        let outcome = Written {
            number,
            attempt,
            kind,
            started_ms: now.0,
            ended_ms: now.0,
            result: error.as_bytes().to_vec(),
        };
        self.unwritten.changes.ended(job, outcome);
        if let Step::Subtask(number) = step {
            self.order.ended(SubtaskId { job, number });
        }
        let error = Some(error.to_owned());
        self.note_end(job, step, end, error.as_deref());
        self.unwritten.effects.push(CommitEffect::Ended { job, step, end, error, result: None });
    }

    /// Records the final outcome of a step for the next batch.
    pub(super) fn record_end(
        &mut self,
        running: &RunningAttempt,
        fate: SubtaskFate,
        error: Option<String>,
        result: Option<Box<RawValue>>,
        now: Timestamp,
    ) {
        let (kind, end) = match fate {
            SubtaskFate::Succeeded => (OutcomeKind::Succeeded, FinalState::Succeeded),
            SubtaskFate::Failed => (OutcomeKind::Failed, FinalState::Failed),
            _ => (OutcomeKind::Cancelled, FinalState::Cancelled),
        };
        let bytes = match (&error, &result) {
            (Some(error), _) => error.clone().into_bytes(),
            (None, Some(result)) => result.get().as_bytes().to_vec(),
            (None, None) => Vec::new(),
        };
        let outcome = Written {
            number: running.number,
            attempt: running.attempt,
            kind,
            started_ms: running.since.0,
            ended_ms: now.0,
            result: bytes,
        };
        self.unwritten.changes.ended(running.job, outcome);
        self.note_end(running.job, running.step, end, error.as_deref());
        // Only the job's own result is shown from memory.
        let result = result.filter(|_| running.step == Step::FanIn);
        let effect =
            CommitEffect::Ended { job: running.job, step: running.step, end, error, result };
        self.unwritten.effects.push(effect);
    }

    /// Counts the end of a step, before it is on the disk.
    fn note_end(&mut self, job: JobNumber, step: Step, end: FinalState, error: Option<&str>) {
        let Some(live) = self.live.get_mut(&job) else { return };
        if matches!(step, Step::Subtask(_)) {
            end.count(&mut live.ended);
            self.unfinished.remove(live.head.tenant.as_deref(), 1);
        }
        if end == FinalState::Failed && live.head.webhook.is_some() {
            live.unwritten_error = live.unwritten_error.take().or_else(|| error.map(str::to_owned));
        }
    }

    /// Applies the consequences of an end: dropped subtasks, the end of the job.
    pub(super) fn apply_consequences(&mut self, job: JobNumber, ended: &EndResult, now: Timestamp) {
        // Dropped subtasks need no outcomes: at the end of a job every subtask without an outcome
        // counts as cancelled, and the failure that made the job fail is on the disk.
        if let Some(outcome) = ended.over {
            self.record_job_end(job, outcome, now);
        }
    }

    /// Ends a job: its last status is written after all its outcomes.
    pub(super) fn record_job_end(&mut self, job: JobNumber, outcome: JobOutcome, now: Timestamp) {
        let Some(live) = self.live.get_mut(&job) else { return };
        let version = live.close(&mut self.versions);
        let counts = live.final_counts();
        // Subtasks dropped with the job have no end of their own.
        let dropped = counts.cancelled.saturating_sub(live.ended.cancelled);
        self.unfinished.remove(live.head.tenant.as_deref(), dropped.into());
        let (stored, state) = states(outcome);
        let live = &self.live[&job];
        let delivery = live.head.webhook.is_some().then(|| live.ended_event(state, now));
        let status = JobStatus {
            ended_ms: Some(now.0),
            version: Some(version),
            counts,
            ..JobStatus { state: stored, ..live.status() }
        };
        self.unwritten.changes.status(job, status);
        self.unwritten.effects.push(CommitEffect::Over { job, state, ended: now });
        if let Some((id, record)) = delivery {
            self.record_delivery(id, record);
        }
    }

    /// Applies the immediate consequences of accepting a job: subtasks without an attempt left,
    /// replaced subtasks, a job without any subtask.
    pub(super) fn apply_accepted(
        &mut self,
        job: JobNumber,
        accepted: &AcceptResult,
        now: Timestamp,
    ) {
        for step in &accepted.failed {
            let attempts = self.live.get(&job).map_or(0, |live| live.head.attempts);
            let error = "the server ended during its last attempt";
            self.record_outcome(job, *step, attempts, FinalState::Failed, error, now);
        }
        for superseded in &accepted.superseded {
            self.record_superseded(superseded, now);
        }
        if let Some(outcome) = accepted.over {
            self.record_job_end(job, outcome, now);
        }
    }

    /// Records the end of a subtask that a later one has replaced. Its result names that one.
    fn record_superseded(&mut self, superseded: &SupersededSubtask, now: Timestamp) {
        let SupersededSubtask { subtask: SubtaskId { job, number }, by, over } = *superseded;
        let id = self.live.get(&by.job).map_or_else(String::new, |live| live.id.to_string());
        let (step, end) = (Step::Subtask(number), FinalState::Superseded(by));
        self.record_outcome(job, step, 0, end, &format!("{id}/{}", by.number), now);
        self.changed.insert(job);
        if let Some(outcome) = over {
            self.record_job_end(job, outcome, now);
        }
    }

    /// Drops the waiting subtasks of a job: it was cancelled, or must fail at its first failure.
    pub(super) fn drop_rest(&mut self, job: JobNumber, is_failing: bool, now: Timestamp) {
        let dropped = match is_failing {
            true => self.scheduler.fail_job(job, now.0),
            false => self.scheduler.cancel_job(job, now.0),
        };
        // A large job is over when its last slice has left the order: see `enter_slice`.
        if let Some(outcome) = dropped.and_then(|dropped| dropped.over) {
            self.record_job_end(job, outcome, now);
        }
    }

    /// Counts a start that came before its turn with a key.
    pub(super) fn check_order(&mut self, subtask: SubtaskId, keys: &TaskKeys) {
        let live = &self.live;
        let is_held =
            |open: SubtaskId| live.get(&open.job).is_some_and(ActiveJob::holds_its_subtasks);
        if let Some(violation) = self.order.begun(subtask, keys, is_held) {
            self.totals.order_violations += 1;
            tracing::error!(?violation, ?keys, ?subtask, "begun before its turn");
        }
    }
}

impl ActiveJob {
    /// Returns false if the job was cancelled or is about to fail, so that its waiting subtasks
    /// were dropped.
    pub(super) fn holds_its_subtasks(&self) -> bool {
        let fails =
            self.head.on_error == OnError::FailFast && self.ended.failed + self.ended.skipped > 0;
        !self.cancelling && !self.is_closing && !fails
    }

    /// Returns the API state of an unfinished job.
    pub(super) fn state(&self) -> JobState {
        match (self.cancelling, self.paused) {
            (true, _) => JobState::Cancelling,
            (false, true) => JobState::Paused,
            (false, false) if self.begins_at.is_some() => JobState::Scheduled,
            (false, false) if self.started.is_some() => JobState::Running,
            (false, false) => JobState::Queued,
        }
    }
}
