//! What a task and its handle share: first the body, then the outcome.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::Waker;
use std::thread::ThreadId;
use std::time::Instant;

use super::{Attempt, Outcome, PanicPayload};
use crate::quiet::{drop_quietly, quietly};
use crate::run::{Fate, RunShared, Stage, Turn, name_of};
use crate::sync::{AtomicBool, Condvar, Mutex, Ordering, wait, wait_timeout};

/// Shared by a task and its handle.
pub(crate) struct Slot<T, E, F> {
    state: Mutex<Shared<T, E, F>>,
    /// Signaled when the state becomes `Settled`, if a thread waits.
    settled: Condvar,
    /// The handle has asked the body to stop. Read by the body as often as it likes.
    cancel: AtomicBool,
}

struct Shared<T, E, F> {
    /// How far the task is.
    state: State<T, E, F>,
    /// Whom to wake when the state becomes `Settled`.
    waker: Option<Waker>,
    /// The turn of a task whose captures another thread drops. Put here by the worker that reached
    /// the task, taken and ended by that thread when it settles the task.
    turn: Option<Turn>,
    /// A thread waits for `settled`. Without one no signal is given, which would be a system call.
    awaited: bool,
}

/// A task as its handle knows it.
enum State<T, E, F> {
    /// It has not begun. Exits: `Running`; `Settled`, if it is cancelled or abandoned.
    Waiting(F),
    /// Its body runs, or is dropped unrun, on this thread. Exit: `Settled`, and then `Shared::turn`
    /// ends.
    Running(ThreadId),
    /// It is a future that has begun. Exit: `Settled`.
    #[cfg(feature = "tokio")]
    RunningElsewhere,
    /// It has ended. Exit: `Taken`.
    Settled(Outcome<T, E>),
    /// The handle has taken the outcome.
    Taken,
}

thread_local! {
    /// Whether the handle of the task that this thread runs has asked it to stop.
    static CANCEL: Cell<Option<Arc<dyn AskedToStop>>> = const { Cell::new(None) };
}

/// What a body asks when it asks whether it is to stop.
pub(crate) trait AskedToStop {
    fn is_asked_to_stop(&self) -> bool;
}

impl AskedToStop for AtomicBool {
    fn is_asked_to_stop(&self) -> bool {
        self.load(Ordering::Acquire)
    }
}

/// Runs a body, or a part of it, in which `is_cancelled` answers for its task. There is an outer one
/// if a task runs a stopped pool's task inside its own body. A part that unwinds restores it as well.
pub(crate) fn answering<R>(task: Arc<dyn AskedToStop>, part: impl FnOnce() -> R) -> R {
    struct Restore(Option<Arc<dyn AskedToStop>>);
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

impl<T, E, F> AskedToStop for Slot<T, E, F> {
    fn is_asked_to_stop(&self) -> bool {
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
        let slot = cell.take();
        let cancelled = slot.as_ref().is_some_and(|slot| slot.is_asked_to_stop());
        cell.set(slot);
        cancelled
    });
    // A destructor of another thread local may ask when this one is gone: no task runs then.
    asked.unwrap_or(false)
}

/// The name of the task that this thread runs, if it has a handle.
pub(crate) fn current_name() -> Option<usize> {
    let name = CANCEL.try_with(|cell| {
        let slot = cell.take();
        let name = slot.as_ref().map(name_of);
        cell.set(slot);
        name
    });
    name.ok().flatten()
}

impl<T, E, F> Slot<T, E, F> {
    pub(crate) fn new(body: F) -> Self {
        Slot {
            state: Mutex::new(Shared {
                state: State::Waiting(body),
                waker: None,
                turn: None,
                awaited: false,
            }),
            settled: Condvar::new(),
            cancel: AtomicBool::new(false),
        }
    }

    /// The body, if the task has not begun; it never will.
    pub(crate) fn take_body(&self) -> Option<F> {
        let mut shared = self.state.lock();
        match std::mem::replace(&mut shared.state, State::Settled(Outcome::Cancelled)) {
            State::Waiting(body) => Some(body),
            other => {
                shared.state = other;
                None
            }
        }
    }

    /// Drops the body if the task has not begun, and says whether that was so. It has ended like this.
    pub(crate) fn forgo(&self, outcome: Outcome<T, E>) -> bool {
        /// Settles even if the drop of the captures panics: somebody may wait.
        struct Settle<'a, T, E, F>(&'a Slot<T, E, F>, Option<Outcome<T, E>>);
        impl<T, E, F> Drop for Settle<'_, T, E, F> {
            fn drop(&mut self) {
                if let Some(outcome) = self.1.take() {
                    self.0.settle(outcome);
                }
            }
        }
        // For as long as the drop takes it is this thread's, as if it ran.
        let Some(body) = self.begin() else { return false };
        let _settle = Settle(self, Some(outcome));
        drop(body);
        true
    }

    /// Drops the body if the task has not begun, for another has its place, and then ends `turn`:
    /// what keeps that other from beginning. If another thread drops the body, that thread ends it.
    pub(crate) fn supersede_slot(&self, turn: Turn) {
        let mut turn = Some(turn);
        if !self.forgo(Outcome::Superseded) {
            self.end_when_dropped(|| turn.take().expect("it is taken once"));
        }
        if let Some(turn) = turn {
            turn.end(Fate::Void);
        }
    }

    /// The body, to be run now.
    pub(crate) fn begin(&self) -> Option<F> {
        let mut shared = self.state.lock();
        let running = State::Running(std::thread::current().id());
        match std::mem::replace(&mut shared.state, running) {
            State::Waiting(body) => Some(body),
            other => {
                shared.state = other;
                None
            }
        }
    }

    /// Ends a turn when the captures of this task are gone: at once, unless another thread drops
    /// them at this moment. Then that thread ends it, and the caller goes on with other work.
    ///
    /// No turn is left behind: the state is `Running` under the lock when the turn is put there, and
    /// `settle` takes it in the section that ends this state. No turn is early: `settle` comes after
    /// the drop.
    pub(crate) fn end_when_dropped(&self, turn: impl FnOnce() -> Turn) {
        if !self.is_running() {
            return;
        }
        // Made before the lock is taken: it takes another.
        let turn = turn();
        let mut shared = self.state.lock();
        if matches!(shared.state, State::Running(_)) {
            debug_assert!(shared.turn.is_none(), "a task is reached once");
            shared.turn = Some(turn);
            return;
        }
        drop(shared);
        turn.end(Fate::Void);
    }

    fn is_running(&self) -> bool {
        matches!(self.state.lock().state, State::Running(_))
    }

    /// Publishes the outcome, unless there is one. Wakes after the lock is released, and then ends a
    /// turn that waited for the captures to go.
    pub(crate) fn settle(&self, outcome: Outcome<T, E>) {
        let mut shared = self.state.lock();
        if matches!(shared.state, State::Settled(_) | State::Taken) {
            drop(shared);
            return drop_quietly(outcome);
        }
        shared.state = State::Settled(outcome);
        let (waker, turn, awaited) = (shared.waker.take(), shared.turn.take(), shared.awaited);
        drop(shared);
        if awaited {
            self.settled.notify_all();
        }
        if let Some(waker) = waker {
            // What it wakes is another task, whose panic is not this one's.
            quietly(|| waker.wake());
        }
        if let Some(turn) = turn {
            turn.end(Fate::Void);
        }
    }
}

/// For a body that goes on beyond `run`.
#[cfg(feature = "tokio")]
impl<T, E, F> Slot<T, E, F> {
    /// The body goes on elsewhere, on no thread in particular.
    pub(crate) fn leave_thread(&self) {
        let mut shared = self.state.lock();
        if matches!(shared.state, State::Running(_)) {
            shared.state = State::RunningElsewhere;
        }
    }
}

impl<T, E, F> RunShared for Slot<T, E, F>
where
    T: Send + 'static,
    E: Send + 'static,
    F: Attempt<T, E> + Send + 'static,
{
    fn run(self: Arc<Self>, stage: &mut dyn Stage) {
        let Some(body) = self.begin() else {
            // Cancelled meanwhile: the turn passes, and nothing runs in it.
            stage.cancelled();
            return self.end_when_dropped(|| stage.keep_turn());
        };
        let attempt = AssertUnwindSafe(|| body.attempt());
        let result = answering(self.clone(), || catch_unwind(attempt));
        self.settle(match result {
            Ok(Ok(value)) => Outcome::Done(value),
            Ok(Err(error)) => {
                stage.failed();
                Outcome::Failed(error)
            }
            Err(payload) => {
                stage.panicked(&*payload);
                Outcome::Panicked(PanicPayload::new(payload))
            }
        });
    }

    fn abandon(&self) {
        self.forgo(Outcome::Cancelled);
    }

    fn supersede(&self, turn: Turn) {
        self.supersede_slot(turn);
    }
}

/// How far a task is, as its handle knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It has not begun.
    Waiting,
    /// It runs, on this thread if on any in particular.
    Running(Option<ThreadId>),
    /// It has ended, or never will begin.
    Over,
}

/// A slot, as its handle sees it.
pub(crate) trait Watch<T, E>: Send + Sync {
    /// The outcome, if it is known. Else the waker will be woken when it is.
    fn poll(&self, waker: Option<&Waker>) -> Option<Outcome<T, E>>;

    /// Blocks until the outcome is known, or the deadline. Nothing if it was taken already.
    fn wait(&self, deadline: Option<Instant>) -> Option<Outcome<T, E>>;

    fn is_settled(&self) -> bool;

    /// How far the task is.
    fn phase(&self) -> Phase;

    /// Whether the calling thread runs the body.
    fn runs_here(&self) -> bool;

    /// Whether the task will not run, or else was asked to stop.
    fn cancel(&self) -> bool;
}

impl<T, E, F> Watch<T, E> for Slot<T, E, F>
where
    T: Send,
    E: Send,
    F: Send,
{
    fn poll(&self, waker: Option<&Waker>) -> Option<Outcome<T, E>> {
        let mut shared = self.state.lock();
        if let Some(outcome) = shared.take_outcome() {
            return Some(outcome);
        }
        let waker = waker?;
        if shared.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            return None;
        }
        drop(shared);
        // A waker's clone and drop are user code, so neither runs under the lock.
        let waker = waker.clone();
        let mut shared = self.state.lock();
        let outcome = shared.take_outcome();
        let unused = match outcome {
            Some(_) => Some(waker),
            None => shared.waker.replace(waker),
        };
        drop(shared);
        drop(unused);
        outcome
    }

    fn wait(&self, deadline: Option<Instant>) -> Option<Outcome<T, E>> {
        let mut shared = self.state.lock();
        loop {
            if let Some(outcome) = shared.take_outcome() {
                return Some(outcome);
            }
            if matches!(shared.state, State::Taken) {
                return None;
            }
            shared.awaited = true;
            shared = match deadline {
                None => wait(&self.settled, shared),
                Some(at) => {
                    let left = at.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return None;
                    }
                    wait_timeout(&self.settled, shared, left)
                }
            };
        }
    }

    fn is_settled(&self) -> bool {
        matches!(self.state.lock().state, State::Settled(_) | State::Taken)
    }

    fn phase(&self) -> Phase {
        match self.state.lock().state {
            State::Waiting(_) => Phase::Waiting,
            State::Running(thread) => Phase::Running(Some(thread)),
            #[cfg(feature = "tokio")]
            State::RunningElsewhere => Phase::Running(None),
            State::Settled(_) | State::Taken => Phase::Over,
        }
    }

    fn runs_here(&self) -> bool {
        matches!(self.state.lock().state, State::Running(on) if on == std::thread::current().id())
    }

    fn cancel(&self) -> bool {
        // The captures go now; the task's place in the line stays, so no successor jumps.
        let in_time = self.forgo(Outcome::Cancelled);
        if !in_time {
            self.cancel.store(true, Ordering::Release);
        }
        in_time
    }
}

impl<T, E, F> Shared<T, E, F> {
    fn take_outcome(&mut self) -> Option<Outcome<T, E>> {
        match std::mem::replace(&mut self.state, State::Taken) {
            State::Settled(outcome) => Some(outcome),
            other => {
                self.state = other;
                None
            }
        }
    }
}
