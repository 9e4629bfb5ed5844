//! Options of a single task, and the endings that submit it: see [`Task`].

mod delay;
mod entry;
mod prepared;
mod role;
mod work;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::delay::TaskDelay;
pub(crate) use self::entry::{ContextClosure, DetachedClosure};
use self::entry::{Entry, RefusedEntry, RejectedTaskError};
pub use self::role::OnClosedKey;
use self::role::{EntryPermit, KeyRole};
use self::work::WorkNeeds;
pub use self::work::{Fallible, Plain, Retrying, TaskWork};
use crate::complete::Handle;
use crate::engine::{Engine, Key, WaitLimit};
use crate::error::SubmitErrorKind;
use crate::key_hasher::KeyBuildHasher;
use crate::order::Claims;
use crate::pool::ClosureExecutor;
use crate::retry::Retry;

/// Task with options, from [`Pool::task`](crate::Pool::task). One of its endings submits it:
///
/// | | waits for capacity | never waits | as a future |
/// |---|---|---|---|
/// | with a [`Handle`] | [`submit`](Self::submit) | [`try_submit`](Self::try_submit) | [`submit_async`](Self::submit_async) |
/// | without | [`execute`](Self::execute) | [`try_execute`](Self::try_execute) | [`execute_async`](Self::execute_async) |
///
/// Each takes a closure or, with the feature `tokio`, a future, which holds its keys until it ends.
/// It runs on the runtime that was given to the pool's builder, once it has its keys and the
/// concurrency limit allows it; no worker waits for it. After [`fallible`](Self::fallible) the work
/// returns a `Result`.
///
/// ```
/// use std::time::Duration;
/// use keylane::Pool;
///
/// let pool = Pool::<&str>::builder().build()?;
/// let total = pool.task(["alice", "bob"]).timeout(Duration::from_secs(1)).submit(|| 15)?;
/// let parsed = pool.task("alice").fallible().submit(|| "x".parse::<u32>())?;
/// pool.task("bob").try_execute(|| println!("if there is capacity"))?;
/// assert_eq!(total.join()?, 15);
/// assert!(parsed.join().is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a task does nothing until one of its endings submits it"]
pub struct Task<'p, K: Key, S = KeyBuildHasher, M = Plain>
where
    S: BuildHasher + Send + Sync + 'static,
{
    engine: &'p Arc<Engine<K, ClosureExecutor, S>>,
    claims: Claims<K>,
    role: KeyRole,
    limit: WaitLimit,
    delay: Option<TaskDelay>,
    mode: M,
}

impl<'p, K: Key, S: BuildHasher + Send + Sync + 'static> Task<'p, K, S> {
    pub(crate) fn new(engine: &'p Arc<Engine<K, ClosureExecutor, S>>, claims: Claims<K>) -> Self {
        let (role, limit) = (KeyRole::Ordinary, WaitLimit::Endless);
        Task { engine, claims, role, limit, delay: None, mode: Plain }
    }

    /// Says that the work returns a `Result`: an `Err` becomes
    /// [`Outcome::Failed`](crate::Outcome::Failed), and counts as a failure of the key where
    /// failures [count](crate::OnFailure).
    ///
    /// ```
    /// use keylane::{Pool, TaskError};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let number = pool.task(7).fallible().submit(|| "seven".parse::<u32>())?;
    /// assert!(matches!(number.join(), Err(TaskError::Failed(_))));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fallible(self) -> Task<'p, K, S, Fallible> {
        let Task { engine, claims, role, limit, delay, mode: Plain } = self;
        Task { engine, claims, role, limit, delay, mode: Fallible }
    }
}

impl<'p, K: Key, S: BuildHasher + Send + Sync + 'static> Task<'p, K, S, Fallible> {
    /// Calls the work again after an `Err`, as far as `retry` allows. The order is kept: the task
    /// holds its keys until its last attempt has ended, and later tasks of its keys wait.
    ///
    /// - Between two attempts the task occupies no worker, and other keys go on. The next attempt
    ///   runs on any worker. It is one task for the capacity, the rates, which it is charged for
    ///   once, and the failures of its key, which [count](crate::OnFailure) only after the last
    ///   attempt.
    /// - The error of the last attempt is the outcome [`Failed`](crate::Outcome::Failed); those
    ///   before are dropped. A panic ends the task, and no attempt follows.
    /// - [`Handle::cancel`] between two attempts ends the task at once, as
    ///   [`Cancelled`](crate::Outcome::Cancelled). During an attempt it tells the work, and no
    ///   attempt follows.
    /// - No attempt begins while one of the task's keys is paused or stopped; it waits until that
    ///   key is resumed.
    /// - The task has begun, so it is neither [taken](crate::control::Keys::take) nor
    ///   [replaced](Self::latest). [`timeout`](Self::timeout) and [`deadline`](Self::deadline) limit
    ///   the wait for capacity, not the attempts: [`Retry::max_elapsed`] does.
    /// - [`close`](crate::Pool::close) changes nothing, and [`shutdown`](crate::Pool::shutdown) waits
    ///   for the attempts. A pool that is stopped, dropped or poisoned begins no further attempt:
    ///   a task between two attempts ends as cancelled.
    ///
    /// The waits are measured by the pool's [clock](crate::Builder::clock), if it has one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Backoff, Pool, Retry};
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// let mut attempts = 0;
    /// let retry = Retry::attempts(5).backoff(Backoff::constant(Duration::from_millis(1)));
    /// let paid = pool.task("alice").fallible().retry(retry).submit(move || {
    ///     attempts += 1;
    ///     if attempts < 3 { Err("the bank does not answer") } else { Ok(attempts) }
    /// })?;
    /// let after = pool.submit("alice", || "after the last attempt")?;
    /// assert_eq!(paid.wait()?.ok(), Some(3));
    /// assert_eq!(after.join()?, "after the last attempt");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn retry(self, retry: Retry) -> Task<'p, K, S, Retrying> {
        let Task { engine, claims, role, limit, delay, mode: Fallible } = self;
        Task { engine, claims, role, limit, delay, mode: Retrying(retry) }
    }
}

impl<'p, K: Key, S: BuildHasher + Send + Sync + 'static, M> Task<'p, K, S, M> {
    /// Limits the time that [`submit`](Self::submit) and [`execute`](Self::execute) wait for
    /// capacity; then they return [`TimedOut`](SubmitErrorKind::TimedOut). It does not limit the
    /// time until the task begins. The other endings ignore it: futures have their runtime's
    /// timeouts.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().capacity(1).build()?;
    /// pool.keys().pause(&7);
    /// pool.execute(7, || println!("takes the only permit"))?;
    /// let late = pool.task(8).timeout(Duration::from_millis(1)).execute(|| ()).unwrap_err();
    /// assert_eq!(late.kind(), SubmitErrorKind::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limit = WaitLimit::for_at_most(timeout);
        self
    }

    /// Limits the wait for capacity as [`timeout`](Self::timeout) does, at a point in time.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let end = Instant::now() + Duration::from_secs(1);
    /// for key in 0..10 {
    ///     pool.task(key).deadline(end).execute(|| ())?; // all ten within a second
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.limit = WaitLimit::Until(deadline);
        self
    }

    /// Delays the task: it is accepted now, and takes its place in the order when `delay` has passed,
    /// as if it were submitted then. Tasks of its keys that are submitted meanwhile run before it.
    ///
    /// - Of two delayed tasks of a key the one whose delay is over first is first; at equal times, the
    ///   one that was submitted first.
    /// - It counts for the capacity from its acceptance, which is when the delay begins. The submission
    ///   waits for capacity as any other.
    /// - [`latest`](Self::latest) with a delay is *debounced*: a task replaces the delayed latest one
    ///   of its key, and the delay begins anew. So the last of a burst runs once the key has been
    ///   quiet for `delay`. When the delay is over it replaces, as always, a latest one that still
    ///   waits.
    /// - [`last`](Self::last) with a delay makes the task the end of its key when the delay is over. It
    ///   is cancelled if the key has an end by then, as is a task whose key refuses tasks then.
    /// - [`Handle::cancel`] removes it at once. [`take`](crate::control::Keys::take) takes the delayed
    ///   tasks of a key, too, behind the others. A pause of a key does not stop the delay.
    /// - [`close`](crate::Pool::close) changes nothing, and [`shutdown`](crate::Pool::shutdown) waits
    ///   until the delay is over. [`shutdown_now`](crate::Pool::shutdown_now) returns it behind the
    ///   tasks that are in the order.
    /// - A task of the pool cannot wait for a delayed one, which may enter behind it:
    ///   [`WouldDeadlock`](crate::WouldDeadlock).
    ///
    /// The delay is measured by the pool's [clock](crate::Builder::clock), if it has one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// let moment = Duration::from_millis(20);
    /// let later = pool.task("alice").after(moment).submit(|| "reminder")?;
    /// let now = pool.submit("alice", || "order")?;
    /// assert_eq!((now.join()?, later.join()?), ("order", "reminder"));
    ///
    /// // Saves a document once it has not changed for a moment.
    /// for version in 1..=3 {
    ///     pool.task("document").latest().after(moment).execute(move || println!("saved {version}"))?;
    /// }
    /// pool.wait_idle()?; // saved 3
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = Some(TaskDelay::For(delay));
        self
    }

    /// Delays the task until a point in time, as [`after`](Self::after) does. In the past, it is as
    /// now.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let at = Instant::now() + Duration::from_millis(10);
    /// let tick = pool.task(7).at(at).submit(Instant::now)?;
    /// assert!(tick.join()? >= at);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn at(mut self, at: Instant) -> Self {
        self.delay = Some(TaskDelay::Until(at));
        self
    }

    /// Sets the cost in bytes, for a pool with a bound on bytes, as
    /// [`Claims::with_cost`] does.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().capacity_bytes(1 << 20).build()?;
    /// let page = vec![0_u8; 4096];
    /// pool.task(7).cost(page.len()).execute(move || drop(page))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn cost(mut self, bytes: usize) -> Self {
        self.claims = self.claims.with_cost(bytes);
        self
    }

    /// Makes the task replace the latest one of its key, if that still waits: of a burst of updates
    /// only the last is worth the work.
    ///
    /// - Replaced is the last task of the key that was submitted with this option and does not have
    ///   its turn yet. It never runs, its captures are dropped before the submission returns, and
    ///   its handle returns [`Outcome::Superseded`](crate::Outcome::Superseded). Tasks without this
    ///   option are never replaced, nor are tasks that run.
    /// - The order holds: if a task that conflicts with them came between the two, the new task
    ///   runs after that. Otherwise it takes over the position of the replaced one.
    /// - It takes over the capacity of the replaced task, too, and then never waits. Otherwise it
    ///   waits like any task, and so does a task with a [cost](Self::cost), whose bytes it needs
    ///   before it replaces another. A submission that fails changes nothing.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.keys().pause(&"screen");
    /// let old = pool.task("screen").latest().submit(|| "drawn at 10:00:00")?;
    /// let new = pool.task("screen").latest().submit(|| "drawn at 10:00:01")?;
    /// pool.keys().resume(&"screen");
    /// assert!(old.wait()?.is_superseded());
    /// assert_eq!(new.join()?, "drawn at 10:00:01");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the task has not exactly one key, used exclusively, or has a descriptor.
    #[track_caller]
    pub fn latest(mut self) -> Self {
        self.claims = only_key(self.claims);
        self.role = KeyRole::Latest;
        self
    }

    /// Makes the task the last of its key's life: it runs after all tasks that were submitted for
    /// the key before, exactly once. For the end of a connection that was closed, or of a device
    /// that has left.
    ///
    /// - A life has one end: while there is one, and no task was submitted for the key after it,
    ///   another is refused. With [`OnClosedKey::NewLife`] the end is forgotten when it has run.
    /// - [`take`](crate::control::Keys::take) leaves it in place. It does not run if it is
    ///   [cancelled](Handle::cancel), or the pool stopped.
    /// - Barriers have no key, and a job's subtasks were accepted with their job: neither is
    ///   refused.
    ///
    /// ```
    /// use keylane::{OnClosedKey, Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.execute(7, || println!("a message of connection 7"))?;
    /// let last = pool.task(7).last(OnClosedKey::Refuse).submit(|| println!("it is closed"))?;
    /// let late = pool.execute(7, || println!("a message that came too late")).unwrap_err();
    /// assert_eq!(late.kind(), SubmitErrorKind::KeyClosed);
    /// last.join()?;
    /// // The number may be given to another connection now.
    /// pool.keys().reopen(&7);
    /// pool.execute(7, || println!("a message of another connection"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    ///
    /// If the task has not exactly one key, used exclusively, or has a descriptor.
    #[track_caller]
    pub fn last(mut self, after: OnClosedKey) -> Self {
        self.claims = only_key(self.claims);
        self.role = KeyRole::Last(after);
        self
    }

    /// Submits the task, and returns its handle. Waits for capacity, first come, first served;
    /// never inside a task of this pool.
    ///
    /// ```
    /// use keylane::{Claims, Pool};
    ///
    /// let pool = Pool::<u64>::builder().build()?;
    /// let sum = pool.task(7).submit(|| 1 + 1)?;
    /// let all = pool.task((0..10).collect::<Claims<_>>()).submit(|| "after all of ten keys")?;
    /// assert_eq!((sum.join()?, all.join()?), (2, "after all of ten keys"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The error contains the task: [`Closed`](SubmitErrorKind::Closed),
    /// [`TooLarge`](SubmitErrorKind::TooLarge), [`KeyClosed`](SubmitErrorKind::KeyClosed),
    /// [`TimedOut`](SubmitErrorKind::TimedOut) with a [`timeout`](Self::timeout), `NoRuntime` for a
    /// future without a runtime, and [`NoTimer`](SubmitErrorKind::NoTimer) for a task with
    /// [`retry`](Self::retry) or [`after`](Self::after), if the timer's thread cannot be started.
    pub fn submit<W, Kind>(
        self,
        work: W,
    ) -> Result<Handle<W::Value, W::Error>, RejectedTaskError<K, W>>
    where
        W: TaskWork<M, Kind> + Send + 'static,
    {
        match self.enter(W::NEEDS) {
            Ok((entry, mode)) => entry.submit(work, |work, pool| work.prepare(&mode, pool)),
            Err(refused) => Err(refused.with(work)),
        }
    }

    /// Submits the task without a handle. Waits for capacity as [`submit`](Self::submit) does.
    ///
    /// ```
    /// let pool = keylane::Pool::<u64>::builder().build()?;
    /// pool.task([7, 8]).execute(|| println!("after everything on 7 and on 8"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`submit`](Self::submit).
    #[inline]
    pub fn execute<W, Kind>(self, work: W) -> Result<(), RejectedTaskError<K, W>>
    where
        W: TaskWork<M, Kind> + Send + 'static,
    {
        match self.enter(W::NEEDS) {
            Ok((entry, mode)) => work.execute_in(&mode, entry),
            Err(refused) => Err(refused.with(work)),
        }
    }

    /// Submits the task, if there is capacity and no other submitter waits for it.
    ///
    /// ```
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u64>::builder().capacity(1).build()?;
    /// pool.keys().pause(&7);
    /// pool.execute(7, || println!("takes the only permit"))?;
    /// let refused = pool.task(8).try_submit(|| "eight").unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::Full);
    /// let (claims, work) = refused.into_inner();
    /// pool.keys().resume(&7);
    /// assert_eq!(pool.submit(claims, work)?.join()?, "eight");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`submit`](Self::submit), or [`Full`](SubmitErrorKind::Full) or
    /// [`KeyFull`](SubmitErrorKind::KeyFull).
    pub fn try_submit<W, Kind>(
        mut self,
        work: W,
    ) -> Result<Handle<W::Value, W::Error>, RejectedTaskError<K, W>>
    where
        W: TaskWork<M, Kind> + Send + 'static,
    {
        self.limit = WaitLimit::None;
        self.submit(work)
    }

    /// Submits the task without a handle, if there is capacity and no other submitter waits for it.
    ///
    /// ```
    /// let pool = keylane::Pool::<u64>::builder().build()?;
    /// if pool.task(7).try_execute(|| println!("accepted")).is_err() {
    ///     println!("not now");
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`try_submit`](Self::try_submit).
    #[inline]
    pub fn try_execute<W, Kind>(mut self, work: W) -> Result<(), RejectedTaskError<K, W>>
    where
        W: TaskWork<M, Kind> + Send + 'static,
    {
        self.limit = WaitLimit::None;
        self.execute(work)
    }

    /// Submits the task, waiting for capacity without blocking the thread, in one wait queue with
    /// the blocked threads. Needs no particular runtime.
    ///
    /// Cancel safe: dropped before it is ready, it has submitted nothing, and has left the wait
    /// queue.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = keylane::Pool::<u64>::builder().build()?;
    /// let answer = pool.task(7).submit_async(|| 6 * 7).await?;
    /// assert_eq!(answer.await?.ok(), Some(42));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`submit`](Self::submit), but never [`TimedOut`](SubmitErrorKind::TimedOut).
    pub async fn submit_async<W, Kind>(
        self,
        mut work: W,
    ) -> Result<Handle<W::Value, W::Error>, RejectedTaskError<K, W>>
    where
        W: TaskWork<M, Kind> + Send + 'static,
    {
        let (mut entry, mode) = match self.enter(W::NEEDS) {
            Ok(entered) => entered,
            Err(refused) => return Err(refused.with(work)),
        };
        if let KeyRole::Latest = entry.role {
            let (engine, role, delay) = (entry.engine, entry.role, entry.delay);
            entry.permit = EntryPermit::Replaced;
            match entry.submit(work, |work, pool| work.prepare(&mode, pool)) {
                Err(refused) if refused.kind() == SubmitErrorKind::Full => {
                    let claims;
                    (claims, work) = refused.into_inner();
                    entry = Entry { engine, claims, role, permit: EntryPermit::Replaced, delay };
                }
                settled => return settled,
            }
        }
        match entry.admit().await {
            Ok(admitted) => admitted.submit(work, |work, pool| work.prepare(&mode, pool)),
            Err(refused) => Err(refused.with(work)),
        }
    }

    /// Submits the task without a handle, as [`submit_async`](Self::submit_async) does.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = keylane::Pool::<u64>::builder().build()?;
    /// pool.task(7).execute_async(|| println!("accepted without blocking the thread")).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`submit_async`](Self::submit_async).
    pub async fn execute_async<W, Kind>(self, work: W) -> Result<(), RejectedTaskError<K, W>>
    where
        W: TaskWork<M, Kind> + Send + 'static,
    {
        if let KeyRole::Latest = self.role {
            return self.submit_async(work).await.map(drop);
        }
        let (entry, mode) = match self.enter(W::NEEDS) {
            Ok(entered) => entered,
            Err(refused) => return Err(refused.with(work)),
        };
        match entry.admit().await {
            Ok(admitted) => work.execute_in(&mode, admitted),
            Err(refused) => Err(refused.with(work)),
        }
    }

    /// Splits the task for an ending. Futures are refused without a runtime, and work that needs the
    /// timer is refused if that cannot be started.
    #[inline]
    fn enter(self, needs: WorkNeeds) -> Result<(Entry<'p, K, S>, M), RefusedEntry<K>> {
        let Task { engine, claims, role, limit, delay, mode } = self;
        #[cfg(feature = "tokio")]
        if needs.runtime && engine.settings.runtime.is_none() {
            return Err(RefusedEntry { why: SubmitErrorKind::NoRuntime, claims });
        }
        if (needs.timer || delay.is_some()) && engine.start_timer().is_err() {
            return Err(RefusedEntry { why: SubmitErrorKind::NoTimer, claims });
        }
        Ok((Entry { engine, claims, role, permit: EntryPermit::Wait(limit), delay }, mode))
    }
}

/// Returns claims with one exclusive key in their simple form.
#[track_caller]
fn only_key<K>(claims: Claims<K>) -> Claims<K> {
    claims.into_one_exclusive().unwrap_or_else(|| {
        panic!("`latest` and `last` need a task with exactly one key, used exclusively")
    })
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static, M> fmt::Debug for Task<'_, K, S, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task").field("role", &self.role).finish_non_exhaustive()
    }
}
