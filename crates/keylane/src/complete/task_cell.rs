//! State shared by a task and its handle: holds the body, then the outcome, which is taken once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::progress::{LockedProgress, TaskProgress, only_owner};
use super::{Outcome, PanicPayload, TaskFn, spare_cells};
use crate::run::{
    CancelFlag, ExecContext, LentCancelFlag, RunSharedBody, Turn, name_of, with_current_flag,
};
use crate::sync::{ThreadId, UnsafeCell, pointer, this_thread};
use crate::unwind::{KeyPanic, drop_catch_unwind};

/// State shared by a task and its handle.
#[repr(C)]
pub(crate) struct TaskCell<T, E, F> {
    /// Progress of the task, which says what `value` is. Its lock protects `value`.
    progress: TaskProgress,
    value: UnsafeCell<CellValue<T, E, F>>,
}

/// Value in a cell, which depends on the progress of the task.
enum CellValue<T, E, F> {
    Empty,
    Body(F),
    /// Thread that runs the body, or drops it.
    Thread(ThreadId),
    Outcome(Outcome<T, E>),
}

// SAFETY: threads that share a cell access the value one at a time: `with_value` takes the lock of the
// progress as its proof. So the value moves between threads, and is never shared.
unsafe impl<T: Send, E: Send, F: Send> Sync for TaskCell<T, E, F> {}

impl<T, E, F> CancelFlag for TaskCell<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Send + 'static,
{
    fn is_cancel_requested(&self) -> bool {
        self.is_cancelled()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// Name of the task that this thread runs, if it has a handle.
pub(crate) fn current_name() -> Option<usize> {
    with_current_flag(name_of)
}

impl<T, E, F> TaskCell<T, E, F> {
    pub(crate) fn new(body: F) -> Self {
        TaskCell { progress: TaskProgress::new(), value: UnsafeCell::new(CellValue::Body(body)) }
    }

    /// Returns a shared cell, in the memory of an ended task if there is any.
    pub(crate) fn shared(body: F) -> Arc<Self>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: Send + 'static,
    {
        spare_cells::reuse_or_allocate(TaskCell::new(body))
    }

    /// Accesses the value. The caller has the lock.
    #[inline]
    fn with_value<R>(
        &self,
        locked: &mut LockedProgress<'_>,
        access: impl FnOnce(&mut CellValue<T, E, F>) -> R,
    ) -> R {
        assert!(locked.is_of(&self.progress), "a cell is protected by its own progress");
        let place = pointer(&self.value);
        // SAFETY: `locked` is the lock of this cell, by the assertion above. This is the only access to
        // the value through a shared reference, and `access` cannot keep the reference.
        access(unsafe { place.deref() })
    }

    #[inline]
    fn replace(
        &self,
        locked: &mut LockedProgress<'_>,
        value: CellValue<T, E, F>,
    ) -> CellValue<T, E, F> {
        self.with_value(locked, |place| std::mem::replace(place, value))
    }

    /// Takes the body for this thread.
    fn take_body_locked(&self, mut locked: LockedProgress<'_>) -> Option<F> {
        self.replace(&mut locked, CellValue::Thread(this_thread())).into_body()
    }

    /// Like [`begin`](Self::begin), where no other thread can reach the cell.
    fn begin_unshared(&mut self) -> Option<F> {
        if !self.progress.begin_unshared() {
            return None;
        }
        let place = pointer(&self.value);
        // SAFETY: `&mut self`, so there is no other reference.
        std::mem::replace(unsafe { place.deref() }, CellValue::Thread(this_thread())).into_body()
    }

    /// Returns whether the handle has asked the body to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.progress.is_cancelled()
    }

    /// Takes the body of a task that has not started, which ends as cancelled.
    pub(crate) fn take_body(&self) -> Option<F> {
        let mut locked = self.progress.begin_rejection()?;
        self.replace(&mut locked, CellValue::Outcome(Outcome::Cancelled)).into_body()
    }

    /// Drops the body of a task that has not started, which ends with `outcome`. Returns false if
    /// it has started.
    pub(crate) fn drop_unrun(&self, outcome: Outcome<T, E>) -> bool {
        /// Completes even if the drop of the captures panics, because a thread may wait.
        struct CompleteOnDrop<'a, T, E, F>(&'a TaskCell<T, E, F>, Option<Outcome<T, E>>);
        impl<T, E, F> Drop for CompleteOnDrop<'_, T, E, F> {
            fn drop(&mut self) {
                if let Some(outcome) = self.1.take() {
                    self.0.complete(outcome);
                }
            }
        }
        // Marks the cell as running on this thread for the duration of the drop.
        let Some(body) = self.begin() else { return false };
        let _complete = CompleteOnDrop(self, Some(outcome));
        drop(body);
        true
    }

    /// Drops the body of a task that has not started, because a newer one has replaced it, and then
    /// ends `turn`, which keeps the newer one from starting. If another thread is dropping the
    /// body, that thread ends the turn.
    pub(crate) fn supersede_cell(&self, turn: Turn) {
        let has_dropped = self.drop_unrun(Outcome::Superseded);
        self.progress.end_superseded(turn, has_dropped);
    }

    /// Takes the body of a task that does not run, in order to run or to drop it now.
    pub(crate) fn begin(&self) -> Option<F> {
        self.take_body_locked(self.progress.begin()?)
    }

    /// Keeps the body and the turn of a task whose attempt has failed for its next attempt. Returns
    /// both if the task was cancelled: then no attempt follows.
    pub(crate) fn suspend(&self, body: F, turn: Turn) -> Result<(), (F, Turn)> {
        match self.progress.suspend(turn) {
            Ok((mut locked, before)) => {
                self.replace(&mut locked, CellValue::Body(body));
                drop(locked);
                drop(before);
                Ok(())
            }
            Err(turn) => Err((body, turn)),
        }
    }

    /// Takes the body and the turn of a suspended task for its next attempt.
    pub(crate) fn resume(&self) -> Option<(F, Turn)> {
        let (locked, turn) = self.progress.resume()?;
        Some((self.take_body_locked(locked)?, turn))
    }

    /// Marks the body as running outside of this thread.
    #[cfg(feature = "tokio")]
    pub(crate) fn leave_thread(&self) {
        if let Some(mut locked) = self.progress.leave_thread() {
            self.replace(&mut locked, CellValue::Empty);
        }
    }

    /// Publishes the outcome, unless there is one already.
    pub(crate) fn complete(&self, outcome: Outcome<T, E>) {
        let Some(mut locked) = self.progress.lock_to_complete() else {
            return drop_catch_unwind(outcome);
        };
        let before = self.replace(&mut locked, CellValue::Outcome(outcome));
        locked.complete();
        drop(before);
    }

    /// Completes a task whose handle is gone, so that only the caller reaches it: drops the outcome.
    fn complete_unobserved(&mut self, outcome: Outcome<T, E>) {
        drop_catch_unwind(outcome);
        self.progress.end_unobserved();
    }
}

impl<T, E, F> CellValue<T, E, F> {
    fn into_body(self) -> Option<F> {
        if let CellValue::Body(body) = self { Some(body) } else { None }
    }
}

impl<T, E, F> RunSharedBody for TaskCell<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: TaskFn<T, E> + Send + 'static,
{
    fn run(mut self: Arc<Self>, ctx: &mut dyn ExecContext) {
        let body = match only_owner(&mut self) {
            Some(cell) => cell.begin_unshared(),
            None => self.begin(),
        };
        let Some(body) = body else {
            // Cancelled before its turn: the turn passes without a run.
            ctx.cancelled();
            return self.progress.end_when_dropped(&mut || ctx.keep_turn());
        };
        let lent = LentCancelFlag::new(self);
        let result = catch_unwind(AssertUnwindSafe(|| body.call()));
        let mut cell: Arc<Self> = lent.take_back();
        let outcome = outcome_of(result, ctx);
        match only_owner(&mut cell) {
            Some(last) => {
                last.complete_unobserved(outcome);
                spare_cells::keep(cell);
            }
            None => cell.complete(outcome),
        }
    }

    fn abandon(&self) {
        self.drop_unrun(Outcome::Cancelled);
    }

    fn supersede(&self, turn: Turn) {
        self.supersede_cell(turn);
    }

    fn fail(&self, payload: KeyPanic) {
        self.drop_unrun(Outcome::Panicked(PanicPayload::new(payload)));
    }
}

/// Returns the outcome of a body that has returned this, or panicked, and reports it.
#[inline]
fn outcome_of<T, E>(
    result: Result<Result<T, E>, Box<dyn Any + Send>>,
    ctx: &mut dyn ExecContext,
) -> Outcome<T, E> {
    match result {
        Ok(Ok(value)) => Outcome::Completed(value),
        Ok(Err(error)) => {
            ctx.failed();
            Outcome::Failed(error)
        }
        Err(payload) => {
            ctx.panicked(&*payload);
            Outcome::Panicked(PanicPayload::new(payload))
        }
    }
}

/// Phase of a task, as seen by its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskPhase {
    /// Not started.
    Waiting,
    /// Running, on this thread if on a particular one.
    Running(Option<ThreadId>),
    /// Ended, or cancelled before the start.
    Over,
}

/// Cell of a task, as seen by its handle.
pub(crate) trait JoinState<T, E>: Send + Sync {
    /// Returns the same cell, of which the type can be found again.
    fn as_any(&self) -> &dyn Any;

    /// Progress of the task.
    fn progress(&self) -> &TaskProgress;

    /// Takes the outcome, which the lock was taken for.
    fn take_outcome(&self, locked: LockedProgress<'_>) -> Option<Outcome<T, E>>;

    /// Returns the thread that runs the body, or drops it.
    fn thread(&self, locked: &mut LockedProgress<'_>) -> Option<ThreadId>;

    /// Cancels the task. Returns true if it has not started; otherwise asks the body to stop.
    fn cancel(&self) -> bool;

    /// Returns the phase at this moment.
    fn phase(&self) -> TaskPhase {
        let mut locked = self.progress().lock();
        match (locked.waits(), locked.is_over()) {
            (true, _) => TaskPhase::Waiting,
            (_, true) => TaskPhase::Over,
            _ => TaskPhase::Running(self.thread(&mut locked)),
        }
    }

    /// Returns the outcome if the task has ended; otherwise stores the waker, to be woken at the
    /// end.
    fn poll(&self, waker: Option<&Waker>) -> Option<Outcome<T, E>> {
        self.take_outcome(self.progress().poll(waker)?)
    }

    /// Blocks until the task has ended or the deadline has passed. Returns `None` at the deadline,
    /// or if the outcome was taken before.
    fn wait(&self, deadline: Option<Instant>) -> Option<Outcome<T, E>> {
        self.take_outcome(self.progress().wait(deadline)?)
    }
}

/// Cell of a task that was rejected, as seen by its submission.
pub(crate) trait TakeWork<W> {
    /// Takes the work of a task that has not started.
    fn take_work(&self) -> Option<W>;
}

impl<T, E, F: TaskFn<T, E>> TakeWork<F::Work> for TaskCell<T, E, F> {
    fn take_work(&self) -> Option<F::Work> {
        self.take_body().map(F::into_work)
    }
}

impl<T, E, F> JoinState<T, E> for TaskCell<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Send + 'static,
{
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn progress(&self) -> &TaskProgress {
        &self.progress
    }

    fn take_outcome(&self, mut locked: LockedProgress<'_>) -> Option<Outcome<T, E>> {
        match self.replace(&mut locked, CellValue::Empty) {
            CellValue::Outcome(outcome) => Some(outcome),
            _ => None,
        }
    }

    fn thread(&self, locked: &mut LockedProgress<'_>) -> Option<ThreadId> {
        self.with_value(locked, |value| match value {
            CellValue::Thread(on) => Some(*on),
            _ => None,
        })
    }

    fn cancel(&self) -> bool {
        // The captures are dropped now; the entry keeps its position in the queues, so no later
        // task overtakes.
        // The flag is set first, so that a running attempt is not the last but one: see `suspend`.
        self.progress.request_cancel();
        self.drop_unrun(Outcome::Cancelled)
    }
}

#[cfg(all(test, not(loom), not(shuttle), target_os = "linux", target_pointer_width = "64"))]
mod tests {
    use std::convert::Infallible;

    use super::*;
    use crate::complete::InfallibleFn;

    /// Size of the cell of a task with this closure, with the two counts of its `Arc`.
    fn allocated<T, F: FnOnce() -> T>(_: &F) -> usize {
        2 * size_of::<usize>() + size_of::<TaskCell<T, Infallible, InfallibleFn<F>>>()
    }

    /// Larger blocks are freed under a lock of glibc's, for which the submitter and the workers then
    /// wait.
    #[test]
    fn the_cell_of_a_small_task_is_freed_without_a_lock() {
        let (number, text) = (1_u64, String::new());
        assert!(allocated(&move || number) <= 120);
        assert!(allocated(&move || text) <= 120);
    }
}
