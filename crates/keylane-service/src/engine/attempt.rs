//! Runs an attempt in a handler and applies its end to the engine state.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::Core;
use super::capacity::CapacityReservation;
use super::engine_state::{EngineState, RunningAttempt};
use super::logs::note_log;
use super::split_result::NewSubtaskSpec;
use super::step_numbers::shown;
use super::timer::{sleep, timeout};
use crate::handle::{Attempt, AttemptFailure, AttemptResult, Handler, Step as Handled, panicked};
use crate::kind::KindExecutor;
use crate::scheduler::{NewSubtask, PackedSubtasks, RunEnd, Step, SubtaskFate};
use crate::store::{AttemptStage, LatestAttempt, WriteError};
use crate::wire::{EventKind, Slice, Timestamp};
use crate::{JobNumber, SubtaskId, SubtaskNumber};

/// Time that a cancelled handler has to end before it is dropped: more than a process gets between
/// SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

/// Maximum pause before the next attempt that a handler may request, by `Retry-After` or
/// `after_ms`, because the key is blocked meanwhile. A longer request is cut to this.
const MAX_AFTER: Duration = Duration::from_secs(24 * 3600);

/// Interval at which subtasks of a split are written again while the disk is full.
const FULL_PAUSE: Duration = Duration::from_secs(1);

/// Why the subtasks of a split were not written.
enum ExtendError {
    /// The disk is full.
    Full,
    Failed(AttemptFailure),
}

impl From<AttemptFailure> for ExtendError {
    fn from(failure: AttemptFailure) -> Self {
        ExtendError::Failed(failure)
    }
}

impl From<WriteError> for ExtendError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Full => ExtendError::Full,
            other => ExtendError::Failed(AttemptFailure::passing(other.to_string())),
        }
    }
}

/// Registered run that is ready to begin.
#[derive(Debug)]
pub(super) struct PreparedAttempt {
    pub(super) fence: u64,
    pub(super) attempt: Attempt,
    /// Number of the step in the store.
    pub(super) number: SubtaskNumber,
    pub(super) kind: u32,
    pub(super) timeout: Option<Duration>,
}

impl Core {
    /// Runs an attempt and reports its end.
    pub(super) async fn attempt(self: Arc<Self>, begin: PreparedAttempt) {
        let PreparedAttempt { fence, mut attempt, kind, timeout, .. } = begin;
        let kind = self.kinds.get(kind);
        let handler = match attempt.step {
            Handled::Split => kind.split.as_ref(),
            Handled::FanIn => kind.fan_in.as_ref(),
            Handled::Subtask(_) => match &kind.work {
                KindExecutor::Handler(handler) => Some(handler),
                // The kinds were replaced after the start.
                KindExecutor::Lease { .. } => None,
            },
        };
        // A timeout ends the handler, but not the write of what it has produced all the same.
        let within = attempt.cancelled.child_token();
        let cancelled = std::mem::replace(&mut attempt.cancelled, within);
        let step = attempt.step;
        let job = attempt.job.number();
        let answer = match handler {
            Some(handler) => {
                let timeout = timeout.or_else(|| handler.patience());
                run_handler(&**handler, attempt, timeout).await
            }
            // The kinds were reconfigured after the job was accepted.
            None if matches!(step, Handled::Subtask(_)) => {
                Err(AttemptFailure::passing("its kind is for remote workers now"))
            }
            None => Err(AttemptFailure::lasting("its kind no longer has this step")),
        };
        let answer = match (step, answer) {
            (Handled::Split, Ok(answer)) => self.extend_with_room(job, answer, &cancelled).await,
            (_, answer) => answer,
        };
        self.finished(fence, answer);
    }

    /// Writes the subtasks that a split has produced as soon as the disk has room for them: a full
    /// disk costs the split no attempt.
    async fn extend_with_room(
        self: &Arc<Self>,
        job: JobNumber,
        answer: Option<Box<RawValue>>,
        cancelled: &CancellationToken,
    ) -> AttemptResult {
        loop {
            let full = match self.extend(job, answer.as_deref()).await {
                Ok(()) => return Ok(None),
                Err(ExtendError::Failed(failure)) => return Err(failure),
                Err(ExtendError::Full) => WriteError::Full,
            };
            tokio::select! {
                biased;
                () = cancelled.cancelled() => return Err(AttemptFailure::passing(full.to_string())),
                () = sleep(FULL_PAUSE) => {}
            }
        }
    }

    /// Writes the subtasks that a split has produced, and enters them into the order before the
    /// split ends. So the job is not over in between, and a crash does not repeat the split.
    async fn extend(
        self: &Arc<Self>,
        job: JobNumber,
        answer: Option<&RawValue>,
    ) -> Result<(), ExtendError> {
        let made =
            NewSubtaskSpec::read(answer, &self.settings.bounds).map_err(AttemptFailure::lasting)?;
        let (stored, fan_in) = {
            let engine = self.state.lock();
            let gone = || AttemptFailure::lasting("the job is over");
            let live = engine.live.get(&job).ok_or_else(gone)?;
            (live.plan.stored, live.head.fan_in)
        };
        // Before anything is written. A retry of the split may find more room.
        let key_bytes = made.iter().flat_map(NewSubtaskSpec::keys).map(|key| key.len() as u64);
        let room = CapacityReservation::of(&self.incoming, made.len() as u64, key_bytes.sum());
        let room = room.map_err(|refused| AttemptFailure::passing(refused.to_string()))?;
        let mut extension = self.store.extend(job, stored);
        let mut entering = PackedSubtasks::default();
        for (number, one) in (0..).zip(&made) {
            entering.push(NewSubtask { number, keys: one.keys(), attempts_made: 0 });
        }
        for one in &made {
            extension.push(&one.keys(), one.payload().as_bytes())?;
            extension.flush_async().await?;
        }
        if fan_in {
            extension.push::<&[u8]>(&[], b"null")?;
        }
        let (reply, replied) = tokio::sync::oneshot::channel();
        let (core, total) = (Arc::clone(self), extension.total());
        let enter = move |committed: Result<_, WriteError>| {
            let entered = committed.map(|_| core.enter_made(job, total, entering));
            // Released only here, because the engine state now counts the subtasks.
            drop(room);
            let _ = reply.send(entered);
        };
        extension.finish_with(enter).await?;
        let replied = replied.await.map_err(|_| AttemptFailure::passing("the store has ended"))?;
        Ok(replied?)
    }

    /// Enters the subtasks of a split. Called on the writer's thread, in commit order.
    fn enter_made(&self, job: JobNumber, total: u32, made: PackedSubtasks) {
        let mut engine = self.state.lock();
        let now = self.clock.now();
        engine.order.entered(job);
        let (count, key_bytes, has_keys) = (made.count(), made.key_bytes(), made.has_keys());
        // A cancelled job accepts no subtasks; its final counts have them as cancelled.
        let added = engine.scheduler.add_packed(job, made, now.0);
        let engine = &mut *engine;
        let Some(live) = engine.live.get_mut(&job) else { return };
        live.plan.stored = total;
        live.key_bytes += key_bytes;
        live.touch(&mut engine.versions);
        engine.key_bytes += key_bytes;
        engine.unfinished += count;
        if let Ok(accepted) = added {
            engine.hold_if_behind(job, has_keys, now);
            engine.apply_accepted(job, &accepted, now);
        }
        self.wake.notify();
    }

    /// Applies the end of a run. Returns false if the run had already ended.
    pub(super) fn finished(self: &Arc<Self>, fence: u64, answer: AttemptResult) -> bool {
        let mut engine = self.state.lock();
        let now = self.clock.now();
        let Some(running) = engine.running.remove(&fence) else { return false };
        let end = match &answer {
            Ok(_) => RunEnd::Succeeded,
            Err(failure) => RunEnd::Failed { retry_at: self.retry_at(&running, failure, now) },
        };
        self.end_with(&mut engine, running, fence, end, answer, now);
        self.write_next(&mut engine);
        drop(engine);
        self.wake.notify();
        true
    }

    /// Applies the end of a run to the engine state.
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
            self.admit_leases(engine, [running.kind], now);
        }
        let is_withdrawn = end == RunEnd::Withdrawn;
        let ended = engine.scheduler.ended(running.job, running.step, fence, end, now.0);
        let ended = ended.expect("a run in the scheduler is in the engine state");
        if let Step::Subtask(number) = running.step {
            let subtask = SubtaskId { job: running.job, number };
            match ended.fate {
                SubtaskFate::Again { .. } | SubtaskFate::Stopped => {
                    engine.order.attempt_ended(subtask)
                }
                SubtaskFate::Succeeded | SubtaskFate::Failed | SubtaskFate::Cancelled => {
                    engine.order.ended(subtask)
                }
            }
        }
        if !is_withdrawn {
            self.record_slice(engine, &running, ended.fate, now);
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
        for key in &running.keys {
            self.events.publish(|id| crate::wire::Event {
                key: Some(String::from_utf8_lossy(&key.0).into_owned()),
                error: error.map(str::to_owned),
                ..super::events::event(id, EventKind::KeyChanged, now)
            });
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
            keys: running.keys.iter().map(super::query::text_of).collect(),
            attempt: running.attempt,
            begin: running.since,
            end: Some(now),
            outcome: Some(
                match fate {
                    SubtaskFate::Again { .. } => "retry",
                    SubtaskFate::Succeeded => "succeeded",
                    SubtaskFate::Failed | SubtaskFate::Stopped => "failed",
                    SubtaskFate::Cancelled => "cancelled",
                }
                .into(),
            ),
            rule: super::query::rule_text(running.rule).into(),
        });
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

/// Runs the handler of an attempt, within its timeout.
async fn run_handler(
    handler: &dyn Handler,
    attempt: Attempt,
    time: Option<Duration>,
) -> AttemptResult {
    let cancelled = attempt.cancelled.clone();
    // A user's function may panic before it returns a future.
    let work = AssertUnwindSafe(async { handler.handle(attempt).await }).catch_unwind();
    tokio::pin!(work);
    let late = async {
        match time {
            Some(time) => sleep(time).await,
            None => std::future::pending().await,
        }
    };
    let why = tokio::select! {
        biased;
        answer = &mut work => return unwrap_panic(answer),
        () = late => {
            cancelled.cancel();
            format!("it took longer than {:?}", time.unwrap_or_default())
        }
        () = cancelled.cancelled() => "attempt cancelled".to_owned(),
    };
    match timeout(GRACE, work).await {
        // The attempt succeeded in spite of its timeout or cancellation, or returned its own
        // failure.
        Some(Ok(Ok(result))) => Ok(result),
        _ => Err(AttemptFailure::passing(why)),
    }
}

fn unwrap_panic(answer: Result<AttemptResult, Box<dyn std::any::Any + Send>>) -> AttemptResult {
    answer.unwrap_or_else(|panic| Err(AttemptFailure::passing(panicked(&*panic))))
}

#[cfg(test)]
#[path = "attempt_tests.rs"]
mod tests;
