//! A caller's hold on its job: wait, await, watch, pause, cancel.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::core::JobOps;
use super::sink::Result as JobResult;
use crate::allocate::{JobId, Progress};
use crate::complete::{JoinState, Outcome, WouldDeadlock};
use crate::run::current_engine_hooks;

/// Waits for a job, watches it, steers it.
///
/// - Dropping it detaches: the job goes on, and nobody learns how it ended.
/// - It is a future, of any runtime, and can be waited for by a thread as well.
/// - However its pool ends, the job does: stopped or dropped, a pool cancels its jobs.
///
/// # How it ends
///
/// | outcome | if |
/// |---|---|
/// | [`Done`](Outcome::Completed) | every subtask has ended, and none failed that was not folded |
/// | [`Failed`](Outcome::Failed), [`Panicked`](Outcome::Panicked) | a subtask did: the first of them; or the splitter or the fold has panicked |
/// | [`Cancelled`](Outcome::Cancelled) | it was cancelled, or its pool was stopped |
///
/// # Inside a task
///
/// A task, or a subtask, of the same pool cannot wait for a job: subtasks that are still to be split
/// might come to stand behind it, and both would wait for ever. That is [`WouldDeadlock`], at once.
#[must_use = "a dropped handle detaches its job"]
pub struct Job<R, E = Infallible> {
    ops: Arc<dyn JobOps>,
    result: Arc<JobResult<R, E>>,
    id: JobId,
}

/// One of a pool's jobs, at one moment: see [`Pool::jobs`](crate::control::Jobs::list).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobInfo {
    /// What the rules know it by.
    pub id: JobId,
    /// What it is called; two can have the same name.
    pub name: Arc<str>,
    /// How far it is.
    pub progress: Progress,
}

impl<R: Send + 'static, E: Send + 'static> Job<R, E> {
    pub(super) fn new(ops: Arc<dyn JobOps>, result: Arc<JobResult<R, E>>, id: JobId) -> Self {
        Job { ops, result, id }
    }

    /// What it was called when it was submitted.
    pub fn name(&self) -> &str {
        self.ops.name()
    }

    /// What the rules know it by, in [`Pool::jobs`](crate::control::Jobs::list) and in a
    /// [record](crate::control::Jobs::decision_log) of their decisions.
    pub fn id(&self) -> JobId {
        self.id
    }

    /// How far it is. Once it is over, how far it came.
    pub fn progress(&self) -> Progress {
        self.ops.progress()
    }

    /// Blocks until the job is over.
    ///
    /// # Errors
    ///
    /// [`WouldDeadlock`] inside a task of the same pool, unless the job is over. The handle comes back
    /// in the error.
    ///
    /// # Panics
    ///
    /// If the outcome was taken before, by [`try_join`](Self::try_join),
    /// [`wait_timeout`](Self::wait_timeout) or by awaiting a reference to the handle.
    pub fn wait(self) -> Result<Outcome<R, E>, WouldDeadlock<Self>> {
        if self.waits_for_ever() {
            return Err(WouldDeadlock::new(self));
        }
        let outcome = self.block(None);
        Ok(outcome.expect("the outcome was taken already, and is given out once"))
    }

    /// Blocks until the job is over, for at most `timeout`. `None` means that it is not; it goes on,
    /// and the handle can be used again.
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait), without waiting.
    pub fn wait_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Outcome<R, E>>, WouldDeadlock<()>> {
        if self.waits_for_ever() {
            return Err(WouldDeadlock::new(()));
        }
        Ok(self.block(Instant::now().checked_add(timeout)))
    }

    /// The outcome, if the job is over. It is given out once.
    pub fn try_join(&mut self) -> Option<Outcome<R, E>> {
        self.result.poll(None)
    }

    /// Whether the job is over.
    pub fn is_finished(&self) -> bool {
        self.result.is_completed()
    }

    /// Begins no more subtasks. Those that have not begun are dropped now; those that stand in the line
    /// of a key keep their place there until it is reached, so that nothing overtakes anything. Those
    /// that run are [asked to stop](crate::is_cancelled), and the job is over when they have ended.
    ///
    /// Nothing happens if it is over.
    pub fn cancel(&self) {
        self.ops.cancel();
    }

    /// Begins none of its subtasks until it is [resumed](Self::resume), and none is split. Those that
    /// run end. Subtasks that have been granted their keys keep them meanwhile, unless such a key is
    /// [paused](crate::control::Keys::pause) by the time at which the job goes on: then they wait for it again.
    /// Returns whether the job was not over.
    ///
    /// [`Pool::shutdown`](crate::Pool::shutdown) waits for a paused job as for any other.
    pub fn pause(&self) -> bool {
        self.ops.ask(&mut |control, id| control.pause_job(id, true))
    }

    /// Undoes [`pause`](Self::pause).
    pub fn resume(&self) -> bool {
        self.ops.ask(&mut |control, id| control.pause_job(id, false))
    }

    /// Changes its claim to spare workers: see [`JobBuilder::weight`](crate::JobBuilder::weight). Says
    /// whether the job was not over.
    pub fn set_weight(&self, weight: u32) -> bool {
        self.ops.ask(&mut |control, id| control.set_job_weight(id, weight))
    }

    /// Inside a task of another pool, another worker of that takes the place of its own meanwhile.
    fn block(&self, deadline: Option<Instant>) -> Option<Outcome<R, E>> {
        if let Some(outcome) = self.result.poll(None) {
            return Some(outcome);
        }
        let Some((hooks, _)) = current_engine_hooks() else { return self.result.wait(deadline) };
        hooks.block();
        let outcome = self.result.wait(deadline);
        hooks.unblock();
        outcome
    }

    fn waits_for_ever(&self) -> bool {
        !self.result.is_completed() && self.ops.ask(&mut |control, _| control.is_here())
    }
}

/// Cancel safe: the outcome is taken only by the poll that returns it.
impl<R: Send + 'static, E: Send + 'static> Future for Job<R, E> {
    type Output = Result<Outcome<R, E>, WouldDeadlock<()>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.result.poll(Some(cx.waker())) {
            Some(outcome) => Poll::Ready(Ok(outcome)),
            None if self.waits_for_ever() => Poll::Ready(Err(WouldDeadlock::new(()))),
            None => Poll::Pending,
        }
    }
}

impl<R, E> fmt::Debug for Job<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job").field("name", &self.ops.name()).field("id", &self.id).finish()
    }
}
