//! Pool of workers that runs closures and keeps the tasks of each key in order.

mod execute;
mod finish;
#[cfg(feature = "tokio")]
mod future;
mod jobs;
mod latest;
mod pending_task;
mod submit;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use self::finish::OnClosedKey;
pub use self::pending_task::PendingTask;
use crate::admit::Cost;
use crate::builder::{Builder, KeyBuildHasher};
use crate::complete::Handle;
use crate::control::{Inspector, Keys, Settings, TakeKey};
use crate::engine::{Engine, Execute, Key, WaitLimit};
use crate::error::{BatchError, ShutdownError};
use crate::job::KeyedSubtask;
use crate::order::{Claims, SlotRef};
use crate::run::{ExecContext, TaskBody};

/// Pool of workers that keeps the tasks of each key in order.
///
/// See the [crate's documentation](crate) for its guarantees.
///
/// # Submitting
///
/// | | waits for capacity | waits at most a timeout | never waits | as a future |
/// |---|---|---|---|---|
/// | with a [`Handle`] | [`submit`](Self::submit) | [`submit_timeout`](Self::submit_timeout) | [`try_submit`](Self::try_submit) | [`submit_async`](Self::submit_async) |
/// | without | [`execute`](Self::execute) | [`execute_timeout`](Self::execute_timeout) | [`try_execute`](Self::try_execute) | [`execute_async`](Self::execute_async) |
///
/// [`submit_many`](Self::submit_many) and [`execute_many`](Self::execute_many) take a batch in one
/// pass. An executed closure that captures up to four words is stored in place, without an
/// allocation.
///
/// # Closing
///
/// [`close`](Self::close) refuses new work, [`shutdown`](Self::shutdown) and
/// [`shutdown_timeout`](Self::shutdown_timeout) close and wait for the accepted tasks,
/// [`shutdown_now`](Self::shutdown_now) closes and returns the tasks that have not begun. Dropping
/// the pool stops it, drops the tasks that have not begun, and waits for the running bodies. Each
/// can be called from any thread, and from inside a task.
pub struct Pool<K: Key, S = KeyBuildHasher>
where
    S: BuildHasher + Send + Sync + 'static,
{
    engine: Arc<Engine<K, Closures, S>>,
}

/// Executor of closures.
pub(crate) struct Closures;

impl<K: Key> Execute<K> for Closures {
    type Work = TaskBody;
    const WANTS_KEY: bool = false;
    const DROPS_REPLACED: bool = true;

    #[inline]
    fn execute(&self, _: Option<&K>, work: SlotRef<'_, TaskBody>, ctx: &mut dyn ExecContext) {
        TaskBody::run_in_slot(work, ctx);
    }

    fn name(work: &TaskBody) -> Option<usize> {
        work.name()
    }

    fn may_take(work: &TaskBody) -> bool {
        !work.is::<KeyedSubtask>()
    }

    fn charge(work: TaskBody, cost: Cost) -> TaskBody {
        work.with(cost)
    }
}

/// Returned by a rejected submission: the claims and the closure.
type Submission<K, F> = (Claims<K>, F);

/// Returned by a batch that is cut short: the handles so far, and the other submissions.
type BatchRejected<K, T, F> = BatchError<Vec<Handle<T>>, Submission<K, F>>;

impl<K: Key> Pool<K> {
    /// Returns a builder of pools.
    pub fn builder() -> Builder<K> {
        Builder::default()
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    pub(crate) fn new(engine: Arc<Engine<K, Closures, S>>) -> Self {
        Pool { engine }
    }

    /// Refuses new work from now on. Accepted tasks go on, as long as the pool lives: dropping a
    /// closed pool drops the tasks that have not begun, as dropping an open one does.
    /// [`shutdown`](Self::shutdown) it first to run all of them.
    pub fn close(&self) {
        self.engine.close();
    }

    /// Returns whether new work is refused.
    pub fn is_closed(&self) -> bool {
        self.engine.admission.is_closed()
    }

    /// Closes the pool and waits until all accepted tasks have ended.
    ///
    /// # Errors
    ///
    /// [`ShutdownError::FromInside`], at once, if the caller is a task of the pool, which would
    /// wait for its own end. [`ShutdownError::Poisoned`] if a panic has ended the pool.
    pub fn shutdown(&self) -> Result<(), ShutdownError> {
        self.engine.drain_for(None)
    }

    /// Closes the pool and waits until all accepted tasks have ended, for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`ShutdownError::TimedOut`] if some have not ended: they go on, and the pool stays closed.
    /// Otherwise as for [`shutdown`](Self::shutdown).
    pub fn shutdown_timeout(&self, timeout: Duration) -> Result<(), ShutdownError> {
        self.engine.drain_for(Some(timeout))
    }

    /// Closes the pool, lets the running bodies end, and returns exactly the tasks that have not
    /// begun, in an order in which they could have run. It does not wait for the bodies. Jobs are
    /// cancelled.
    pub fn shutdown_now(&self) -> Vec<PendingTask<K>> {
        // Entries of a job's subtasks in the lanes are no tasks of their own; the jobs are
        // cancelled.
        let unrun = self.engine.stop().into_iter().filter(|task| !task.work.is::<KeyedSubtask>());
        unrun.map(|task| PendingTask { claims: task.claims, body: task.work }).collect()
    }

    /// Returns the operations on single keys: pause, resume, take, reopen, rates.
    pub fn keys(&self) -> Keys<'_, K, PendingTask<K>> {
        Keys::new(&self.engine)
    }

    /// Returns the diagnostics: explanations, snapshots, stalls, traces.
    pub fn inspect(&self) -> Inspector<'_, K> {
        Inspector::new(&self.engine)
    }

    /// Returns the settings that can change while the pool runs.
    pub fn settings(&self) -> Settings<'_> {
        Settings::new(&self.engine)
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> TakeKey<K, PendingTask<K>>
    for Arc<Engine<K, Closures, S>>
{
    fn take(&self, key: &K) -> Vec<PendingTask<K>> {
        let taken = self.take_key(key).into_iter();
        taken.map(|task| PendingTask { claims: task.claims, body: task.work }).collect()
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Drop for Pool<K, S> {
    fn drop(&mut self) {
        self.engine.shut_down();
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> fmt::Debug for Pool<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("settings", &self.engine.settings).finish_non_exhaustive()
    }
}

impl WaitLimit {
    pub(crate) fn for_at_most(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(WaitLimit::Endless, WaitLimit::Until)
    }
}

#[cfg(all(test, not(loom)))]
impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Returns the engine, for tests of its parts.
    pub(crate) fn engine(&self) -> &Arc<Engine<K, Closures, S>> {
        &self.engine
    }
}
