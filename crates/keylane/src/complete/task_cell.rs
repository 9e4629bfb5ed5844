//! State shared by a task and its handle: holds the body, then the outcome, which is taken once.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use super::{Outcome, PanicPayload, TaskFn, spare_cells};
use crate::run::{
    CancelFlag, ExecContext, RunSharedBody, Turn, TurnResult, lend_cancel_flag, name_of,
    with_current_flag,
};
use crate::sync::{
    AtomicBool, Condvar, Mutex, Ordering, ThreadId, this_thread, wait, wait_timeout,
};
use crate::unwind::{KeyPanic, call_catch_unwind, drop_catch_unwind};

/// State shared by a task and its handle.
pub(crate) struct TaskCell<T, E, F> {
    state: Mutex<CellInner<T, E, F>>,
    /// Signaled when the state becomes `Completed`, if a thread waits.
    completed: Condvar,
    /// Set when the handle asks a running body to stop. Polled by the body.
    cancel: AtomicBool,
}

struct CellInner<T, E, F> {
    /// Progress of the task.
    state: CellState<T, E, F>,
    /// Waker of the future that awaits the handle, to be woken when the state becomes `Completed`.
    waker: Option<Waker>,
    /// Turn of a task whose captures another thread drops. Stored by the worker that reached the
    /// task; taken and ended by the dropping thread when it completes the task. Also the turn of a
    /// suspended task, taken by its next attempt; and the entry of a delayed task, which a
    /// cancellation withdraws. Empty if there is none: an `Option` would be larger.
    turn: Turn,
    /// Whether a thread waits for `completed`. Otherwise no signal is sent, which would cost a
    /// system call.
    awaited: bool,
}

/// Progress of a task.
enum CellState<T, E, F> {
    /// Not started. Exits: `Running`; `Completed`, if the task is cancelled or abandoned.
    Waiting(F),
    /// This thread runs the body, or drops it. Exit: `Completed`; then `CellInner::turn` ends.
    Running(ThreadId),
    /// An attempt has failed, and another one follows; `CellInner::turn` holds the keys. Exits:
    /// `Running`; `Completed`, if the task is cancelled or abandoned.
    Suspended(F),
    /// A future that was spawned. Exit: `Completed`.
    #[cfg(feature = "tokio")]
    RunningElsewhere,
    /// Ended. Exit: `Taken`.
    Completed(Outcome<T, E>),
    /// The handle has taken the outcome. No exit.
    Taken,
}

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
        TaskCell {
            state: Mutex::new(CellInner {
                state: CellState::Waiting(body),
                waker: None,
                turn: Turn::empty(),
                awaited: false,
            }),
            completed: Condvar::new(),
            cancel: AtomicBool::new(false),
        }
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

    /// Returns whether the handle has asked the body to stop.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Acquire)
    }

    /// Takes the body of a task that has not started, which ends as cancelled.
    pub(crate) fn take_body(&self) -> Option<F> {
        let mut inner = self.state.lock();
        match std::mem::replace(&mut inner.state, CellState::Completed(Outcome::Cancelled)) {
            CellState::Waiting(body) => Some(body),
            other => {
                inner.state = other;
                None
            }
        }
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
        let mut turn = Some(turn);
        if !self.drop_unrun(Outcome::Superseded) {
            self.end_when_dropped(&mut || turn.take().expect("the turn is taken once"));
        }
        if let Some(turn) = turn {
            turn.end(TurnResult::Void);
        }
    }

    /// Takes the body of a task that does not run, in order to run or to drop it now.
    pub(crate) fn begin(&self) -> Option<F> {
        self.state.lock().begin()
    }

    /// Keeps the body and the turn of a task whose attempt has failed for its next attempt. Returns
    /// both if the task was cancelled: then no attempt follows.
    pub(crate) fn suspend(&self, body: F, turn: Turn) -> Result<(), (F, Turn)> {
        let mut inner = self.state.lock();
        // A cancellation that comes later finds the body, since it takes the lock after it has set
        // the flag.
        if self.cancel.load(Ordering::Acquire) {
            return Err((body, turn));
        }
        debug_assert!(matches!(inner.state, CellState::Running(_)), "an attempt has just failed");
        inner.state = CellState::Suspended(body);
        let before = std::mem::replace(&mut inner.turn, turn);
        drop(inner);
        drop(before);
        Ok(())
    }

    /// Takes the body and the turn of a suspended task for its next attempt.
    pub(crate) fn resume(&self) -> Option<(F, Turn)> {
        let mut inner = self.state.lock();
        if !matches!(inner.state, CellState::Suspended(_)) {
            return None;
        }
        let turn = inner.turn.take()?;
        Some((inner.begin()?, turn))
    }

    /// Ends a turn when the captures of this task are dropped: at once, unless another thread is
    /// dropping them now. Then that thread ends it, and the caller continues with other work.
    ///
    /// No turn is leaked: the state is `Running` under the lock when the turn is stored, and
    /// `complete` takes it in the critical section that ends this state. No turn ends early:
    /// `complete` comes after the drop.
    pub(crate) fn end_when_dropped(&self, turn: &mut dyn FnMut() -> Turn) {
        if !self.is_running() {
            return;
        }
        // Created before the lock is taken, because this takes another lock.
        let turn = turn();
        let mut inner = self.state.lock();
        if matches!(inner.state, CellState::Running(_)) {
            let before = std::mem::replace(&mut inner.turn, turn);
            drop(inner);
            return drop(before);
        }
        drop(inner);
        turn.end(TurnResult::Void);
    }

    /// Ends `turn`, which holds no key, when the task has ended, or before, if it has begun.
    pub(crate) fn end_with(&self, turn: Turn) {
        let mut inner = self.state.lock();
        if matches!(inner.state, CellState::Waiting(_)) {
            inner.turn = turn;
            return;
        }
        drop(inner);
        turn.end(TurnResult::Void);
    }

    fn is_running(&self) -> bool {
        matches!(self.state.lock().state, CellState::Running(_))
    }

    /// Publishes the outcome, unless there is one already. Wakes waiters after the lock is
    /// released, and then ends the turn stored by `end_when_dropped`.
    pub(crate) fn complete(&self, outcome: Outcome<T, E>) {
        let mut inner = self.state.lock();
        if matches!(inner.state, CellState::Completed(_) | CellState::Taken) {
            drop(inner);
            return drop_catch_unwind(outcome);
        }
        inner.state = CellState::Completed(outcome);
        let (waker, turn, awaited) = (inner.waker.take(), inner.turn.take(), inner.awaited);
        drop(inner);
        if awaited {
            self.completed.notify_all();
        }
        if let Some(waker) = waker {
            // The waker runs foreign code, whose panic is not this task's.
            call_catch_unwind(|| waker.wake());
        }
        if let Some(turn) = turn {
            turn.end(TurnResult::Void);
        }
    }

    /// Completes a task whose handle is gone, so that only the caller reaches it: drops the outcome.
    fn complete_unobserved(&mut self, outcome: Outcome<T, E>) {
        let inner = self.state.get_mut();
        let (waker, turn) = (inner.waker.take(), inner.turn.take());
        drop_catch_unwind((outcome, waker));
        if let Some(turn) = turn {
            turn.end(TurnResult::Void);
        }
    }
}

/// Returns the cell if its handle is gone: then no lock is needed.
///
/// `get_mut` alone would decide, with an atomic operation also where the handle still exists.
fn only_owner<C>(cell: &mut Arc<C>) -> Option<&mut C> {
    if Arc::strong_count(cell) == 1 { Arc::get_mut(cell) } else { None }
}

/// Methods for a body that continues after `run`.
#[cfg(feature = "tokio")]
impl<T, E, F> TaskCell<T, E, F> {
    /// Marks the body as running outside of this thread.
    pub(crate) fn leave_thread(&self) {
        let mut inner = self.state.lock();
        if matches!(inner.state, CellState::Running(_)) {
            inner.state = CellState::RunningElsewhere;
        }
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
            Some(cell) => cell.state.get_mut().begin(),
            None => self.begin(),
        };
        let Some(body) = body else {
            // Cancelled before its turn: the turn passes without a run.
            ctx.cancelled();
            return self.end_when_dropped(&mut || ctx.keep_turn());
        };
        let call = AssertUnwindSafe(|| body.call());
        let (mut cell, result) = lend_cancel_flag(self, || catch_unwind(call));
        let outcome = match result {
            Ok(Ok(value)) => Outcome::Completed(value),
            Ok(Err(error)) => {
                ctx.failed();
                Outcome::Failed(error)
            }
            Err(payload) => {
                ctx.panicked(&*payload);
                Outcome::Panicked(PanicPayload::new(payload))
            }
        };
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

/// Progress of a task, without its values.
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

    /// Returns the outcome if the task has ended; otherwise stores the waker, to be woken at the
    /// end.
    fn poll(&self, waker: Option<&Waker>) -> Option<Outcome<T, E>>;

    /// Blocks until the task has ended or the deadline has passed. Returns `None` at the deadline,
    /// or if the outcome was taken before.
    fn wait(&self, deadline: Option<Instant>) -> Option<Outcome<T, E>>;

    fn is_completed(&self) -> bool;

    /// Progress of the task.
    fn phase(&self) -> TaskPhase;

    /// Returns whether the calling thread runs the body.
    fn runs_here(&self) -> bool;

    /// Cancels the task. Returns true if it has not started; otherwise asks the body to stop.
    fn cancel(&self) -> bool;
}

/// Cell of a task that was rejected, as seen by its submission.
pub(crate) trait TakeWork<W> {
    /// Takes the work of a task that has not started.
    fn take_work(&self) -> Option<W>;

    /// Ends `turn`, which holds no key, when the task has ended, or before, if it has begun.
    fn end_with(&self, turn: Turn);
}

impl<T, E, F: TaskFn<T, E>> TakeWork<F::Work> for TaskCell<T, E, F> {
    fn take_work(&self) -> Option<F::Work> {
        self.take_body().map(F::into_work)
    }

    fn end_with(&self, turn: Turn) {
        TaskCell::end_with(self, turn);
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

    fn poll(&self, waker: Option<&Waker>) -> Option<Outcome<T, E>> {
        let mut inner = self.state.lock();
        if let Some(outcome) = inner.take_outcome() {
            return Some(outcome);
        }
        let waker = waker?;
        if inner.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return None;
        }
        drop(inner);
        // A waker's clone and drop are user code, so neither runs under the lock.
        let waker = waker.clone();
        let mut inner = self.state.lock();
        let outcome = inner.take_outcome();
        let unused = match outcome {
            Some(_) => Some(waker),
            None => inner.waker.replace(waker),
        };
        drop(inner);
        drop(unused);
        outcome
    }

    fn wait(&self, deadline: Option<Instant>) -> Option<Outcome<T, E>> {
        let mut inner = self.state.lock();
        loop {
            if let Some(outcome) = inner.take_outcome() {
                return Some(outcome);
            }
            if matches!(inner.state, CellState::Taken) {
                return None;
            }
            inner.awaited = true;
            inner = match deadline {
                None => wait(&self.completed, inner),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    wait_timeout(&self.completed, inner, left)
                }
            };
        }
    }

    fn is_completed(&self) -> bool {
        matches!(self.state.lock().state, CellState::Completed(_) | CellState::Taken)
    }

    fn phase(&self) -> TaskPhase {
        match self.state.lock().state {
            CellState::Waiting(_) => TaskPhase::Waiting,
            CellState::Running(thread) => TaskPhase::Running(Some(thread)),
            #[cfg(feature = "tokio")]
            CellState::RunningElsewhere => TaskPhase::Running(None),
            CellState::Suspended(_) => TaskPhase::Running(None),
            CellState::Completed(_) | CellState::Taken => TaskPhase::Over,
        }
    }

    fn runs_here(&self) -> bool {
        matches!(self.state.lock().state, CellState::Running(on) if on == this_thread())
    }

    fn cancel(&self) -> bool {
        // The captures are dropped now; the entry keeps its position in the queues, so no later
        // task overtakes.
        // The flag is set first, so that a running attempt is not the last but one: see `suspend`.
        self.cancel.store(true, Ordering::Release);
        self.drop_unrun(Outcome::Cancelled)
    }
}

impl<T, E, F> CellInner<T, E, F> {
    fn begin(&mut self) -> Option<F> {
        let running = CellState::Running(this_thread());
        match std::mem::replace(&mut self.state, running) {
            CellState::Waiting(body) | CellState::Suspended(body) => Some(body),
            other => {
                self.state = other;
                None
            }
        }
    }

    fn take_outcome(&mut self) -> Option<Outcome<T, E>> {
        match std::mem::replace(&mut self.state, CellState::Taken) {
            CellState::Completed(outcome) => Some(outcome),
            other => {
                self.state = other;
                None
            }
        }
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
