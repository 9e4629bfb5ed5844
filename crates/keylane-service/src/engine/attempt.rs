//! Runs an attempt in a handler, and enters the subtasks that a split has produced.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use keylane_storage::ThreadNotify;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;

use super::attempt_ends::AttemptEnds;
use super::capacity::{CapacityReservation, CapacityReservations};
use super::clock::Clock;
use super::engine_state::SharedState;
use super::split_result::NewSubtaskSpec;
use super::timer::{sleep, timeout};
use crate::handle::{Attempt, AttemptFailure, AttemptResult, Handler, Step as Handled, panicked};
use crate::job_definition::SubmissionLimits;
use crate::kind::KindExecutor;
use crate::kind_registry::KindRegistry;
use crate::scheduler::{NewSubtask, PackedSubtasks};
use crate::store::{Store, WriteError};
use crate::{JobNumber, SubtaskNumber};

/// Time that a cancelled handler has to end before it is dropped: more than a process gets between
/// SIGTERM and SIGKILL.
const GRACE: Duration = Duration::from_secs(10);

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

/// Runs attempts in their handlers.
#[derive(Debug)]
pub(super) struct AttemptRunner {
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) bounds: SubmissionLimits,
    pub(super) store: Store,
    pub(super) state: Arc<SharedState>,
    pub(super) clock: Arc<Clock>,
    pub(super) incoming: Arc<CapacityReservations>,
    pub(super) ends: Arc<AttemptEnds>,
    /// Wakes the dispatcher.
    pub(super) wake: Arc<ThreadNotify>,
}

impl AttemptRunner {
    /// Runs an attempt and reports its end.
    pub(super) async fn run(self: Arc<Self>, begin: PreparedAttempt) {
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
        self.ends.finished(fence, answer);
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
        let made = NewSubtaskSpec::read(answer, &self.bounds).map_err(AttemptFailure::lasting)?;
        let (stored, head) = {
            let engine = self.state.lock();
            let gone = || AttemptFailure::lasting("the job is over");
            let live = engine.live.get(&job).ok_or_else(gone)?;
            (live.plan.stored, Arc::clone(&live.head))
        };
        // Before anything is written. A retry of the split may find more room.
        let key_bytes =
            made.iter().flat_map(NewSubtaskSpec::claims).map(|claim| claim.key.len() as u64);
        let tenant = head.tenant.as_deref();
        let room =
            CapacityReservation::of(&self.incoming, tenant, made.len() as u64, key_bytes.sum());
        let room = room.map_err(|refused| AttemptFailure::passing(refused.to_string()))?;
        let mut extension = self.store.extend(job, stored);
        let mut entering = PackedSubtasks::default();
        for (number, one) in (0..).zip(&made) {
            entering.push(NewSubtask { number, keys: one.claims(), attempts_made: 0 });
        }
        for one in &made {
            extension.push_claims(&one.claims(), one.payload().as_bytes())?;
            extension.flush_async().await?;
        }
        if head.fan_in {
            extension.push::<&[u8]>(&[], b"null")?;
        }
        let (reply, replied) = tokio::sync::oneshot::channel();
        let (runner, total) = (Arc::clone(self), extension.total());
        let enter = move |committed: Result<_, WriteError>| {
            let entered = committed.map(|_| runner.enter_made(job, total, entering));
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
        let has_latest = made.has_latest();
        // A cancelled job accepts no subtasks; its final counts have them as cancelled.
        let added = engine.scheduler.add_packed(job, made, now.0);
        let engine = &mut *engine;
        let Some(live) = engine.live.get_mut(&job) else { return };
        live.plan.stored = total;
        live.key_bytes += key_bytes;
        live.touch(&mut engine.versions);
        if has_latest {
            engine.careful.insert(job);
        }
        engine.key_bytes += key_bytes;
        engine.unfinished.add(live.head.tenant.as_deref(), count);
        if let Ok(accepted) = added {
            engine.hold_if_behind(job, has_keys, now);
            engine.apply_accepted(job, &accepted, now);
        }
        self.wake.notify();
    }
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
