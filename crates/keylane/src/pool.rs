//! Pool of workers that runs closures and keeps the tasks of each key in order.

mod batch;
mod closures;
mod jobs;
mod pending_task;
mod scope;
mod scoped_body;
mod submit;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::closures::ClosureExecutor;
pub use self::pending_task::PendingTask;
pub use self::scope::Scope;
pub use self::scoped_body::ScopeError;
use self::scoped_body::ScopedBody;
use crate::control::{Inspector, Keys, Settings, TakeKey};
use crate::engine::{Engine, EngineOwner, Key};
use crate::error::WaitError;
use crate::job::KeyedSubtask;
use crate::key_hasher::KeyBuildHasher;
use crate::run::TaskBody;

/// Pool of workers that keeps the tasks of each key in order.
///
/// See the [crate's documentation](crate) for its guarantees.
///
/// # Submitting
///
/// [`submit`](Self::submit) returns a [`Handle`](crate::Handle), [`execute`](Self::execute) does
/// without, and [`try_submit`](Self::try_submit) never waits for capacity. For everything else
/// there is [`task`](Self::task): timeouts, futures, fallible work, tasks that replace earlier
/// ones, and submission without blocking the thread.
///
/// [`submit_many`](Self::submit_many) and [`execute_many`](Self::execute_many) take a batch in one
/// pass. An executed closure that captures up to four words is stored in place, without an
/// allocation.
///
/// [`scope`](Self::scope) is for tasks that borrow. Clones are the same pool.
///
/// # Closing
///
/// [`close`](Self::close) refuses new work, [`shutdown`](Self::shutdown) and
/// [`shutdown_timeout`](Self::shutdown_timeout) close and wait for the accepted tasks,
/// [`shutdown_now`](Self::shutdown_now) closes and returns the tasks that have not begun.
/// [`wait_idle`](Self::wait_idle) waits for the accepted tasks and leaves the pool open. Dropping the
/// pool stops it, drops the tasks that have not begun, and waits for the running bodies. Each
/// can be called from any thread, and from inside a task.
pub struct Pool<K: Key, S = KeyBuildHasher>
where
    S: BuildHasher + Send + Sync + 'static,
{
    engine: Arc<Engine<K, ClosureExecutor, S>>,
    owner: Arc<EngineOwner<K, ClosureExecutor, S>>,
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    pub(crate) fn new(engine: Arc<Engine<K, ClosureExecutor, S>>) -> Self {
        Pool { owner: EngineOwner::new(&engine), engine }
    }

    /// Refuses new work from now on. Accepted tasks go on, as long as the pool lives: dropping a
    /// closed pool drops the tasks that have not begun, as dropping an open one does.
    /// [`shutdown`](Self::shutdown) it first to run all of them.
    ///
    /// ```
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let accepted = pool.submit(7, || "accepted")?;
    /// pool.close();
    /// assert_eq!(pool.execute(7, || ()).unwrap_err().kind(), SubmitErrorKind::Closed);
    /// assert_eq!(accepted.join()?, "accepted");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.engine.close();
    }

    /// Returns whether new work is refused.
    ///
    /// ```
    /// let pool = keylane::Pool::<u32>::builder().build()?;
    /// assert!(!pool.is_closed());
    /// pool.close();
    /// assert!(pool.is_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_closed(&self) -> bool {
        self.engine.admission.is_closed()
    }

    /// Closes the pool and waits until all accepted tasks have ended.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let pool = Pool::<u32>::builder().build()?;
    /// for n in 0..10 {
    ///     let tell = tell.clone();
    ///     pool.execute(7, move || tell.send(n).unwrap())?;
    /// }
    /// pool.shutdown()?;
    /// assert_eq!(told.try_iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitError::FromInside`], at once, if the caller is a task of the pool, which would
    /// wait for its own end. [`WaitError::Poisoned`] if a panic has ended the pool.
    pub fn shutdown(&self) -> Result<(), WaitError> {
        self.engine.drain_for(None)
    }

    /// Closes the pool and waits until all accepted tasks have ended, for at most `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Pool, WaitError};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// pool.execute(7, || println!("accepted"))?;
    /// assert_eq!(pool.shutdown_timeout(Duration::from_millis(1)), Err(WaitError::TimedOut));
    /// pool.keys().resume(&7);
    /// assert_eq!(pool.shutdown_timeout(Duration::from_secs(60)), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitError::TimedOut`] if some have not ended: they go on, and the pool stays closed.
    /// Otherwise as for [`shutdown`](Self::shutdown).
    pub fn shutdown_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.engine.drain_for(Some(timeout))
    }

    /// Closes the pool and waits until all accepted tasks have ended, without blocking the thread.
    /// Needs no particular runtime.
    ///
    /// Cancel safe: the pool is closed when the future is first polled, and a dropped future only
    /// ends the wait.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = keylane::Pool::<u64>::builder().build()?;
    /// pool.execute(7, || println!("paid"))?;
    /// pool.shutdown_async().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`shutdown`](Self::shutdown).
    pub async fn shutdown_async(&self) -> Result<(), WaitError> {
        self.engine.drain_async().await
    }

    /// Waits until the pool is idle: returns at a moment without accepted and unfinished tasks.
    /// The pool stays open.
    ///
    /// - All tasks that were accepted before the call have ended then, and their effects are
    ///   visible to the caller. Tasks that other threads submit meanwhile may be accepted before
    ///   it returns. If they follow each other without a gap, the wait continues.
    /// - Tasks of paused keys, delayed ones, those between two attempts, and kept turns are
    ///   unfinished: the wait includes them.
    /// - During the wait each end of a task costs the pool a little more.
    ///
    /// ```
    /// let pool = keylane::Pool::<u64>::builder().build()?;
    /// for page in 0..100 {
    ///     pool.execute(page, move || println!("page {page}"))?;
    /// }
    /// pool.wait_idle()?; // all pages are done, and the pool takes more
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitError::FromInside`], at once, if the caller is a task of the pool, which would wait
    /// for its own end. [`WaitError::Poisoned`] if a panic has ended the pool.
    pub fn wait_idle(&self) -> Result<(), WaitError> {
        self.engine.wait_idle(None)
    }

    /// Waits until the pool is idle, as [`wait_idle`](Self::wait_idle) does, for at most `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Pool, WaitError};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// pool.execute(7, || println!("one"))?;
    /// assert_eq!(pool.wait_idle_timeout(Duration::from_millis(1)), Err(WaitError::TimedOut));
    /// pool.keys().resume(&7);
    /// assert_eq!(pool.wait_idle_timeout(Duration::from_secs(60)), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitError::TimedOut`] if the pool was not idle in time. Otherwise as for
    /// [`wait_idle`](Self::wait_idle).
    pub fn wait_idle_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.engine.wait_idle(Some(timeout))
    }

    /// Waits until the pool is idle, as [`wait_idle`](Self::wait_idle) does, without blocking the
    /// thread. Needs no particular runtime.
    ///
    /// Cancel safe: a dropped future only ends the wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.execute(7, move || tell.send("done").unwrap())?;
    /// pool.wait_idle_async().await?;
    /// assert_eq!(told.try_recv(), Ok("done"));
    /// pool.execute(7, || println!("the pool is open"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`wait_idle`](Self::wait_idle).
    pub async fn wait_idle_async(&self) -> Result<(), WaitError> {
        self.engine.wait_idle_async().await
    }

    /// Closes the pool, lets the running bodies end, and returns exactly the tasks that have not
    /// begun, in an order in which they could have run. It does not wait for the bodies. Jobs are
    /// cancelled, and so are tasks of a [scope](Self::scope).
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.keys().pause(&7);
    /// let first = pool.submit(7, || "first")?;
    /// let second = pool.submit(7, || "second")?;
    /// let mut not_begun = pool.shutdown_now().into_iter();
    /// not_begun.next().unwrap().run(); // on this thread
    /// drop(not_begun);
    /// assert_eq!(first.join()?, "first");
    /// assert!(second.wait()?.is_cancelled());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_now(&self) -> Vec<PendingTask<K>> {
        // Entries of a job's subtasks in the lanes are no tasks of their own; the jobs are
        // cancelled.
        // Tasks of a scope borrow from it, and are dropped here.
        let is_own = |work: &TaskBody| !work.is::<KeyedSubtask>() && !work.is::<ScopedBody>();
        let unrun = self.engine.stop().into_iter().filter(|task| is_own(&task.work));
        unrun.map(|task| PendingTask { claims: task.claims, body: task.work }).collect()
    }

    /// Returns the operations on single keys: pause, resume, take, reopen, rates.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<String>::builder().build()?;
    /// pool.keys().pause("alice");
    /// let task = pool.submit("alice".to_owned(), || "resumed")?;
    /// assert!(!task.is_finished());
    /// pool.keys().resume("alice");
    /// assert_eq!(task.join()?, "resumed");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(&self) -> Keys<'_, K, PendingTask<K>> {
        Keys::new(&self.engine)
    }

    /// Returns the diagnostics: explanations, snapshots, stalls, traces.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.keys().pause(&"alice");
    /// pool.execute("alice", || println!("later"))?;
    /// println!("{}", pool.inspect().explain_key(&"alice"));
    /// assert_eq!(pool.inspect().snapshot(0).unfinished, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inspect(&self) -> Inspector<'_, K> {
        Inspector::new(&self.engine)
    }

    /// Returns the settings that can change while the pool runs.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().workers(2).build()?;
    /// pool.settings().set_workers(4)?;
    /// assert_eq!(pool.inspect().snapshot(0).workers_wanted, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settings(&self) -> Settings<'_> {
        Settings::new(&self.engine)
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> TakeKey<K, PendingTask<K>>
    for Arc<Engine<K, ClosureExecutor, S>>
{
    fn take(&self, key: &K) -> Vec<PendingTask<K>> {
        let taken = self.take_key(key).into_iter();
        taken.map(|task| PendingTask { claims: task.claims, body: task.work }).collect()
    }
}

/// A clone is the same pool. Dropping one of several changes nothing; dropping the last one stops the
/// pool. A task that captures a clone keeps its pool alive until it has ended.
///
/// ```
/// let pool = keylane::Pool::<u64>::builder().build()?;
/// let clone = pool.clone();
/// let thread = std::thread::spawn(move || clone.execute(7, || println!("paid")).is_ok());
/// assert!(thread.join().unwrap());
/// pool.execute(7, || println!("the pool continues"))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
impl<K: Key, S: BuildHasher + Send + Sync + 'static> Clone for Pool<K, S> {
    fn clone(&self) -> Self {
        Pool { engine: self.engine.clone(), owner: self.owner.clone() }
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> fmt::Debug for Pool<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool").field("settings", &self.engine.settings).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Returns the engine, for tests of its parts.
    pub(crate) fn engine(&self) -> &Arc<Engine<K, ClosureExecutor, S>> {
        &self.engine
    }
}
