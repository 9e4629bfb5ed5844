//! Applies the ends of attempts to the engine state.

use std::sync::Arc;
use std::time::Duration;

use keylane_storage::ThreadNotify;

use super::clock::Clock;
use super::engine_state::{EngineState, RunningAttempt, SharedState};
use super::events::EventHub;
use super::logs::note_log;
use super::persistence::Persistence;
use super::random::JitterSource;
use super::scheduler_job::admit_leases;
use super::step_numbers::shown;
use super::timeline::TimelineRecorder;
use super::traces::Traces;
use crate::SubtaskId;
use crate::handle::{AttemptFailure, AttemptResult};
use crate::kind_registry::KindRegistry;
use crate::scheduler::{RunEnd, Step, SubtaskFate};
use crate::store::{AttemptStage, LatestAttempt};
use crate::wire::{EventKind, Slice, Timestamp};

/// Maximum pause before the next attempt that a handler may request, by `Retry-After` or
/// `after_ms`, because the key is blocked meanwhile. A longer request is cut to this.
const MAX_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Ends of attempts: each frees its slot and its keys, and writes its outcome.
#[derive(Debug)]
pub(super) struct AttemptEnds {
    pub(super) state: Arc<SharedState>,
    pub(super) clock: Arc<Clock>,
    pub(super) kinds: Arc<KindRegistry>,
    /// Jitter of backoffs.
    pub(super) random: JitterSource,
    pub(super) events: Arc<EventHub>,
    pub(super) timeline: Arc<TimelineRecorder>,
    pub(super) traces: Arc<Traces>,
    pub(super) persistence: Arc<Persistence>,
    /// Wakes the dispatcher.
    pub(super) wake: Arc<ThreadNotify>,
}

impl AttemptEnds {
    /// Applies the end of a run. Returns false if the run had already ended.
    pub(super) fn finished(self: &Arc<Self>, fence: u64, answer: AttemptResult) -> bool {
        let mut engine = self.state.lock();
        let now = self.clock.now();
        if !self.end_answered(&mut engine, fence, answer, now) {
            return false;
        }
        self.persistence.write_next(&mut engine);
        drop(engine);
        self.wake.notify();
        true
    }

    /// Applies the end of a run to the engine state. Returns false if the run had already ended.
    pub(super) fn end_answered(
        &self,
        engine: &mut EngineState,
        fence: u64,
        answer: AttemptResult,
        now: Timestamp,
    ) -> bool {
        let Some(running) = engine.running.remove(&fence) else { return false };
        let end = match &answer {
            Ok(_) => RunEnd::Succeeded,
            Err(failure) => RunEnd::Failed { retry_at: self.retry_at(&running, failure, now) },
        };
        self.end_with(engine, running, fence, end, answer, now);
        true
    }

    /// Applies an end of a run, which is no longer among the running ones, to the engine state.
    pub(super) fn end_with(
        &self,
        engine: &mut EngineState,
        running: RunningAttempt,
        fence: u64,
        end: RunEnd,
        answer: AttemptResult,
        now: Timestamp,
    ) {
        engine.slots.give_back(running.slot);
        if let Some(held) = &running.lease {
            held.promised_to.into_iter().for_each(|ask| engine.claimers.break_promise(ask));
            engine.claimers.ended(running.kind);
            engine.workers.lease_ends(held.worker);
            admit_leases(&self.kinds, engine, [running.kind], now);
        }
        let is_withdrawn = end == RunEnd::Withdrawn;
        let ended = engine.scheduler.ended(running.job, running.step, fence, end, now.0);
        let ended = ended.expect("a run in the scheduler is in the engine state");
        check_order(engine, &running, ended.fate);
        if !is_withdrawn {
            let error = answer.as_ref().err().map(|failure| &*failure.error);
            self.record_duration(engine, &running, ended.fate);
            self.record_slice(engine, &running, ended.fate, now);
            if let Some(live) = engine.live.get(&running.job) {
                let outcome = (outcome_text(ended.fate), error);
                self.traces.attempt_ended(live, &running, fence, outcome, now);
            }
            note_log(engine, &running, fence, ended.fate, now);
        }
        let (error, result) = match answer {
            Ok(result) => (None, result),
            Err(failure) => (Some(failure.error), None),
        };
        let is_idle =
            engine.scheduler.counts(running.job).is_some_and(|counts| counts.running == 0);
        if let Some(live) = engine.live.get_mut(&running.job) {
            if is_idle {
                live.note_idle(self.clock.steady_ms());
            }
            match (&error, ended.fate) {
                // A withdrawn run leaves no trace, as if it had not begun.
                _ if is_withdrawn => {}
                (Some(error), SubtaskFate::Again { .. } | SubtaskFate::Stopped) => {
                    live.failures.note(running.step, error);
                }
                _ => live.failures.forget(running.step),
            }
            live.touch(&mut engine.versions);
        }
        engine.changed.insert(running.job);
        note_stage(engine, &running, ended.fate, is_withdrawn, error.as_deref(), now);
        match ended.fate {
            SubtaskFate::Again { .. } => engine.totals.retried += u64::from(!is_withdrawn),
            SubtaskFate::Stopped => self.announce_stop(&running, error.as_deref(), now),
            SubtaskFate::Succeeded | SubtaskFate::Failed | SubtaskFate::Cancelled => {
                engine.record_end(&running, ended.fate, error, result, now);
            }
        }
        engine.apply_consequences(running.job, &ended, now);
    }

    /// Returns the time of the next attempt after a failure, if an attempt is left.
    pub(super) fn retry_at(
        &self,
        running: &RunningAttempt,
        failure: &AttemptFailure,
        now: Timestamp,
    ) -> Option<u64> {
        if !failure.retry {
            return None;
        }
        let backoff = self.kinds.get(running.kind).backoff;
        let after = failure.after.map(|after| after.min(MAX_AFTER));
        let wait = after.unwrap_or_else(|| backoff.wait(running.attempt, self.random.next()));
        let wait = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        Some(now.0.saturating_add(wait))
    }

    fn announce_stop(&self, running: &RunningAttempt, error: Option<&str>, now: Timestamp) {
        for key in running.keys.all() {
            self.events.publish(|id| crate::wire::Event {
                key: Some(String::from_utf8_lossy(&key.0).into_owned()),
                error: error.map(str::to_owned),
                ..super::events::event(id, EventKind::KeyChanged, now)
            });
        }
    }

    /// Counts the duration of the run.
    fn record_duration(
        &self,
        engine: &mut EngineState,
        running: &RunningAttempt,
        fate: SubtaskFate,
    ) {
        let outcome = match fate {
            SubtaskFate::Succeeded => "succeeded",
            SubtaskFate::Again { .. } | SubtaskFate::Failed | SubtaskFate::Stopped => "failed",
            SubtaskFate::Cancelled => "cancelled",
        };
        if let Some(began) = running.since_steady_ms {
            let took = self.clock.steady_ms().saturating_sub(began);
            engine.durations.attempts.entry((running.kind, outcome)).or_default().record(took);
        }
    }

    /// Records the run in the timeline.
    fn record_slice(
        &self,
        engine: &EngineState,
        running: &RunningAttempt,
        fate: SubtaskFate,
        now: Timestamp,
    ) {
        let job = engine.live.get(&running.job).map(|live| live.id);
        self.timeline.note(now.0, || Slice {
            slot: running.slot,
            job: job.map_or_else(String::new, |id| id.to_string()),
            number: shown(running.step),
            keys: running.keys.exclusive.iter().map(super::query::text_of).collect(),
            shared_keys: running.keys.shared.iter().map(super::query::text_of).collect(),
            attempt: running.attempt,
            begin: running.since,
            end: Some(now),
            outcome: Some(outcome_text(fate).into()),
            rule: super::query::rule_text(running.rule).into(),
        });
    }
}

/// Outcome of an attempt, as the timeline and spans have it.
fn outcome_text(fate: SubtaskFate) -> &'static str {
    match fate {
        SubtaskFate::Again { .. } => "retry",
        SubtaskFate::Succeeded => "succeeded",
        SubtaskFate::Failed | SubtaskFate::Stopped => "failed",
        SubtaskFate::Cancelled => "cancelled",
    }
}

/// Reports the end of an attempt to the check of the order.
fn check_order(engine: &mut EngineState, running: &RunningAttempt, fate: SubtaskFate) {
    let Step::Subtask(number) = running.step else { return };
    let subtask = SubtaskId { job: running.job, number };
    match fate {
        SubtaskFate::Again { .. } | SubtaskFate::Stopped => engine.order.attempt_ended(subtask),
        SubtaskFate::Succeeded | SubtaskFate::Failed | SubtaskFate::Cancelled => {
            engine.order.ended(subtask)
        }
    }
}

/// Maximum length of the stored reason why a key is stopped, in bytes.
const MAX_REASON_BYTES: usize = 1024;

/// Records that an attempt has ended while its subtask goes on: the start mark says how it
/// continues after a restart.
fn note_stage(
    engine: &mut EngineState,
    running: &RunningAttempt,
    fate: SubtaskFate,
    is_withdrawn: bool,
    error: Option<&str>,
    now: Timestamp,
) {
    let stage = match fate {
        SubtaskFate::Again { at: Some(until) } => {
            // Failures are kept for few subtasks of a job, which bounds the cost of many concurrent backoffs.
            let failures = engine.live.get(&running.job).map(|live| &live.failures);
            let reason = failures.and_then(|failures| failures.get(running.step));
            let reason = reason.unwrap_or_default().into();
            AttemptStage::BackingOff {
                since_ms: now.0,
                wait_ms: until.saturating_sub(now.0),
                reason,
            }
        }
        // The existing mark says that the step runs here, and a restart begins such a step again.
        SubtaskFate::Again { at: None } if running.lease.is_none() => return,
        SubtaskFate::Again { at: None } => AttemptStage::Started,
        SubtaskFate::Stopped => {
            let error = error.unwrap_or_default();
            let reason = error[..error.floor_char_boundary(MAX_REASON_BYTES)].into();
            AttemptStage::Stopped { since_ms: now.0, reason }
        }
        SubtaskFate::Succeeded | SubtaskFate::Failed | SubtaskFate::Cancelled => return,
    };
    let attempt = running.attempt - u32::from(is_withdrawn);
    let subtask = SubtaskId { job: running.job, number: running.number };
    engine.unwritten.changes.mark(subtask, LatestAttempt { attempt, stage });
}
