//! Submitter's handle of a task: waits for the outcome by thread or future, and cancels.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::task_cell::{JoinState, TaskPhase, current_name};
use super::{Outcome, TaskError};
use crate::run::{AwaitedTask, RegisteredWait, SoftWait, Turn, WaitingTask, current_engine_hooks};
use crate::sync::this_thread;

/// Handle of a task: waits for its outcome, or cancels it.
///
/// - Dropping a handle detaches the task: it runs, and its outcome is discarded.
/// - A turn ends when the body ends, never when its handle is dropped, cancelled or timed out.
/// - A handle is a future for any runtime, and a thread can wait for it too.
///
/// # Inside a task
///
/// A task may wait for another one. If that one is ordered behind the caller, directly or through
/// others, it could never start; the wait is then refused with [`WouldDeadlock`]. The same holds if
/// the awaited task, or another one before it, itself waits inside and without a timeout for a task
/// behind the caller, in this pool or another: of waits that form a cycle, the last one is refused.
/// A future that awaits a handle may progress for another reason, so its wait is refused if it
/// closes a cycle of other waits, but later waits are not refused because of it. A cycle that hangs
/// for this reason is [reported](crate::observe::Stalled::in_cycle).
///
/// While a task waits, a substitute worker replaces its own: another thread, at most
/// [`MAX_SUBSTITUTES`](crate::MAX_SUBSTITUTES) of them. If no substitute can be started (at that
/// limit, or if the operating system refuses a thread), the task waits all the same, as long as
/// some other worker does not wait inside a task; the last one gets [`WouldDeadlock`] instead.
#[must_use = "a dropped handle detaches its task; `execute` submits without one"]
pub struct Handle<T, E = Infallible> {
    cell: Arc<dyn JoinState<T, E>>,
    name: usize,
    /// Registration of the task whose future awaits this handle, after a poll that was pending.
    awaited_by: Option<SoftWait>,
}

impl<T: 'static, E: 'static> Handle<T, E> {
    pub(crate) fn new<S: JoinState<T, E> + 'static>(cell: Arc<S>) -> Self {
        Handle { name: crate::run::name_of(&cell), cell, awaited_by: None }
    }

    /// Blocks until the task has ended.
    ///
    /// ```
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let answer = pool.submit(7, || 6 * 7)?;
    /// assert!(matches!(answer.wait()?, Outcome::Completed(42)));
    /// let number = pool.task(7).fallible().submit(|| "seven".parse::<u32>())?;
    /// assert!(matches!(number.wait()?, Outcome::Failed(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WouldDeadlock`] if the caller is a task that the awaited one is ordered behind or waits
    /// for, or if no worker would be left to run it. The error returns the handle.
    ///
    /// # Panics
    ///
    /// If the outcome was taken before, by [`try_join`](Self::try_join), by
    /// [`wait_timeout`](Self::wait_timeout) or by awaiting a reference to the handle.
    pub fn wait(self) -> Result<Outcome<T, E>, WouldDeadlock<Self>> {
        let Ok(_registered) = self.register_wait() else { return Err(WouldDeadlock::new(self)) };
        match block(&*self.cell, None) {
            Ok(outcome) => {
                Ok(outcome.expect("the outcome of a task can be taken once; it was taken before"))
            }
            Err(NoWorker) => Err(WouldDeadlock::no_worker(self)),
        }
    }

    /// Blocks until the task has ended, and returns its value.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// let pool = Pool::<u32>::builder().build()?;
    /// let answer = pool.submit(7, || 6 * 7)?.join()?;
    /// assert_eq!(answer, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the task has no value: it failed, panicked, was cancelled or replaced, or the wait would
    /// never end. To keep the handle in that last case, use [`wait`](Self::wait).
    ///
    /// # Panics
    ///
    /// As for [`wait`](Self::wait).
    pub fn join(self) -> Result<T, TaskError<E>> {
        self.wait().map_err(|_| TaskError::WouldDeadlock)?.into_result()
    }

    /// Blocks until the task has ended, at most for `timeout`. Returns `None` on a timeout: the
    /// task continues, and the handle can be used again.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// let mut task = pool.submit(7, || "done")?;
    /// assert!(task.wait_timeout(Duration::from_millis(1))?.is_none());
    /// pool.keys().resume(&7);
    /// let outcome = task.wait_timeout(Duration::from_secs(60))?;
    /// assert_eq!(outcome.and_then(Outcome::ok), Some("done"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait), without waiting.
    pub fn wait_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Outcome<T, E>>, WouldDeadlock<()>> {
        if self.would_deadlock() {
            return Err(WouldDeadlock::new(()));
        }
        let outcome = block(&*self.cell, Instant::now().checked_add(timeout));
        outcome.map_err(|NoWorker| WouldDeadlock::no_worker(()))
    }

    /// Returns the outcome, if the task has ended and the outcome was not taken before.
    ///
    /// ```
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// let mut task = pool.submit(7, || "done")?;
    /// assert!(task.try_join().is_none()); // not yet
    /// pool.keys().resume(&7);
    /// pool.wait_idle()?;
    /// assert_eq!(task.try_join().and_then(Outcome::ok), Some("done"));
    /// assert!(task.try_join().is_none()); // it was taken
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_join(&mut self) -> Option<Outcome<T, E>> {
        self.cell.poll(None)
    }

    /// Returns whether the task has ended.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// let task = pool.submit(7, || println!("done"))?;
    /// assert!(!task.is_finished());
    /// pool.keys().resume(&7);
    /// pool.wait_idle()?;
    /// assert!(task.is_finished());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_finished(&self) -> bool {
        self.cell.progress().is_completed()
    }

    /// Cancels the task. Returns true if its body does not run, and will not run any more.
    ///
    /// - Not started: it never will; its captures are dropped now, and its outcome is
    ///   [`Outcome::Cancelled`]. Its entry stays in the queues of its keys until its turn, so no
    ///   later task overtakes another. Returns true.
    /// - Running: [`is_cancelled`](crate::is_cancelled) returns true inside from now on, and the
    ///   body decides. A future is dropped at its next suspension. Returns false.
    /// - Between two [attempts](crate::Task::retry): no further attempt starts; its captures are
    ///   dropped now, its outcome is [`Outcome::Cancelled`], and its keys go on. Returns true.
    /// - Ended: no effect. Returns false.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// let task = pool.submit(7, || println!("never printed"))?;
    /// assert!(task.cancel());
    /// assert!(task.wait()?.is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cancel(&self) -> bool {
        self.cell.cancel()
    }

    /// Cell of the task, from which this handle was made.
    pub(crate) fn cell_as<C: 'static>(&self) -> &C {
        self.cell.as_any().downcast_ref().expect("a handle is made from one cell")
    }

    /// Returns the handle of an accepted task. A turn of the task, which holds no key, ends when the
    /// task has ended, or before, if it has begun.
    pub(crate) fn accepted(self, turn: Option<Turn>) -> Self {
        if let Some(turn) = turn {
            self.cell.progress().end_with(turn);
        }
        self
    }

    /// Name of the task in its pool.
    pub(crate) fn name(&self) -> usize {
        self.name
    }

    pub(crate) fn phase(&self) -> TaskPhase {
        self.cell.phase()
    }

    /// Returns whether the calling thread runs the body, or drops it.
    fn runs_here(&self) -> bool {
        self.cell.phase() == TaskPhase::Running(Some(this_thread()))
    }

    fn would_deadlock(&self) -> bool {
        let waiter = self.waiter();
        waiter.is_some_and(|waiter| self.runs_here() || waiter.is_awaited_by(self.awaited()))
    }

    /// Registers a wait without a deadline, so that waits of other tasks consider it, or refuses
    /// it. Outside of tasks, registers none.
    fn register_wait(&self) -> Result<Option<RegisteredWait>, WouldDeadlock<()>> {
        match self.waiter() {
            None => Ok(None),
            Some(_) if self.runs_here() => Err(WouldDeadlock::new(())),
            Some(waiter) => waiter.wait_for(self.awaited()).map(Some).ok_or(WouldDeadlock::new(())),
        }
    }

    fn awaited(&self) -> AwaitedTask {
        AwaitedTask { name: self.name, has_started: self.cell.phase() != TaskPhase::Waiting }
    }

    /// Returns the task that this thread runs, if it runs one and the awaited task has not ended.
    fn waiter(&self) -> Option<WaitingTask> {
        if self.cell.progress().is_completed() {
            return None;
        }
        let (hooks, position) = current_engine_hooks()?;
        Some(WaitingTask { hooks, position, name: current_name() })
    }
}

/// Blocks until a task or a job has ended or the deadline has passed. Returns `None` at the
/// deadline. Inside a task a substitute replaces the worker meanwhile.
pub(crate) fn block<T, E>(
    state: &(impl JoinState<T, E> + ?Sized),
    deadline: Option<Instant>,
) -> Result<Option<Outcome<T, E>>, NoWorker> {
    if let Some(outcome) = state.poll(None) {
        return Ok(Some(outcome));
    }
    let Some((hooks, _)) = current_engine_hooks() else { return Ok(state.wait(deadline)) };
    if !hooks.block() {
        // It may have ended since the last check.
        return state.poll(None).map(Some).ok_or(NoWorker);
    }
    let outcome = state.wait(deadline);
    hooks.unblock();
    Ok(outcome)
}

/// Cancel safe: only the poll that returns the outcome takes it.
impl<T: 'static, E: 'static> Future for Handle<T, E> {
    type Output = Result<Outcome<T, E>, WouldDeadlock<()>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.awaited_by = None;
        match self.cell.poll(Some(cx.waker())) {
            Some(outcome) => Poll::Ready(Ok(outcome)),
            None if self.would_deadlock() => Poll::Ready(Err(WouldDeadlock::new(()))),
            None => {
                self.awaited_by = self.waiter().map(|waiter| waiter.wait_softly(self.name));
                Poll::Pending
            }
        }
    }
}

impl<T, E> fmt::Debug for Handle<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("finished", &self.cell.progress().is_completed()).finish()
    }
}

/// Error: every worker would wait.
pub(crate) struct NoWorker;

/// Error of a wait inside a task that would never end: the awaited task is ordered behind the
/// caller, or waits for it, directly or through others; or no worker would be left to run it.
pub struct WouldDeadlock<H> {
    awaited: H,
    reason: DeadlockReason,
}

/// Reason why a wait would never end.
#[derive(Debug)]
enum DeadlockReason {
    /// The awaited task is ordered behind the waiting one, or waits for it.
    Behind,
    /// All workers wait inside tasks, and no substitute can be started.
    NoWorker,
}

impl<H> WouldDeadlock<H> {
    pub(crate) fn new(awaited: H) -> Self {
        WouldDeadlock { awaited, reason: DeadlockReason::Behind }
    }

    pub(crate) fn no_worker(awaited: H) -> Self {
        WouldDeadlock { awaited, reason: DeadlockReason::NoWorker }
    }

    /// Returns the handle that was to be waited for.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let inside = pool.clone();
    /// let task = pool.submit(7, move || {
    ///     let next = inside.submit(7, || "next").expect("the pool is open");
    ///     // It begins after this task, which cannot wait for it.
    ///     next.wait().unwrap_err().into_inner()
    /// })?;
    /// assert_eq!(task.join()?.join()?, "next");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_inner(self) -> H {
        self.awaited
    }
}

impl<H> fmt::Debug for WouldDeadlock<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("WouldDeadlock").field(&self.reason).finish()
    }
}

impl<H> fmt::Display for WouldDeadlock<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            DeadlockReason::Behind => {
                "the awaited task is ordered behind the waiting task, or waits for it; wait outside of \
                 the task, or submit the awaited task earlier"
            }
            DeadlockReason::NoWorker => {
                "all workers wait inside tasks, and no thread for another worker can be started; wait outside \
                 of tasks, or let fewer of them wait at a time"
            }
        })
    }
}

impl<H> std::error::Error for WouldDeadlock<H> {}
