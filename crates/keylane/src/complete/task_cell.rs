//! What a task and its handle share: first the body, then the outcome.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread::ThreadId;
use std::time::Instant;

use super::{Outcome, PanicPayload, TaskFn};
use crate::run::{ExecContext, RunSharedBody, Turn, TurnResult, name_of};
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, wait, wait_timeout};
use crate::unwind::{call_catch_unwind, drop_catch_unwind};

/// Shared by a task and its handle.
pub(crate) struct TaskCell<T, E, F> {
    state: Mutex<CellInner<T, E, F>>,
    /// Signaled when the state becomes `Completed`, if a thread waits.
    completed: Condvar,
    /// The handle has asked the body to stop. Read by the body as often as it likes.
    cancel: AtomicBool,
}

struct CellInner<T, E, F> {
    /// How far the task is.
    state: CellState<T, E, F>,
    /// Whom to wake when the state becomes `Completed`.
    waker: Option<Waker>,
    /// The turn of a task whose captures another thread drops. Put here by the worker that reached
    /// the task, taken and ended by that thread when it settles the task.
    turn: Option<Turn>,
    /// A thread waits for `completed`. Without one no signal is given, which would be a system call.
    awaited: bool,
}

/// A task as its handle knows it.
enum CellState<T, E, F> {
    /// It has not begun. Exits: `Running`; `Completed`, if it is cancelled or abandoned.
    Waiting(F),
    /// Its body runs, or is dropped unrun, on this thread. Exit: `Completed`, and then `CellInner::turn`
    /// ends.
    Running(ThreadId),
    /// It is a future that has begun. Exit: `Completed`.
    #[cfg(feature = "tokio")]
    RunningElsewhere,
    /// It has ended. Exit: `Taken`.
    Completed(Outcome<T, E>),
    /// The handle has taken the outcome.
    Taken,
}

thread_local! {
    /// Whether the handle of the task that this thread runs has asked it to stop.
    static CANCEL: Cell<Option<Arc<dyn CancelFlag>>> = const { Cell::new(None) };
}

/// What a body asks when it asks whether it is to stop.
pub(crate) trait CancelFlag {
    fn is_cancel_requested(&self) -> bool;
}

impl CancelFlag for AtomicBool {
    fn is_cancel_requested(&self) -> bool {
        self.load(Ordering::Acquire)
    }
}

/// Runs a body, or a part of it, in which `is_cancelled` answers for its task. There is an outer one
/// if a task runs a stopped pool's task inside its own body. A part that unwinds restores it as well.
pub(crate) fn with_cancel_flag<R>(task: Arc<dyn CancelFlag>, part: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<dyn CancelFlag>>);
    impl Drop for Restore {
        fn drop(&mut self) {
            let outer = self.0.take();
            // The destructor of another thread local may come after this one is gone.
            let _ = CANCEL.try_with(|cell| cell.set(outer));
        }
    }
    let outer = CANCEL.try_with(|cell| cell.replace(Some(task)));
    let _restore = Restore(outer.ok().flatten());
    part()
}

impl<T, E, F> CancelFlag for TaskCell<T, E, F> {
    fn is_cancel_requested(&self) -> bool {
        self.cancel.load(Ordering::Acquire)
    }
}

/// Whether the running task has been asked to stop: by [`Handle::cancel`](crate::Handle::cancel), or
/// because its job was cancelled or has failed.
///
/// A body that takes long asks now and then and returns early. Outside a task, and in one that has no
/// handle and belongs to no job, it is always false.
///
/// ```
/// use keylane::Pool;
///
/// let pool = Pool::<&str>::builder().build()?;
/// let endless = pool.submit("key", || while !keylane::is_cancelled() { std::thread::yield_now() })?;
/// endless.cancel();
/// assert!(endless.wait().is_ok());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn is_cancelled() -> bool {
    let asked = CANCEL.try_with(|cell| {
        let flag = cell.take();
        let cancelled = flag.as_ref().is_some_and(|flag| flag.is_cancel_requested());
        cell.set(flag);
        cancelled
    });
    // A destructor of another thread local may ask when this one is gone: no task runs then.
    asked.unwrap_or(false)
}

/// The name of the task that this thread runs, if it has a handle.
pub(crate) fn current_name() -> Option<usize> {
    let name = CANCEL.try_with(|cell| {
        let flag = cell.take();
        let name = flag.as_ref().map(name_of);
        cell.set(flag);
        name
    });
    name.ok().flatten()
}

impl<T, E, F> TaskCell<T, E, F> {
    pub(crate) fn new(body: F) -> Self {
        TaskCell {
            state: Mutex::new(CellInner {
                state: CellState::Waiting(body),
                waker: None,
                turn: None,
                awaited: false,
            }),
            completed: Condvar::new(),
            cancel: AtomicBool::new(false),
        }
    }

    /// The body, if the task has not begun; it never will.
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

    /// Drops the body if the task has not begun, and says whether that was so. It has ended like this.
    pub(crate) fn drop_unrun(&self, outcome: Outcome<T, E>) -> bool {
        /// Settles even if the drop of the captures panics: somebody may wait.
        struct CompleteOnDrop<'a, T, E, F>(&'a TaskCell<T, E, F>, Option<Outcome<T, E>>);
        impl<T, E, F> Drop for CompleteOnDrop<'_, T, E, F> {
            fn drop(&mut self) {
                if let Some(outcome) = self.1.take() {
                    self.0.complete(outcome);
                }
            }
        }
        // For as long as the drop takes it is this thread's, as if it ran.
        let Some(body) = self.begin() else { return false };
        let _complete = CompleteOnDrop(self, Some(outcome));
        drop(body);
        true
    }

    /// Drops the body if the task has not begun, for another has its place, and then ends `turn`:
    /// what keeps that other from beginning. If another thread drops the body, that thread ends it.
    pub(crate) fn supersede_cell(&self, turn: Turn) {
        let mut turn = Some(turn);
        if !self.drop_unrun(Outcome::Superseded) {
            self.end_when_dropped(|| turn.take().expect("it is taken once"));
        }
        if let Some(turn) = turn {
            turn.end(TurnResult::Void);
        }
    }

    /// The body, to be run now.
    pub(crate) fn begin(&self) -> Option<F> {
        let mut inner = self.state.lock();
        let running = CellState::Running(std::thread::current().id());
        match std::mem::replace(&mut inner.state, running) {
            CellState::Waiting(body) => Some(body),
            other => {
                inner.state = other;
                None
            }
        }
    }

    /// Ends a turn when the captures of this task are gone: at once, unless another thread drops
    /// them at this moment. Then that thread ends it, and the caller goes on with other work.
    ///
    /// No turn is left behind: the state is `Running` under the lock when the turn is put there, and
    /// `complete` takes it in the section that ends this state. No turn is early: `complete` comes after
    /// the drop.
    pub(crate) fn end_when_dropped(&self, turn: impl FnOnce() -> Turn) {
        if !self.is_running() {
            return;
        }
        // Made before the lock is taken: it takes another.
        let turn = turn();
        let mut inner = self.state.lock();
        if matches!(inner.state, CellState::Running(_)) {
            debug_assert!(inner.turn.is_none(), "a task is reached once");
            inner.turn = Some(turn);
            return;
        }
        drop(inner);
        turn.end(TurnResult::Void);
    }

    fn is_running(&self) -> bool {
        matches!(self.state.lock().state, CellState::Running(_))
    }

    /// Publishes the outcome, unless there is one. Wakes after the lock is released, and then ends a
    /// turn that waited for the captures to go.
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
            // What it wakes is another task, whose panic is not this one's.
            call_catch_unwind(|| waker.wake());
        }
        if let Some(turn) = turn {
            turn.end(TurnResult::Void);
        }
    }
}

/// For a body that goes on beyond `run`.
#[cfg(feature = "tokio")]
impl<T, E, F> TaskCell<T, E, F> {
    /// The body goes on elsewhere, on no thread in particular.
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
    fn run(self: Arc<Self>, ctx: &mut dyn ExecContext) {
        let Some(body) = self.begin() else {
            // Cancelled meanwhile: the turn passes, and nothing runs in it.
            ctx.cancelled();
            return self.end_when_dropped(|| ctx.keep_turn());
        };
        let call = AssertUnwindSafe(|| body.call());
        let result = with_cancel_flag(self.clone(), || catch_unwind(call));
        self.complete(match result {
            Ok(Ok(value)) => Outcome::Completed(value),
            Ok(Err(error)) => {
                ctx.failed();
                Outcome::Failed(error)
            }
            Err(payload) => {
                ctx.panicked(&*payload);
                Outcome::Panicked(PanicPayload::new(payload))
            }
        });
    }

    fn abandon(&self) {
        self.drop_unrun(Outcome::Cancelled);
    }

    fn supersede(&self, turn: Turn) {
        self.supersede_cell(turn);
    }
}

/// How far a task is, as its handle knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskPhase {
    /// It has not begun.
    Waiting,
    /// It runs, on this thread if on any in particular.
    Running(Option<ThreadId>),
    /// It has ended, or never will begin.
    Over,
}

/// A slot, as its handle sees it.
pub(crate) trait JoinState<T, E>: Send + Sync {
    /// The outcome, if it is known. Else the waker will be woken when it is.
    fn poll(&self, waker: Option<&Waker>) -> Option<Outcome<T, E>>;

    /// Blocks until the outcome is known, or the deadline. Nothing if it was taken already.
    fn wait(&self, deadline: Option<Instant>) -> Option<Outcome<T, E>>;

    fn is_completed(&self) -> bool;

    /// How far the task is.
    fn phase(&self) -> TaskPhase;

    /// Whether the calling thread runs the body.
    fn runs_here(&self) -> bool;

    /// Whether the task will not run, or else was asked to stop.
    fn cancel(&self) -> bool;
}

impl<T, E, F> JoinState<T, E> for TaskCell<T, E, F>
where
    T: Send,
    E: Send,
    F: Send,
{
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
            CellState::Completed(_) | CellState::Taken => TaskPhase::Over,
        }
    }

    fn runs_here(&self) -> bool {
        matches!(self.state.lock().state, CellState::Running(on) if on == std::thread::current().id())
    }

    fn cancel(&self) -> bool {
        // The captures go now; the task's place in the line stays, so no successor jumps.
        let in_time = self.drop_unrun(Outcome::Cancelled);
        if !in_time {
            self.cancel.store(true, Ordering::Release);
        }
        in_time
    }
}

impl<T, E, F> CellInner<T, E, F> {
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
