//! Recovery of stored jobs when the service starts, and activation of delayed jobs at their start
//! time.

use std::collections::HashMap;
use std::sync::Arc;

use super::Core;
use super::engine_state::{ActiveJob, CommitEffect, EngineState, WriteBatch, first_version};
use super::failures::Failures;
use super::grant::Survivor;
use super::holds::Entered;
use super::plan::StepNumbers;
use crate::head::Head;
use crate::kind::{Entry, Kind, Work};
use crate::schedule::{
    self, Accepted, EndedCounts, KindId, KindLimits, NewJob, NewSubtask, OnError, OnFail, Outcome,
    Restored, Step,
};
use crate::store::{Counts, JobState as Stored, OutcomeKind, RecoveredJob, Stage};
use crate::wire::{EventKind, Job, JobState, OnErrorChoice, OnFailChoice, Timestamp};
use crate::{JobNumber, Key, SubtaskId, SubtaskNumber};

/// Maximum number of delayed jobs that get a place in the order in one batch. Each of them rewrites
/// a row.
const MAX_ENTERING: usize = 512;

/// Returns the limits of a kind. A kind of remote workers runs at most `wanted` subtasks.
pub(super) fn limits_of(kind: &Kind, wanted: Option<u32>) -> KindLimits {
    let concurrency = kind.concurrency.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    let concurrency = match (concurrency, wanted) {
        (Some(most), Some(wanted)) => Some(most.min(wanted)),
        (most, wanted) => most.or(wanted),
    };
    // The split and fan-in steps of a kind for remote workers run here.
    let subtasks_only = wanted.is_some();
    KindLimits { concurrency, rate: kind.rate.map(rate_of), subtasks_only }
}

/// Converts a rate to tokens per interval: whole numbers, exact to a thousandth.
fn rate_of(rate: crate::kind::Rate) -> schedule::Rate {
    let per_second = if rate.per_second.is_finite() { rate.per_second.max(0.001) } else { 1e6 };
    let (tokens, period_ms) = match per_second {
        // Tokens per thousand seconds.
        few if few < 1000.0 => ((few * 1000.0).round(), 1_000_000),
        many => (many.min(1e9).round(), 1000),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 10^9")]
    let tokens = tokens as u32;
    schedule::Rate { tokens, period_ms, burst: rate.burst.max(1) }
}

pub(super) fn new_subtask(
    number: u32,
    keys: &[Key],
    attempts_made: u32,
) -> NewSubtask<impl Iterator<Item = &[u8]>> {
    NewSubtask { number, keys: keys.iter().map(|key| &*key.0), attempts_made }
}

/// Returns the scheduler's description of a job, with the subtasks given.
pub(super) fn new_job<S>(number: JobNumber, kind: u32, head: &Head, subtasks: S) -> NewJob<S> {
    NewJob {
        kind: KindId(kind),
        weight: head.weight,
        on_error: match head.on_error {
            OnErrorChoice::FinishAll => OnError::FinishAll,
            OnErrorChoice::FailFast => OnError::FailFast,
        },
        on_fail: match head.on_fail {
            OnFailChoice::Continue => OnFail::Continue,
            OnFailChoice::StopKey => OnFail::StopKey,
        },
        attempts_allowed: head.attempts,
        start_at: head.run_at.map(|at| at.0),
        split: head.split.then_some(0),
        fan_in: head.fan_in.then_some(0),
        ..NewJob::new(number, subtasks)
    }
}

/// Converts stored counts for the scheduler, which counts a skipped subtask as failed: also after a
/// restart.
pub(super) fn ended_counts(counts: &Counts) -> EndedCounts {
    EndedCounts {
        succeeded: counts.succeeded.into(),
        failed: u64::from(counts.failed) + u64::from(counts.skipped),
        cancelled: counts.cancelled.into(),
    }
}

/// Returns the states of an outcome in the store and in the API.
pub(super) fn states(outcome: Outcome) -> (Stored, JobState) {
    match outcome {
        Outcome::Succeeded => (Stored::Succeeded, JobState::Succeeded),
        Outcome::Failed => (Stored::Failed, JobState::Failed),
        Outcome::Cancelled => (Stored::Cancelled, JobState::Cancelled),
    }
}

impl Core {
    /// Sets the limits of all kinds. Nothing starts of a kind that was removed.
    pub(super) fn set_kinds(&self, engine: &mut EngineState, now: Timestamp) {
        for Entry { number, kind, is_there, .. } in self.kinds.all() {
            let is_leased = matches!(kind.work, Work::Lease { .. });
            let wanted = is_leased.then(|| engine.claimers.wanted(number));
            let limits = match is_there {
                true => limits_of(&kind, wanted),
                false => KindLimits { concurrency: Some(0), ..KindLimits::default() },
            };
            engine.scheduler.set_kind(KindId(number), limits, now.0);
        }
    }

    /// Replaces the kinds while jobs run: running attempts keep their kind, and later starts use
    /// the new one. Returns the replaced kinds.
    pub(super) fn replace_kinds(&self, kinds: Vec<(String, Kind)>) -> Vec<Arc<Kind>> {
        // Under the lock of the engine state, so that no start sees a kind with the limits of
        // another one.
        let mut engine = self.engine();
        let now = self.clock.now();
        for entry in self.kinds.all() {
            if !kinds.iter().any(|(name, _)| **name == *entry.name) {
                self.kinds.remove(entry.number);
            }
        }
        let replaced = kinds.into_iter().filter_map(|(name, kind)| self.kinds.add(&name, kind));
        let replaced = replaced.collect();
        self.set_kinds(&mut engine, now);
        replaced
    }

    /// Resumes a job of an earlier process.
    pub(super) fn resume(
        self: &Arc<Self>,
        engine: &mut EngineState,
        recovered: &RecoveredJob,
        now: Timestamp,
    ) -> Result<Entered, super::StartError> {
        let job = &recovered.job;
        let number = job.number;
        let broken = |why: String| super::StartError::Job { id: job.id, why };
        let head: Head = serde_json::from_slice(&job.head)
            .map_err(|error| broken(format!("its head cannot be read: {error}")))?;
        let kind = self.kinds.number(&head.kind);
        let plan = StepNumbers::new(&head, job.total);
        let waiting = UnfinishedSteps::of(recovered, plan)?;
        let ended = self.ended_of(recovered, plan)?;
        // Earlier versions kept the start time of a job that had begun.
        let has_begun = ended.counts.ended() > 0 || waiting.was_tried();
        let begins_at = job.status.start_at_ms.filter(|_| !has_begun).map(Timestamp);
        let live = ActiveJob {
            id: job.id,
            plan,
            created: Timestamp(job.created_ms),
            started: job.status.started_ms.map(Timestamp),
            pace: None,
            key_bytes: waiting.key_bytes(),
            ended: ended.counts,
            recorded: ended.counts,
            error: None,
            failures: Failures::default(),
            result: None,
            paused: job.status.state == Stored::Paused,
            cancelling: job.status.state == Stored::Cancelling,
            begins_at,
            is_entering: false,
            is_closing: false,
            version: first_version(now),
            notify: None,
            head: Arc::new(head),
        };
        let ended_before = ended_counts(&live.ended);
        let is_failing = live.head.on_error == OnErrorChoice::FailFast && ended_before.failed > 0;
        let is_leased =
            kind.is_some_and(|kind| matches!(self.kinds.get(kind).work, Work::Lease { .. }));
        let (stages, allowed) = (&waiting.stages, live.head.attempts.max(1));
        let keys_and_attempts = waiting.subtasks.iter().map(|(number, keys, tried)| {
            // An attempt that goes on is counted when it is restored.
            let goes_on = matches!(stages.get(number), Some(Stage::Leased { .. })) && is_leased;
            let made = if goes_on { (*tried).min(allowed).saturating_sub(1) } else { *tried };
            new_subtask(*number, keys, made)
        });
        let new = NewJob {
            paused: live.paused,
            start_at: live.begins_at.map(|at| at.0),
            split: waiting.split.filter(|_| plan.is_unsplit()),
            fan_in: live.head.fan_in.then_some(waiting.fan_in.unwrap_or(0)),
            ended: ended_before,
            // A held job starts nothing, so its kind is not looked up.
            ..new_job(number, kind.unwrap_or(u32::MAX), &live.head, keys_and_attempts)
        };
        let (is_cancelling, has_failed_step) = (live.cancelling, ended.has_failed_step);
        let missing_kind = kind.is_none().then(|| live.head.kind.clone());
        let has_keys = waiting.subtasks.iter().any(|(_, keys, _)| !keys.is_empty());
        engine.key_bytes += live.key_bytes;
        engine.live.insert(number, live);
        engine.unfinished += waiting.subtasks.len() as u64;
        engine.order.entered(number);
        let accepted = engine.scheduler.accept(new, now.0);
        self.note_accepted(engine, number, &accepted, now);
        // All subtasks enter before running ones are restored, because those are at the heads of
        // their lanes.
        while let Some(done) = engine.scheduler.work_off(now.0) {
            self.note_accepted(engine, done.job, &done.accepted, now);
        }
        if let Some(kind) = missing_kind.filter(|_| engine.live.contains_key(&number)) {
            Self::hold_without_kind(engine, number, &kind, now);
        }
        self.restore(engine, number, kind, waiting, now);
        // A decision before the end of the process stays in force.
        if is_cancelling || is_failing || has_failed_step {
            self.drop_rest(engine, number, !is_cancelling, now);
        }
        Ok(Entered { job: number, entered: job.entered, has_keys })
    }

    /// Resumes the attempts of a job that was just recovered.
    fn restore(
        &self,
        engine: &mut EngineState,
        job: JobNumber,
        kind: Option<u32>,
        mut waiting: UnfinishedSteps,
        now: Timestamp,
    ) {
        for (step, stage) in std::mem::take(&mut waiting.step_stages) {
            if let (Stage::BackingOff { since_ms, wait_ms, reason }, Some(_)) = (stage, kind) {
                Self::restore_backoff(engine, job, step, (since_ms, wait_ms), &reason, now);
            }
        }
        for (subtask, keys, attempt) in waiting.subtasks {
            let stage = waiting.stages.remove(&subtask);
            if let Some(Stage::BackingOff { .. } | Stage::Stopped { .. }) = stage {
                engine.order.restored(SubtaskId { job, number: subtask }, &keys);
            }
            match stage {
                None | Some(Stage::Started) => {}
                // A job without its kind is held, and its subtasks wait for that.
                Some(Stage::BackingOff { .. }) if kind.is_none() => {}
                Some(Stage::BackingOff { since_ms, wait_ms, reason }) => {
                    let step = Step::Subtask(subtask);
                    Self::restore_backoff(engine, job, step, (since_ms, wait_ms), &reason, now);
                }
                Some(Stage::Stopped { reason, .. }) => {
                    engine.scheduler.restore(job, subtask, Restored::Stopped, now.0);
                    if let Some(live) = engine.live.get_mut(&job) {
                        live.failures.note(Step::Subtask(subtask), &reason);
                    }
                }
                Some(Stage::Leased { fence, since_ms, worker }) => {
                    let (since, worker) = (Timestamp(since_ms), worker.map(String::from));
                    let survivor = Survivor { subtask, attempt, fence, since, worker };
                    let is_kept = kind.is_some_and(|kind| {
                        self.keep_lease(engine, job, kind, keys, survivor, now)
                    });
                    if !is_kept {
                        tracing::warn!(
                            fence,
                            "a lease was not kept, and its subtask is tried again"
                        );
                    }
                }
            }
        }
    }

    /// Restores a backoff: the subtask waits for the rest of its time.
    fn restore_backoff(
        engine: &mut EngineState,
        job: JobNumber,
        step: Step,
        (since_ms, wait_ms): (u64, u64),
        reason: &str,
        now: Timestamp,
    ) {
        // The clock may have been set back meanwhile.
        let until = since_ms.min(now.0).saturating_add(wait_ms);
        if until <= now.0 || !engine.scheduler.restore_backoff(job, step, until, now.0) {
            return;
        }
        if let Some(live) = engine.live.get_mut(&job).filter(|_| !reason.is_empty()) {
            live.failures.note(step, reason);
        }
    }

    /// Counts how a job's subtasks have ended so far; its split and fan-in are counted separately.
    fn ended_of(
        &self,
        job: &RecoveredJob,
        plan: StepNumbers,
    ) -> Result<EndedSoFar, super::StartError> {
        let mut ended = EndedSoFar { counts: job.counts(), has_failed_step: false };
        for step in plan.steps() {
            let number = plan.number(step);
            let outcome = self.store.outcomes_of(job.job.number, number..number + 1)?;
            let outcome = outcome.into_iter().flatten().next();
            let Some(kind) = outcome.map(|outcome| outcome.kind) else { continue };
            let count = match kind {
                OutcomeKind::Succeeded => &mut ended.counts.succeeded,
                OutcomeKind::Failed => &mut ended.counts.failed,
                OutcomeKind::Skipped => &mut ended.counts.skipped,
                OutcomeKind::Cancelled => &mut ended.counts.cancelled,
                OutcomeKind::Reopened => continue,
            };
            *count -= 1;
            ended.has_failed_step |= kind != OutcomeKind::Succeeded;
        }
        Ok(ended)
    }

    /// Applies the immediate consequences of accepting a job: subtasks without an attempt left, a
    /// job without any subtask.
    pub(super) fn note_accepted(
        &self,
        engine: &mut EngineState,
        job: JobNumber,
        accepted: &Accepted,
        now: Timestamp,
    ) {
        for step in &accepted.failed {
            let attempts = engine.live.get(&job).map_or(0, |live| live.head.attempts);
            let error = "the server ended during its last attempt";
            self.record_outcome(
                engine,
                job,
                *step,
                attempts,
                super::engine_state::FinalState::Failed,
                error,
                now,
            );
        }
        if let Some(outcome) = accepted.over {
            self.record_job_end(engine, job, outcome, now);
        }
    }

    /// Activates delayed jobs whose start time has passed: each begins when its place in the order
    /// is on the disk. At most one batch of them per call. The end of a batch wakes the dispatcher,
    /// which handles the others.
    pub(super) fn note_due(engine: &mut EngineState, now: Timestamp) {
        engine.due.extend(engine.scheduler.handle_timeout(now.0));
        while engine.unwritten.entering < MAX_ENTERING
            && let Some(job) = engine.due.pop_front()
        {
            // The job may have been cancelled meanwhile, and even retried.
            let is_due = |live: &&mut ActiveJob| live.begins_at.is_some() && !live.is_closing;
            let Some(live) = engine.live.get_mut(&job).filter(is_due) else { continue };
            live.is_entering = true;
            let WriteBatch { changes, effects, entering } = &mut engine.unwritten;
            changes.enter(job, live.status());
            effects.push(CommitEffect::Entered { job });
            *entering += 1;
        }
    }

    /// Begins a delayed job, unless it was cancelled meanwhile.
    pub(super) fn begin(&self, engine: &mut EngineState, job: JobNumber, now: Timestamp) {
        engine.order.entered(job);
        let Some(accepted) = engine.scheduler.begin(job, now.0) else { return };
        if let Some(live) = engine.live.get_mut(&job) {
            (live.begins_at, live.is_entering) = (None, false);
            live.touch(now);
        }
        engine.changed.insert(job);
        self.note_accepted(engine, job, &accepted, now);
    }

    /// Publishes a new job.
    pub(super) fn announce(&self, job: Job, now: Timestamp) {
        self.events.publish(|id| crate::wire::Event {
            job: Some(Box::new(job)),
            ..super::events::event(id, EventKind::JobAccepted, now)
        });
    }
}

struct EndedSoFar {
    counts: Counts,
    /// The split or the fan-in failed permanently, and the job with it.
    has_failed_step: bool,
}

/// Unfinished subtasks of a job, with the number of attempts made.
#[derive(Debug, Default)]
struct UnfinishedSteps {
    split: Option<u32>,
    fan_in: Option<u32>,
    subtasks: Vec<(SubtaskNumber, Vec<Key>, u32)>,
    /// Stored stages of those that are more than just started.
    stages: HashMap<SubtaskNumber, Stage>,
    /// Stored stages of the split or the fan-in.
    step_stages: Vec<(Step, Stage)>,
}

impl UnfinishedSteps {
    fn of(job: &RecoveredJob, plan: StepNumbers) -> Result<Self, super::StartError> {
        let mut waiting = UnfinishedSteps::default();
        job.for_each_waiting(|one| match plan.step(one.subtask.number()) {
            step @ (Step::Split | Step::FanIn) => {
                let made = match step {
                    Step::Split => &mut waiting.split,
                    _ => &mut waiting.fan_in,
                };
                *made = Some(one.attempts);
                waiting.step_stages.push((step, one.stage.clone()));
            }
            Step::Subtask(number) => {
                let keys = one.subtask.keys().map(Key::new).collect();
                waiting.subtasks.push((number, keys, one.attempts));
                if *one.stage != Stage::Started {
                    waiting.stages.insert(number, one.stage.clone());
                }
            }
        })?;
        Ok(waiting)
    }

    fn key_bytes(&self) -> u64 {
        self.subtasks.iter().flat_map(|(_, keys, _)| keys).map(|key| key.0.len() as u64).sum()
    }

    /// Returns true if an attempt was made before.
    fn was_tried(&self) -> bool {
        let steps = [self.split, self.fan_in].into_iter().flatten();
        let subtasks = self.subtasks.iter().map(|(_, _, tried)| *tried);
        steps.chain(subtasks).any(|tried| tried > 0)
    }
}
