//! Progress of a task: which thread may take its body or its outcome, and when.
//!
//! The types of a body and of its outcome differ from task to task. What needs neither of them is here,
//! where it is compiled once.

use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use crate::run::{Turn, TurnResult};
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard, Ordering, wait, wait_timeout};
use crate::unwind::{call_catch_unwind, drop_catch_unwind};

/// Progress of a task, shared by its worker and its handle.
///
/// `repr(C)`, here and where it is a field: the lock and the step follow the counts of the `Arc`, in the
/// cache line that a worker has prefetched.
#[repr(C)]
pub(crate) struct TaskProgress {
    state: Mutex<ProgressState>,
    /// Signaled when the step becomes `Completed`, if a thread waits.
    completed: Condvar,
    /// Set when the handle asks a running body to stop. Polled by the body.
    cancel: AtomicBool,
}

#[repr(C)]
struct ProgressState {
    step: Step,
    /// Whether a thread waits for `completed`. Otherwise no signal is sent, which would cost a
    /// system call.
    awaited: bool,
    /// Waker of the future that awaits the handle, to be woken when the step becomes `Completed`.
    waker: Option<Waker>,
    /// Turn of a task whose captures another thread drops. Stored by the worker that reached the
    /// task; taken and ended by the dropping thread when it completes the task. Also the turn of a
    /// suspended task, taken by its next attempt; and the entry of a delayed task, which a
    /// cancellation withdraws. Empty if there is none: an `Option` would be larger.
    turn: Turn,
}

/// Step of a task's life, with the value that its cell has then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Not started; the cell has the body. Exits: `Running`; `Completed`, if the task is rejected.
    Waiting,
    /// A thread runs the body, or drops it; the cell has the thread. Exits: `Suspended`, `Elsewhere`;
    /// `Completed`, after which `turn` ends.
    Running,
    /// An attempt has failed, and another one follows; the cell has the body, and `turn` holds the
    /// keys. Exit: `Running`, also if the task is cancelled or abandoned.
    Suspended,
    /// A future that was spawned; the cell is empty. Exit: `Completed`.
    #[cfg(feature = "tokio")]
    Elsewhere,
    /// Ended; the cell has the outcome. Exit: `Taken`.
    Completed,
    /// The handle has taken the outcome; the cell is empty. No exit.
    Taken,
}

/// Locked progress. Its owner alone may access the value in the cell, and has to leave the one that
/// the step says before the lock is released.
pub(crate) struct LockedProgress<'p> {
    progress: &'p TaskProgress,
    state: MutexGuard<'p, ProgressState>,
    /// Waker that is not needed. The last field, so that it is dropped when the lock is released.
    unused: Option<Waker>,
}

impl TaskProgress {
    #[inline]
    pub(super) fn new() -> Self {
        TaskProgress {
            state: Mutex::new(ProgressState {
                step: Step::Waiting,
                awaited: false,
                waker: None,
                turn: Turn::empty(),
            }),
            completed: Condvar::new(),
            cancel: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn lock(&self) -> LockedProgress<'_> {
        LockedProgress { progress: self, state: self.state.lock(), unused: None }
    }

    /// Returns whether the handle has asked the body to stop.
    pub(super) fn is_cancelled(&self) -> bool {
        self.cancel.load(Ordering::Acquire)
    }

    /// Asks the body to stop. A caller then looks for the body: see [`suspend`](Self::suspend).
    pub(super) fn request_cancel(&self) {
        self.cancel.store(true, Ordering::Release);
    }

    /// Begins to run or to drop the body, if the task does not run. The caller takes it, and leaves its
    /// thread.
    #[inline]
    pub(super) fn begin(&self) -> Option<LockedProgress<'_>> {
        let mut locked = self.lock();
        locked.state.begin().then_some(locked)
    }

    /// Like [`begin`](Self::begin), where no other thread knows the task.
    #[inline]
    pub(super) fn begin_unshared(&mut self) -> bool {
        self.state.get_mut().begin()
    }

    /// Completes a task that has not started. The caller takes the body, and leaves the outcome.
    pub(super) fn begin_rejection(&self) -> Option<LockedProgress<'_>> {
        let mut locked = self.lock();
        if locked.state.step != Step::Waiting {
            return None;
        }
        locked.state.step = Step::Completed;
        Some(locked)
    }

    /// Keeps the turn of a task whose attempt has failed for its next attempt; the caller leaves the
    /// body. Returns the turn if the task was cancelled: then no attempt follows.
    pub(super) fn suspend(&self, turn: Turn) -> Result<(LockedProgress<'_>, Turn), Turn> {
        let mut locked = self.lock();
        // A cancellation that comes later finds the body, since it takes the lock after it has set
        // the flag.
        if self.is_cancelled() {
            return Err(turn);
        }
        debug_assert_eq!(locked.state.step, Step::Running, "an attempt has just failed");
        locked.state.step = Step::Suspended;
        let before = std::mem::replace(&mut locked.state.turn, turn);
        Ok((locked, before))
    }

    /// Begins the next attempt of a suspended task. The caller takes the body, and leaves its thread.
    pub(super) fn resume(&self) -> Option<(LockedProgress<'_>, Turn)> {
        let mut locked = self.lock();
        if locked.state.step != Step::Suspended {
            return None;
        }
        let turn = locked.state.turn.take()?;
        locked.state.begin().then_some((locked, turn))
    }

    /// Marks the body as running outside of its thread, which the caller removes.
    #[cfg(feature = "tokio")]
    pub(super) fn leave_thread(&self) -> Option<LockedProgress<'_>> {
        let mut locked = self.lock();
        if locked.state.step != Step::Running {
            return None;
        }
        locked.state.step = Step::Elsewhere;
        Some(locked)
    }

    /// Locks a task that has no outcome yet. The caller leaves one, and calls
    /// [`complete`](LockedProgress::complete).
    #[inline]
    pub(super) fn lock_to_complete(&self) -> Option<LockedProgress<'_>> {
        let locked = self.lock();
        (!locked.state.is_over()).then_some(locked)
    }

    /// Drops the waker of a task that no handle can reach any more, and ends its turn.
    #[inline]
    pub(super) fn end_unobserved(&mut self) {
        let state = self.state.get_mut();
        let (waker, turn) = (state.waker.take(), state.turn.take());
        drop_catch_unwind(waker);
        end_turn(turn);
    }

    /// Ends the turn of a task that was replaced by a newer one, which it keeps from starting: now if
    /// the caller has dropped the captures, and otherwise when the thread that drops them has.
    pub(super) fn end_superseded(&self, turn: Turn, has_dropped: bool) {
        let mut turn = Some(turn);
        if !has_dropped {
            self.end_when_dropped(&mut || turn.take().expect("the turn is taken once"));
        }
        end_turn(turn);
    }

    /// Ends a turn when the captures of this task are dropped: at once, unless another thread is
    /// dropping them now. Then that thread ends it, and the caller continues with other work.
    ///
    /// No turn is leaked: the step is `Running` under the lock when the turn is stored, and
    /// `complete` takes it in the critical section that ends this step. No turn ends early:
    /// `complete` comes after the drop.
    pub(super) fn end_when_dropped(&self, turn: &mut dyn FnMut() -> Turn) {
        if self.state.lock().step != Step::Running {
            return;
        }
        // Created before the lock is taken, because this takes another lock.
        let turn = turn();
        let mut state = self.state.lock();
        if state.step == Step::Running {
            let before = std::mem::replace(&mut state.turn, turn);
            drop(state);
            return drop(before);
        }
        drop(state);
        turn.end(TurnResult::Void);
    }

    /// Ends `turn`, which holds no key, when the task has ended, or before, if it has begun.
    pub(super) fn end_with(&self, turn: Turn) {
        let mut state = self.state.lock();
        if state.step == Step::Waiting {
            state.turn = turn;
            return;
        }
        drop(state);
        turn.end(TurnResult::Void);
    }

    /// Locks a task that has an outcome, which the caller takes; otherwise stores the waker, to be
    /// woken at the end.
    pub(super) fn poll(&self, waker: Option<&Waker>) -> Option<LockedProgress<'_>> {
        let mut locked = self.lock();
        if locked.state.take_outcome() {
            return Some(locked);
        }
        let waker = waker?;
        if locked.state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return None;
        }
        drop(locked);
        // A waker's clone and drop are user code, so neither runs under the lock.
        let waker = waker.clone();
        let mut locked = self.lock();
        if locked.state.take_outcome() {
            locked.unused = Some(waker);
            return Some(locked);
        }
        let before = locked.state.waker.replace(waker);
        drop(locked);
        drop(before);
        None
    }

    /// Blocks until the task has an outcome, which the caller takes, or the deadline has passed.
    /// Returns `None` at the deadline, or if the outcome was taken before.
    pub(super) fn wait(&self, deadline: Option<Instant>) -> Option<LockedProgress<'_>> {
        let mut state = self.state.lock();
        loop {
            if state.take_outcome() {
                return Some(LockedProgress { progress: self, state, unused: None });
            }
            if state.step == Step::Taken {
                return None;
            }
            state.awaited = true;
            state = match deadline {
                None => wait(&self.completed, state),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    wait_timeout(&self.completed, state, left)
                }
            };
        }
    }

    pub(crate) fn is_completed(&self) -> bool {
        self.state.lock().is_over()
    }
}

impl LockedProgress<'_> {
    /// Returns whether this is the lock of `progress`.
    pub(super) fn is_of(&self, progress: &TaskProgress) -> bool {
        std::ptr::eq(self.progress, progress)
    }

    /// Returns whether the task has not begun.
    pub(super) fn waits(&self) -> bool {
        self.state.step == Step::Waiting
    }

    /// Returns whether the task has ended.
    pub(super) fn is_over(&self) -> bool {
        self.state.is_over()
    }

    /// Publishes the outcome that the caller has left in the cell. Wakes waiters after the lock is
    /// released, and then ends the turn stored by `end_when_dropped`.
    #[inline]
    pub(super) fn complete(mut self) {
        self.state.step = Step::Completed;
        let (waker, turn) = (self.state.waker.take(), self.state.turn.take());
        let awaited = self.state.awaited;
        drop(self.state);
        if awaited {
            self.progress.completed.notify_all();
        }
        if let Some(waker) = waker {
            // The waker runs foreign code, whose panic is not this task's.
            call_catch_unwind(|| waker.wake());
        }
        end_turn(turn);
    }
}

impl ProgressState {
    #[inline]
    fn begin(&mut self) -> bool {
        let begins = matches!(self.step, Step::Waiting | Step::Suspended);
        if begins {
            self.step = Step::Running;
        }
        begins
    }

    #[inline]
    fn take_outcome(&mut self) -> bool {
        let has_outcome = self.step == Step::Completed;
        if has_outcome {
            self.step = Step::Taken;
        }
        has_outcome
    }

    #[inline]
    fn is_over(&self) -> bool {
        matches!(self.step, Step::Completed | Step::Taken)
    }
}

#[inline]
fn end_turn(turn: Option<Turn>) {
    if let Some(turn) = turn {
        turn.end(TurnResult::Void);
    }
}

/// Returns the value that an `Arc` owns if it has no other owner: then no lock is needed.
///
/// `get_mut` alone would decide, with an atomic operation also where another owner exists.
pub(super) fn only_owner<C>(cell: &mut Arc<C>) -> Option<&mut C> {
    if Arc::strong_count(cell) == 1 { Arc::get_mut(cell) } else { None }
}
