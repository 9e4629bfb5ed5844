//! Control of running jobs and keys by clients: cancel, pause, change, retry and skip.
//!
//! Each command takes effect in memory at once, is written a moment later in the order of all
//! changes, and is answered after that. A crash in between undoes a command that was never
//! acknowledged. While the disk is full, commands are refused. A command that was applied when the
//! disk became full is answered with that fact.

use std::sync::Arc;

use super::control::Control;
use super::engine_state::{EngineState, FinalState};
use crate::request_error::RequestError;
use crate::scheduler::{KeyHeadError, Step};
use crate::store::{KeyBlockReason, KeyRecord};
use crate::wire::{CancelMode, EventKind, JobPatch, Timestamp};
use crate::{JobNumber, Key, SubtaskId};

impl Control {
    /// Cancels a job. Running attempts end by themselves or are cancelled, by the mode.
    pub(super) fn cancel(
        &self,
        engine: &mut EngineState,
        job: JobNumber,
        mode: CancelMode,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        let live = engine.live.get(&job).ok_or_else(over)?;
        if live.is_closing {
            return Err(over());
        }
        engine.cancel_rest(job, now);
        if mode == CancelMode::Kill {
            let runs = engine.running.values().filter(|running| running.job == job);
            runs.for_each(|running| running.signals.cancel());
            self.leases.kill(engine, job, now);
        }
        Ok(())
    }

    pub(super) fn set_paused(
        &self,
        engine: &mut EngineState,
        job: JobNumber,
        paused: bool,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        let live = engine.live.get_mut(&job).ok_or_else(over)?;
        if live.is_closing || live.cancelling {
            return Err(over());
        }
        live.paused = paused;
        // The pace is measured again from the next start.
        live.pace = None;
        live.touch(&mut engine.versions);
        let status = live.status();
        engine.unwritten.changes.status(job, status);
        engine.changed.insert(job);
        match paused || engine.holds.has(job) {
            true => engine.scheduler.pause_job(job, now.0),
            false => engine.scheduler.resume_job(job, now.0),
        };
        Ok(())
    }

    /// Changes the name, the labels or the weight of a job.
    pub(super) fn patch(
        &self,
        engine: &mut EngineState,
        job: JobNumber,
        patch: JobPatch,
        version: Option<u64>,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        crate::job_definition::check_patch(
            patch.labels.as_ref(),
            patch.name.as_ref(),
            patch.weight,
        )?;
        let live = engine.live.get_mut(&job).ok_or_else(over)?;
        // The head would be written after the job's end. If the job was deleted in between, the
        // store would refuse the head and everything in its batch.
        if live.is_closing {
            return Err(over());
        }
        if let Some(wanted) = version.filter(|wanted| *wanted != live.version) {
            tracing::debug!(wanted, version = live.version, "a patch of an older version");
            return Err(RequestError::Stale { version: live.version });
        }
        let mut head = (*live.head).clone();
        head.weight = patch.weight.unwrap_or(head.weight);
        head.labels = patch.labels.unwrap_or(head.labels);
        head.name = patch.name.or(head.name);
        let bytes = serde_json::to_vec(&head).expect("a head can be written as JSON");
        engine.scheduler.set_weight(job, head.weight, now.0);
        live.head = Arc::new(head);
        live.touch(&mut engine.versions);
        engine.unwritten.changes.head(job, bytes);
        engine.changed.insert(job);
        Ok(())
    }

    pub(super) fn set_key_paused(
        &self,
        engine: &mut EngineState,
        key: &Key,
        paused: bool,
        now: Timestamp,
    ) {
        let record =
            KeyRecord { state: KeyBlockReason::Paused, since_ms: now.0, reason: String::new() };
        engine.unwritten.changes.key(key.clone(), paused.then_some(record));
        engine.holds.key_decided(key);
        if paused {
            engine.scheduler.pause_key(&key.0, now.0);
            engine.paused_keys.insert(key.clone(), now);
        } else {
            engine.scheduler.resume_key(&key.0, now.0);
            engine.released_ms = self.clock.steady_ms();
            engine.paused_keys.remove(key);
        }
        self.key_changed(key, now);
    }

    /// Lets the first subtask of a key run again now. A subtask that has used up its attempts gets
    /// the last one again. Its new mark says the same after a restart: it neither waits nor is
    /// stopped, and has made one attempt fewer than the maximum.
    pub(super) fn retry_head(
        &self,
        engine: &mut EngineState,
        key: &Key,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        let head = engine.scheduler.key(&key.0).and_then(|view| view.head);
        let retried = engine.scheduler.retry_head(&key.0, now.0);
        let retried = retried.map_err(|error| head_error(error, key))?;
        engine.released_ms = self.clock.steady_ms();
        if let (Some(live), Some(head)) = (engine.live.get(&retried.job), head) {
            let number = live.plan.number(Step::Subtask(retried.subtask));
            let made = head.attempts.min(live.head.attempts.saturating_sub(1));
            engine.unwritten.changes.started(SubtaskId { job: retried.job, number }, made);
        }
        self.key_changed(key, now);
        Ok(())
    }

    /// Skips the first subtask of a key: it ends as skipped, and the key continues.
    pub(super) fn skip_head(
        &self,
        engine: &mut EngineState,
        key: &Key,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        let skipped = engine.scheduler.skip_head(&key.0, now.0);
        let skipped = skipped.map_err(|error| head_error(error, key))?;
        engine.released_ms = self.clock.steady_ms();
        let step = Step::Subtask(skipped.subtask);
        let last = engine.live.get(&skipped.job).and_then(|live| live.failures.get(step));
        let error = match last {
            Some(last) => format!("skipped by an operator, after: {last}"),
            None => "skipped by an operator".to_owned(),
        };
        let (job, attempts) = (skipped.job, skipped.attempts);
        engine.record_outcome(job, step, attempts, FinalState::Skipped, &error, now);
        engine.apply_consequences(skipped.job, &skipped.ended, now);
        if let Some(live) = engine.live.get_mut(&skipped.job) {
            live.touch(&mut engine.versions);
        }
        engine.changed.insert(skipped.job);
        self.key_changed(key, now);
        Ok(())
    }

    fn key_changed(&self, key: &Key, now: Timestamp) {
        self.events.publish(|id| crate::wire::Event {
            key: Some(super::query::text_of(key)),
            ..super::events::event(id, EventKind::KeyChanged, now)
        });
    }
}

fn over() -> RequestError {
    RequestError::Conflict("the job is over or is ending".into())
}

fn head_error(error: KeyHeadError, key: &Key) -> RequestError {
    match error {
        KeyHeadError::NoHead => RequestError::Unknown {
            what: format!("unfinished subtask with the key `{}`", super::query::text_of(key)),
        },
        KeyHeadError::Running => RequestError::Conflict(
            "the key's first subtask runs; cancel its job, or wait for its end".into(),
        ),
        KeyHeadError::Dropped => RequestError::Conflict(
            "the key's first subtask is of a job that was cancelled or failed, and leaves the key by itself in a moment"
                .into(),
        ),
        KeyHeadError::NotFailed => RequestError::Conflict(
            "the key's first subtask has not failed, so there is nothing to retry".into(),
        ),
    }
}
