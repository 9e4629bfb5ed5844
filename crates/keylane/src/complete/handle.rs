//! A submitter's hold on its task: wait, poll, await, cancel.

use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::task_cell::{JoinState, TaskPhase, current_name};
use super::{Outcome, TaskError};
use crate::run::{AwaitedTask, NotedWait, WaitingTask, current_engine_hooks};

/// Waits for a task, or cancels it.
///
/// - Dropping a handle detaches: the task runs, and nobody learns how it ended.
/// - A turn ends when the body ends, never when its handle is dropped, cancelled or timed out.
/// - A handle is a future, of any runtime, and can be waited for by a thread as well.
///
/// # Inside a task
///
/// A task may wait for another one. If that one is ordered behind the caller, directly or through
/// others, it could never begin; the wait is then refused with [`WouldDeadlock`]. So it is if the
/// awaited task waits itself, or another one before it does, inside and without a timeout, for
/// something that is behind the caller, in this pool or another: of waits that form a cycle the last
/// one is refused. A future that awaits a handle may go on for another reason, so its wait is refused if it
/// closes a cycle, but is not counted for the waits that come after it.
///
/// While a task waits, another worker takes the place of its own: a thread more, up to
/// [`MAX_SUBSTITUTES`](crate::MAX_SUBSTITUTES) of them. Where there is no thread for it (that bound is
/// reached, or the operating system refuses one) the task waits all the same, as long as some other worker
/// does not wait inside a task; the last one gets [`WouldDeadlock`] instead.
#[must_use = "a dropped handle detaches its task; `execute` submits without one"]
pub struct Handle<T, E = Infallible> {
    cell: Arc<dyn JoinState<T, E>>,
    name: usize,
}

impl<T: 'static, E: 'static> Handle<T, E> {
    pub(crate) fn new<S: JoinState<T, E> + 'static>(cell: Arc<S>) -> Self {
        Handle { name: crate::run::name_of(&cell), cell }
    }

    /// Blocks until the task has ended.
    ///
    /// # Errors
    ///
    /// [`WouldDeadlock`] if the caller is a task that the awaited one is ordered behind, or waits for, or no
    /// worker would be left to run that. The handle comes back in the error.
    ///
    /// # Panics
    ///
    /// If the outcome was taken before, by [`try_join`](Self::try_join), by
    /// [`wait_timeout`](Self::wait_timeout) or by awaiting a reference to the handle.
    pub fn wait(self) -> Result<Outcome<T, E>, WouldDeadlock<Self>> {
        let Ok(_noted) = self.note_wait() else { return Err(WouldDeadlock::new(self)) };
        match self.block(None) {
            Ok(outcome) => {
                Ok(outcome.expect("the outcome was taken already, and is given out once"))
            }
            Err(NoWorker) => Err(WouldDeadlock { awaited: self, reason: DeadlockReason::NoWorker }),
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
    /// If the task has no value: it failed, panicked, was cancelled or replaced, or the wait would never end. To keep
    /// the handle in that last case, use [`wait`](Self::wait).
    ///
    /// # Panics
    ///
    /// As for [`wait`](Self::wait).
    pub fn join(self) -> Result<T, TaskError<E>> {
        self.wait().map_err(|_| TaskError::WouldDeadlock)?.into_result()
    }

    /// Blocks until the task has ended, for at most `timeout`. `None` means that it has not; the
    /// task goes on, and the handle can be used again.
    ///
    /// # Errors
    ///
    /// As for [`wait`](Self::wait), without waiting.
    pub fn wait_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<Option<Outcome<T, E>>, WouldDeadlock<()>> {
        if self.waits_for_ever() {
            return Err(WouldDeadlock::new(()));
        }
        let outcome = self.block(Instant::now().checked_add(timeout));
        outcome.map_err(|NoWorker| WouldDeadlock { awaited: (), reason: DeadlockReason::NoWorker })
    }

    /// The outcome, if the task has ended. It is given out once.
    pub fn try_join(&mut self) -> Option<Outcome<T, E>> {
        self.cell.poll(None)
    }

    /// Whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.cell.is_completed()
    }

    /// Cancels the task, and says whether it was in time.
    ///
    /// - Not begun: it never will; its captures are dropped now, and its outcome is
    ///   [`Outcome::Cancelled`]. It keeps its place in the line until that is reached, so nothing
    ///   behind it overtakes anything. Returns true.
    /// - Running: [`is_cancelled`](crate::is_cancelled) is true inside from now on; the body
    ///   decides. A future is dropped at its next step. Returns false.
    /// - Ended: nothing happens. Returns false.
    pub fn cancel(&self) -> bool {
        self.cell.cancel()
    }

    /// What it waits for is called so in its pool.
    pub(crate) fn name(&self) -> usize {
        self.name
    }

    pub(crate) fn phase(&self) -> TaskPhase {
        self.cell.phase()
    }

    fn waits_for_ever(&self) -> bool {
        let waiter = self.waiter();
        waiter.is_some_and(|waiter| self.cell.runs_here() || waiter.is_awaited_by(self.awaited()))
    }

    /// Notes a wait that ends when the task does, for the waits of other tasks; or refuses it. Nothing is noted
    /// outside of tasks.
    fn note_wait(&self) -> Result<Option<NotedWait>, WouldDeadlock<()>> {
        match self.waiter() {
            None => Ok(None),
            Some(_) if self.cell.runs_here() => Err(WouldDeadlock::new(())),
            Some(waiter) => waiter.wait_for(self.awaited()).map(Some).ok_or(WouldDeadlock::new(())),
        }
    }

    fn awaited(&self) -> AwaitedTask {
        AwaitedTask { name: self.name, has_begun: self.cell.phase() != TaskPhase::Waiting }
    }

    /// The task that this thread runs, if it runs one and the awaited task has not ended.
    fn waiter(&self) -> Option<WaitingTask> {
        if self.cell.is_completed() {
            return None;
        }
        let (hooks, position) = current_engine_hooks()?;
        Some(WaitingTask { hooks, position, name: current_name() })
    }

    fn block(&self, deadline: Option<Instant>) -> Result<Option<Outcome<T, E>>, NoWorker> {
        if let Some(outcome) = self.cell.poll(None) {
            return Ok(Some(outcome));
        }
        let Some((hooks, _)) = current_engine_hooks() else { return Ok(self.cell.wait(deadline)) };
        if !hooks.block() {
            // It may have ended while this was asked.
            return self.cell.poll(None).map(Some).ok_or(NoWorker);
        }
        let outcome = self.cell.wait(deadline);
        hooks.unblock();
        Ok(outcome)
    }
}

/// Cancel safe: the outcome is taken only by the poll that returns it.
impl<T: 'static, E: 'static> Future for Handle<T, E> {
    type Output = Result<Outcome<T, E>, WouldDeadlock<()>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.cell.poll(Some(cx.waker())) {
            Some(outcome) => Poll::Ready(Ok(outcome)),
            None if self.waits_for_ever() => Poll::Ready(Err(WouldDeadlock::new(()))),
            None => Poll::Pending,
        }
    }
}

impl<T, E> fmt::Debug for Handle<T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("finished", &self.cell.is_completed()).finish()
    }
}

/// Every worker would wait.
struct NoWorker;

/// A task has tried to wait for one that is ordered behind it, or that waits for it, directly or through others;
/// or that no worker would be left to run. It would wait for ever.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct WouldDeadlock<H> {
    awaited: H,
    reason: DeadlockReason,
}

/// Why a wait would have no end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DeadlockReason {
    /// The awaited task is ordered behind the one that waits, or waits for it.
    Behind,
    /// All workers wait inside tasks, and there is no thread for another.
    NoWorker,
}

impl<H> WouldDeadlock<H> {
    pub(crate) fn new(awaited: H) -> Self {
        WouldDeadlock { awaited, reason: DeadlockReason::Behind }
    }

    /// What was to be waited for.
    pub fn into_inner(self) -> H {
        self.awaited
    }

    /// The error alone.
    pub fn kind(&self) -> WouldDeadlock<()> {
        WouldDeadlock { awaited: (), reason: self.reason }
    }
}

impl<H> fmt::Debug for WouldDeadlock<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WouldDeadlock")
    }
}

impl<H> fmt::Display for WouldDeadlock<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.reason {
            DeadlockReason::Behind => {
                "the awaited task is ordered behind the one that waits for it, or waits for it"
            }
            DeadlockReason::NoWorker => {
                "all workers wait hooks tasks, and there is no thread for another worker; wait outside \
                 of tasks, or let fewer of them wait at a time"
            }
        })
    }
}

impl<H> std::error::Error for WouldDeadlock<H> {}
