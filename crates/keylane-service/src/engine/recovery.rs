//! Recovery of stored jobs when the service starts.

use std::collections::HashMap;
use std::sync::Arc;

use super::clock::Clock;
use super::engine_state::{ActiveJob, EngineState, SharedState};
use super::failures::LastErrors;
use super::held_jobs::HoldCandidate;
use super::leases::{Leases, SurvivingLease};
use super::persistence::Persistence;
use super::scheduler_job::{ended_counts, new_job, new_subtask, set_kinds, set_tenants};
use super::step_numbers::StepNumbers;
use super::store_status::{StoreHealth, StoreStatus};
use super::versions::VersionCounter;
use super::webhooks::{DeliveryId, DeliveryRecord};
use crate::job_definition::JobDefinition;
use crate::kind::KindExecutor;
use crate::kind_override::KindOverride;
use crate::kind_registry::KindRegistry;
use crate::scheduler::{NewJob, RestoredState, Step};
use crate::store::{
    AttemptStage, JobState as Stored, LiveSetting, OutcomeCounts, OutcomeKind, ReadError,
    RecoveredJob, RecoveredJobs, Store, StoreDamage,
};
use crate::tenant::{TenantRegistry, Tenants};
use crate::wire::{OnError, Timestamp};
use crate::{JobId, JobNumber, SubtaskId, SubtaskNumber, TaskKeys};

/// Recovery of the unfinished jobs of a store.
#[derive(Debug)]
pub(super) struct Recovery {
    pub(super) state: Arc<SharedState>,
    pub(super) store: Store,
    pub(super) status: Arc<StoreStatus>,
    pub(super) clock: Arc<Clock>,
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) tenants: Arc<TenantRegistry>,
    pub(super) leases: Arc<Leases>,
    pub(super) persistence: Arc<Persistence>,
}

impl Recovery {
    /// Resumes all unfinished jobs of the store.
    pub(super) fn recover(&self, recovered: &mut RecoveredJobs) -> Result<(), super::StartError> {
        let mut engine = self.state.lock();
        let now = self.clock.now();
        let was_clean = recovered.was_clean();
        self.take_settings(&mut engine, now)?;
        set_kinds(&self.kinds, &mut engine, now);
        set_tenants(&Tenants::default(), &self.tenants.all(), &mut engine, now);
        for (key, record) in recovered.keys() {
            engine.scheduler.pause_key(&key.0, now.0);
            engine.paused_keys.insert(key.clone(), Timestamp(record.since_ms));
        }
        let mut all = Vec::new();
        loop {
            match recovered.next_job() {
                Ok(None) => break,
                Ok(Some(job)) => {
                    if !was_clean {
                        engine.careful.insert(job.job.number);
                    }
                    all.push(self.resume(&mut engine, &job, now)?);
                }
                Err(ReadError::Damaged(damage)) => {
                    let Some(job) = damage.job() else {
                        return Err(ReadError::Damaged(damage).into());
                    };
                    let job = recovered.look_at_damaged(job)?;
                    engine.stop_for_damaged(job, damage, now);
                }
                Err(error) => return Err(error.into()),
            }
        }
        recovered.taken_over();
        for id in engine.register_recovered() {
            let has_succeeded = self.has_succeeded(id)?;
            engine.note_stored_result(id, has_succeeded);
        }
        engine.hold_behind_damaged(&all, now);
        if self.store.opened_full() {
            // No attempt begins before the fences of this start are reserved on the disk.
            self.status.set_health(StoreHealth::Full);
            engine.refused = Some(std::mem::take(&mut engine.unwritten));
        }
        self.persistence.write_next(&mut engine);
        Ok(())
    }

    /// Returns whether a job that has ended succeeded. One that is missing or damaged did not.
    fn has_succeeded(&self, id: JobId) -> Result<bool, ReadError> {
        match self.store.job(id.number()) {
            Ok(stored) => Ok(stored
                .is_some_and(|stored| stored.id == id && stored.status.state == Stored::Succeeded)),
            Err(ReadError::Damaged(damage)) => {
                tracing::error!(job = %id, %damage, "the result of a job that another one waits for is damaged");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    /// Reads what operators have changed of the kinds, and the webhooks that are not delivered. A kind whose record is damaged
    /// is paused, because it may have been.
    fn take_settings(&self, engine: &mut EngineState, now: Timestamp) -> Result<(), ReadError> {
        for setting in self.store.settings()? {
            if let Ok(LiveSetting { name, body }) = &setting
                && let Some(id) = DeliveryId::of_record(name)
            {
                self.take_delivery(engine, id, body, now);
                continue;
            }
            let (name, changed) = match setting {
                Ok(LiveSetting { name, body }) => (name, serde_json::from_slice(&body).ok()),
                Err(StoreDamage::Setting { name }) if DeliveryId::is_record(&name) => {
                    tracing::error!(record = name, "a webhook is damaged, and is not sent");
                    continue;
                }
                Err(StoreDamage::Setting { name }) => (name, None),
                Err(damage) => return Err(ReadError::Damaged(damage)),
            };
            let kind = KindOverride::kind_of(&name).unwrap_or(&name);
            if changed.is_none() {
                tracing::error!(kind, "the changes of a kind are damaged; it is paused");
            }
            self.kinds.change(kind, changed.unwrap_or_else(|| KindOverride::damaged(now)));
        }
        Ok(())
    }

    fn take_delivery(&self, engine: &mut EngineState, id: DeliveryId, body: &[u8], now: Timestamp) {
        match serde_json::from_slice(body) {
            Ok(DeliveryRecord { delivery, .. }) => {
                engine.deliveries.add_recovered(id, delivery, now.0, self.clock.steady_ms());
            }
            Err(error) => {
                tracing::error!(delivery = %id, %error, "a webhook cannot be read, and is not sent");
            }
        }
    }

    /// Resumes a job of an earlier process.
    fn resume(
        &self,
        engine: &mut EngineState,
        recovered: &RecoveredJob,
        now: Timestamp,
    ) -> Result<HoldCandidate, super::StartError> {
        let job = &recovered.job;
        let number = job.number;
        let broken = |why: String| super::StartError::Job { id: job.id, why };
        let head: JobDefinition = serde_json::from_slice(&job.head)
            .map_err(|error| broken(format!("its head cannot be read: {error}")))?;
        let kind = self.kinds.number(&head.kind);
        let plan = StepNumbers::new(&head, job.total);
        let mut waiting = UnfinishedSteps::of(recovered, plan)?;
        waiting.mark_barriers(head.barriers);
        waiting.subtasks.iter_mut().for_each(|(_, keys, _)| keys.limit = head.limit());
        let ended = self.ended_of(recovered, plan)?;
        let versions = &mut engine.versions;
        let live = unfinished_job(recovered, head, plan, &waiting, ended.counts, versions);
        let ended_before = ended_counts(&live.ended);
        let is_failing = live.head.on_error == OnError::FailFast && ended_before.failed > 0;
        let is_leased = kind
            .is_some_and(|kind| matches!(self.kinds.get(kind).work, KindExecutor::Lease { .. }));
        let (stages, allowed) = (&waiting.stages, live.head.attempts.max(1));
        let keys_and_attempts = waiting.subtasks.iter().map(|(number, keys, tried)| {
            // An attempt that goes on is counted when it is restored.
            let goes_on =
                matches!(stages.get(number), Some(AttemptStage::Leased { .. })) && is_leased;
            let made = if goes_on { (*tried).min(allowed).saturating_sub(1) } else { *tried };
            new_subtask(*number, keys, made)
        });
        let new = NewJob {
            paused: live.paused,
            start_at: live.begins_at.map(|at| live.head.due_ms().unwrap_or(at.0)),
            split: waiting.split.filter(|_| plan.is_unsplit()),
            fan_in: live.head.fan_in.then_some(waiting.fan_in.unwrap_or(0)),
            ended: ended_before,
            ..new_job(number, self.kinds.reserve(&live.head.kind), &live.head, keys_and_attempts)
        };
        let (is_cancelling, has_failed_step) = (live.cancelling, ended.has_failed_step);
        let is_expired = live.head.is_expired;
        let has_keys = waiting.subtasks.iter().any(|(_, keys, _)| !keys.is_empty());
        if waiting.subtasks.iter().any(|(_, keys, _)| keys.is_latest) {
            engine.careful.insert(number);
        }
        engine.key_bytes += live.key_bytes;
        let tenant = live.head.tenant.clone();
        engine.live.insert(number, live);
        engine.watch_expiry(number);
        engine.unfinished.add(tenant.as_deref(), waiting.subtasks.len() as u64);
        engine.order.entered(number);
        let accepted = engine.scheduler.accept(new, now.0);
        engine.apply_accepted(number, &accepted, now);
        // All subtasks enter before running ones are restored, because those are at the heads of
        // their lanes.
        while let Some(done) = engine.scheduler.work_off(now.0) {
            engine.apply_accepted(done.job, &done.accepted, now);
        }
        engine.hold_if_kind_is_missing(number, &self.kinds, now);
        self.restore(engine, number, kind, waiting, now);
        // A decision before the end of the process stays in force.
        if is_cancelling || is_failing || has_failed_step {
            engine.drop_rest(number, !is_cancelling, now);
        } else if is_expired {
            engine.end_expired(number, now);
        }
        Ok(HoldCandidate { job: number, entered: job.entered, has_keys })
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
            if let (AttemptStage::BackingOff { since_ms, wait_ms, reason }, Some(_)) = (stage, kind)
            {
                Self::restore_backoff(engine, job, step, (since_ms, wait_ms), &reason, now);
            }
        }
        for (subtask, keys, attempt) in waiting.subtasks {
            let stage = waiting.stages.remove(&subtask);
            // It has begun, so nothing behind it with one of its keys may begin before its end.
            if attempt > 0 || stage.is_some() {
                engine.order.restored(SubtaskId { job, number: subtask }, &keys);
            }
            match stage {
                None | Some(AttemptStage::Started) => {}
                // A job without its kind is held, and its subtasks wait for that.
                Some(AttemptStage::BackingOff { .. }) if kind.is_none() => {}
                Some(AttemptStage::BackingOff { since_ms, wait_ms, reason }) => {
                    let step = Step::Subtask(subtask);
                    Self::restore_backoff(engine, job, step, (since_ms, wait_ms), &reason, now);
                }
                Some(AttemptStage::Stopped { reason, .. }) => {
                    engine.scheduler.restore(job, subtask, RestoredState::Stopped, now.0);
                    if let Some(live) = engine.live.get_mut(&job) {
                        live.failures.note(Step::Subtask(subtask), &reason);
                    }
                }
                Some(AttemptStage::Leased { fence, since_ms, worker }) => {
                    let (since, worker) = (Timestamp(since_ms), worker.map(String::from));
                    let survivor = SurvivingLease { subtask, attempt, fence, since, worker };
                    let is_kept = kind.is_some_and(|kind| {
                        self.leases.keep(engine, job, kind, keys, survivor, now)
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
    ) -> Result<EndedSteps, super::StartError> {
        let mut ended = EndedSteps { counts: job.counts(), has_failed_step: false };
        for step in plan.steps() {
            let number = plan.number(step);
            let outcome = self.store.outcomes_of(job.job.number, number..number + 1)?;
            let outcome = outcome.into_iter().flatten().next();
            let Some(kind) = outcome.map(|outcome| outcome.kind) else { continue };
            let count = match kind {
                OutcomeKind::Succeeded => &mut ended.counts.succeeded,
                OutcomeKind::Failed => &mut ended.counts.failed,
                OutcomeKind::Skipped => &mut ended.counts.skipped,
                OutcomeKind::Superseded => &mut ended.counts.superseded,
                OutcomeKind::Cancelled => &mut ended.counts.cancelled,
                OutcomeKind::Reopened => continue,
            };
            *count -= 1;
            ended.has_failed_step |= kind != OutcomeKind::Succeeded;
        }
        Ok(ended)
    }
}

/// Returns the state of a job of an earlier process.
fn unfinished_job(
    recovered: &RecoveredJob,
    head: JobDefinition,
    plan: StepNumbers,
    waiting: &UnfinishedSteps,
    ended: OutcomeCounts,
    versions: &mut VersionCounter,
) -> ActiveJob {
    let job = &recovered.job;
    // Earlier versions kept the start time of a job that had begun.
    let has_begun = ended.ended() > 0 || waiting.was_tried();
    ActiveJob {
        id: job.id,
        plan,
        created: Timestamp(job.created_ms),
        started: job.status.started_ms.map(Timestamp),
        pace: None,
        key_bytes: waiting.key_bytes(),
        ended,
        recorded: ended,
        error: None,
        unwritten_error: None,
        failures: LastErrors::default(),
        result: None,
        paused: job.status.state == Stored::Paused,
        cancelling: job.status.state == Stored::Cancelling,
        begins_at: job.status.start_at_ms.filter(|_| !has_begun).map(Timestamp),
        placed_ms: None,
        is_due: false,
        is_entering: false,
        is_closing: false,
        version: versions.take(),
        end_version: None,
        notify: None,
        end_notify: None,
        head: Arc::new(head),
    }
}

struct EndedSteps {
    counts: OutcomeCounts,
    /// The split or the fan-in failed permanently, and the job with it.
    has_failed_step: bool,
}

/// Unfinished subtasks of a job, with the number of attempts made.
#[derive(Debug, Default)]
struct UnfinishedSteps {
    split: Option<u32>,
    fan_in: Option<u32>,
    subtasks: Vec<(SubtaskNumber, TaskKeys, u32)>,
    /// Stored stages of those that are more than just started.
    stages: HashMap<SubtaskNumber, AttemptStage>,
    /// Stored stages of the split or the fan-in.
    step_stages: Vec<(Step, AttemptStage)>,
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
                let mut keys: TaskKeys = one.subtask.keys().collect();
                // One that has started replaces none, and is not replaced.
                keys.is_latest &= one.attempts == 0;
                waiting.subtasks.push((number, keys, one.attempts));
                if *one.stage != AttemptStage::Started {
                    waiting.stages.insert(number, one.stage.clone());
                }
            }
        })?;
        Ok(waiting)
    }

    /// Marks the subtasks that are beside barriers of their job. `some` is whether it has some,
    /// which may have ended.
    fn mark_barriers(&mut self, some: bool) {
        if some || self.subtasks.iter().any(|(_, keys, _)| keys.is_barrier) {
            for (_, keys, _) in &mut self.subtasks {
                keys.is_beside_barriers = !keys.is_barrier;
            }
        }
    }

    fn key_bytes(&self) -> u64 {
        self.subtasks.iter().flat_map(|(_, keys, _)| keys.all()).map(|key| key.0.len() as u64).sum()
    }

    /// Returns true if an attempt was made before.
    fn was_tried(&self) -> bool {
        let steps = [self.split, self.fan_in].into_iter().flatten();
        let subtasks = self.subtasks.iter().map(|(_, _, tried)| *tried);
        steps.chain(subtasks).any(|tried| tried > 0)
    }
}

#[cfg(test)]
#[path = "begin_tests.rs"]
mod tests;
