//! The pool of closures.

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::admit::Cost;
use crate::allocate::Record;
use crate::builder::{Builder, KeyHasher};
#[cfg(feature = "tokio")]
use crate::complete::FutureTask;
use crate::complete::{Attempt, Handle, Slot, Sure};
use crate::engine::{Engine, Execute, Key, Made, Make, Patience, Toll};
use crate::error::{BatchError, DrainError, SubmitError, SubmitErrorKind};
use crate::job::{Entry, JobBuilder, JobInfo};
use crate::observe::Snapshot;
use crate::order::{Claims, InHand, IntoClaims};
use crate::run::{Body, Run, Stage, bystander, name_of};

/// A pool of workers that keeps the tasks of each key in order.
///
/// See the [crate's documentation](crate) for what it promises.
///
/// # Submitting
///
/// | | waits for room | at most so long | not at all | as a future |
/// |---|---|---|---|---|
/// | with a [`Handle`] | [`submit`](Self::submit) | [`submit_timeout`](Self::submit_timeout) | [`try_submit`](Self::try_submit) | [`submit_async`](Self::submit_async) |
/// | without | [`execute`](Self::execute) | [`execute_timeout`](Self::execute_timeout) | [`try_execute`](Self::try_execute) | [`execute_async`](Self::execute_async) |
///
/// [`submit_many`](Self::submit_many) and [`execute_many`](Self::execute_many) take a batch in one
/// pass. A closure that captures up to four words is stored in place when it is executed.
///
/// # Closing
///
/// [`close`](Self::close) refuses new work, [`drain`](Self::drain) closes and waits for what was
/// accepted, [`stop_now`](Self::stop_now) closes and returns what has not begun. Dropping the pool
/// stops it, drops what has not begun, and waits for the bodies that run. Each can be done from any
/// thread, and from inside a task.
pub struct Pool<K: Key, S = KeyHasher>
where
    S: BuildHasher + Send + Sync + 'static,
{
    engine: Arc<Engine<K, Closures, S>>,
}

/// Tasks that are closures.
pub(crate) struct Closures;

impl<K: Key> Execute<K> for Closures {
    type Work = Body;
    const WANTS_KEY: bool = false;

    #[inline]
    fn execute(&self, _: Option<&K>, work: InHand<'_, Body>, stage: &mut dyn Stage) {
        Body::run_in_hand(work, stage);
    }

    fn name(work: &Body) -> Option<usize> {
        work.name()
    }

    fn charge(work: Body, cost: Cost) -> Body {
        work.with(cost)
    }
}

/// A closure that nobody waits for.
struct Detached<F>(F);

impl<F: FnOnce() + Send + 'static> Run for Detached<F> {
    #[inline]
    fn run(self, _: &mut dyn Stage) {
        (self.0)();
    }
}

impl<F: FnOnce() + Send + 'static> Make<Body> for Detached<F> {
    #[inline(always)]
    fn make(self) -> Body {
        Body::new(self)
    }
}

/// What a rejected submission returns: the claims and the closure.
type Submission<K, F> = (Claims<K>, F);

/// What a batch that is cut short returns: the handles so far, and the other submissions.
type RestOfBatch<K, T, F> = BatchError<Vec<Handle<T>>, Submission<K, F>>;

impl<K: Key> Pool<K> {
    /// Starts to build a pool.
    pub fn builder() -> Builder<K> {
        Builder::default()
    }
}

// With a handle.
impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    pub(crate) fn new(engine: Arc<Engine<K, Closures, S>>) -> Self {
        Pool { engine }
    }

    /// Submits a task. Waits for room, first come, first served; never inside a task of this pool.
    ///
    /// ```
    /// use keylane::{Claims, Pool};
    ///
    /// let pool = Pool::<u64>::builder().build()?;
    /// let sum = pool.submit(7, || 1 + 1)?;
    /// let both = pool.submit([7, 8], || "after everything on 7 and on 8")?;
    /// let read = pool.submit(Claims::shared(7), || "beside other readers of 7")?;
    /// assert_eq!(sum.wait()?.done(), Some(2));
    /// # drop((both, read));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the task comes
    /// back in the error.
    pub fn submit<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_patiently(keys.into_claims(), work, Patience::Endless)
    }

    /// Submits a task if there is room and nobody waits for it.
    ///
    /// # Errors
    ///
    /// [`Full`](SubmitErrorKind::Full), [`KeyFull`](SubmitErrorKind::KeyFull),
    /// [`TooLarge`](SubmitErrorKind::TooLarge) or [`Closed`](SubmitErrorKind::Closed); the task comes
    /// back.
    pub fn try_submit<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_patiently(keys.into_claims(), work, Patience::None)
    }

    /// Submits a task, waiting for room for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](SubmitErrorKind::TimedOut), [`TooLarge`](SubmitErrorKind::TooLarge) or
    /// [`Closed`](SubmitErrorKind::Closed); the task comes back.
    pub fn submit_timeout<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        timeout: Duration,
        work: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.submit_patiently(keys.into_claims(), work, Patience::for_at_most(timeout))
    }

    /// Submits a task, waiting for room without blocking the thread, in one line with the threads
    /// that wait. Needs no particular runtime.
    ///
    /// Cancel safe: dropped before it is ready, it has submitted nothing, and has left the line.
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the task comes
    /// back.
    pub async fn submit_async<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let claims = keys.into_claims();
        match self.engine.admit_async(&claims, 0).await {
            Ok(toll) => self.enter_with_handle(claims, work, toll),
            Err(why) => Err(SubmitError::new(why, (claims, work))),
        }
    }

    /// Submits a batch in one pass, waiting for room as often as it takes. The tasks of the batch
    /// are in order as if they had been submitted one by one.
    ///
    /// The batch is handed over in pieces of up to 256 tasks, each when the iterator has yielded it.
    ///
    /// # Errors
    ///
    /// If the pool is closed meanwhile, or a task is [too large](SubmitErrorKind::TooLarge): the handles
    /// so far, and the tasks that were not accepted.
    pub fn submit_many<C, T, F>(
        &self,
        batch: impl IntoIterator<Item = (C, F)>,
    ) -> Result<Vec<Handle<T>>, RestOfBatch<K, T, F>>
    where
        C: IntoClaims<K>,
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let mut slots = Vec::new();
        let bodies = batch.into_iter().map(|(keys, work)| {
            let slot = Arc::new(Slot::new(Sure(work)));
            slots.push(slot.clone());
            (keys.into_claims(), Made(Body::shared(slot)))
        });
        let Err((_, rejected, why)) = self.engine.enter_many(bodies) else {
            return Ok(slots.into_iter().map(Handle::new).collect());
        };
        let rejected = rejected.into_iter().map(|(claims, Made(body))| {
            let at = slots.iter().position(|slot| body.name() == Some(name_of(slot)));
            let slot = slots.remove(at.expect("every body of the batch has its slot"));
            let Sure(work) = slot.take_body().expect("nobody else has seen the slot");
            (claims, work)
        });
        let rejected = rejected.collect();
        Err(BatchError::new(slots.into_iter().map(Handle::new).collect(), rejected, why))
    }

    /// Like [`submit`](Self::submit), for work that can fail: an `Err` becomes
    /// [`Outcome::Failed`](crate::Outcome::Failed).
    ///
    /// # Errors
    ///
    /// As for [`submit`](Self::submit).
    pub fn submit_fallible<T, E, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T, E>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce() -> Result<T, E> + Send + 'static,
    {
        let claims = keys.into_claims();
        let toll = match self.engine.admit(&claims, 0, Patience::Endless) {
            Ok(toll) => toll,
            Err(why) => return Err(SubmitError::new(why, (claims, work))),
        };
        self.enter_slot(claims, Arc::new(Slot::new(work)), toll)
            .map_err(|(claims, work)| SubmitError::new(SubmitErrorKind::Closed, (claims, work)))
    }

    fn submit_patiently<T, F>(
        &self,
        claims: Claims<K>,
        work: F,
        patience: Patience,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        match self.engine.admit(&claims, 0, patience) {
            Ok(toll) => self.enter_with_handle(claims, work, toll),
            Err(why) => Err(SubmitError::new(why, (claims, work))),
        }
    }

    fn enter_with_handle<T, F>(
        &self,
        claims: Claims<K>,
        work: F,
        toll: Toll,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let slot = Arc::new(Slot::new(Sure(work)));
        self.enter_slot(claims, slot, toll).map_err(|(claims, Sure(work))| {
            SubmitError::new(SubmitErrorKind::Closed, (claims, work))
        })
    }

    fn enter_slot<T, E, F>(
        &self,
        claims: Claims<K>,
        slot: Arc<Slot<T, E, F>>,
        toll: Toll,
    ) -> Result<Handle<T, E>, Submission<K, F>>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: Attempt<T, E> + Send + 'static,
    {
        let handle = Handle::new(slot.clone());
        match self.engine.enter(claims, Made(Body::shared(slot.clone())), toll) {
            Ok(()) => Ok(handle),
            Err((claims, Made(body))) => {
                let work = slot.take_body().expect("nobody else has seen the slot");
                drop(body);
                Err((claims, work))
            }
        }
    }
}

// Futures.
#[cfg(feature = "tokio")]
impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Submits a future, which holds its turn until it ends. Waits for room, as
    /// [`submit`](Self::submit) does.
    ///
    /// It runs on the runtime that was given to [`Builder::runtime`], once it has its keys, as far
    /// as that one's limit allows. It is not polled on a worker, and no worker waits for it.
    /// Cancelling its handle drops the future at its next step; its turn ends then, not before.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    /// let pool = Pool::<u32>::builder().runtime(runtime.handle().clone(), 500).build()?;
    /// let reply = pool.submit_future(7, async { "asked, without a thread that waits" })?;
    /// assert!(reply.wait()?.is_done());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`NoRuntime`](SubmitErrorKind::NoRuntime); the future
    /// comes back.
    pub fn submit_future<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        future: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.submit_future_patiently(keys.into_claims(), future, Patience::Endless)
    }

    /// Submits a future if there is room and nobody waits for it.
    ///
    /// # Errors
    ///
    /// As for [`submit_future`](Self::submit_future), or [`Full`](SubmitErrorKind::Full).
    pub fn try_submit_future<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        future: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        self.submit_future_patiently(keys.into_claims(), future, Patience::None)
    }

    /// Submits a future, waiting for room as [`submit_async`](Self::submit_async) does. As cancel
    /// safe as that.
    ///
    /// # Errors
    ///
    /// As for [`submit_future`](Self::submit_future).
    pub async fn submit_future_async<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        future: F,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let claims = keys.into_claims();
        match self.engine.admit_async(&claims, 0).await {
            Ok(toll) => self.enter_future(claims, future, toll),
            Err(why) => Err(SubmitError::new(why, (claims, future))),
        }
    }

    fn submit_future_patiently<T, F>(
        &self,
        claims: Claims<K>,
        future: F,
        patience: Patience,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        match self.engine.admit(&claims, 0, patience) {
            Ok(toll) => self.enter_future(claims, future, toll),
            Err(why) => Err(SubmitError::new(why, (claims, future))),
        }
    }

    fn enter_future<T, F>(
        &self,
        claims: Claims<K>,
        future: F,
        toll: Toll,
    ) -> Result<Handle<T>, SubmitError<Submission<K, F>>>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let Some(runtime) = self.engine.settings.runtime.clone() else {
            self.engine.retract(&claims);
            return Err(SubmitError::new(SubmitErrorKind::NoRuntime, (claims, future)));
        };
        let task = Arc::new(FutureTask::new(future, runtime));
        let handle = Handle::new(task.clone());
        match self.engine.enter(claims, Made(Body::shared(task.clone())), toll) {
            Ok(()) => Ok(handle),
            Err((claims, Made(body))) => {
                let future = task.take_future().expect("nobody else has seen the task");
                drop(body);
                Err(SubmitError::new(SubmitErrorKind::Closed, (claims, future)))
            }
        }
    }
}

// Without a handle.
impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Submits a task that nobody will wait for. Waits for room, as [`submit`](Self::submit) does.
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the task comes
    /// back.
    #[inline]
    pub fn execute<F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.execute_patiently(keys.into_claims(), work, Patience::Endless)
    }

    /// Submits a task that nobody will wait for, if there is room and nobody waits for it.
    ///
    /// # Errors
    ///
    /// [`Full`](SubmitErrorKind::Full), [`KeyFull`](SubmitErrorKind::KeyFull),
    /// [`TooLarge`](SubmitErrorKind::TooLarge) or [`Closed`](SubmitErrorKind::Closed); the task comes
    /// back.
    #[inline]
    pub fn try_execute<F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.execute_patiently(keys.into_claims(), work, Patience::None)
    }

    /// Submits a task that nobody will wait for, waiting for room for at most `timeout`.
    ///
    /// # Errors
    ///
    /// [`TimedOut`](SubmitErrorKind::TimedOut), [`TooLarge`](SubmitErrorKind::TooLarge) or
    /// [`Closed`](SubmitErrorKind::Closed); the task comes back.
    pub fn execute_timeout<F>(
        &self,
        keys: impl IntoClaims<K>,
        timeout: Duration,
        work: F,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.execute_patiently(keys.into_claims(), work, Patience::for_at_most(timeout))
    }

    /// Submits a task that nobody will wait for, waiting for room as
    /// [`submit_async`](Self::submit_async) does. As cancel safe as that.
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the task comes
    /// back.
    pub async fn execute_async<F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        let claims = keys.into_claims();
        match self.engine.admit_async(&claims, 0).await {
            Ok(toll) => self.enter_detached(claims, work, toll),
            Err(why) => Err(SubmitError::new(why, (claims, work))),
        }
    }

    /// Submits a batch that nobody will wait for in one pass, waiting for room as often as it takes.
    /// The tasks of the batch are in order as if they had been submitted one by one.
    ///
    /// The batch is handed over in pieces of up to 256 tasks, each when the iterator has yielded it.
    ///
    /// # Errors
    ///
    /// If the pool is closed meanwhile, or a task is [too large](SubmitErrorKind::TooLarge): how many
    /// were accepted, and those that were not. A task of the second kind can precede one of the first
    /// in the batch only if their keys differ.
    pub fn execute_many<C, F>(
        &self,
        batch: impl IntoIterator<Item = (C, F)>,
    ) -> Result<usize, BatchError<usize, Submission<K, F>>>
    where
        C: IntoClaims<K>,
        F: FnOnce() + Send + 'static,
    {
        let batch = batch.into_iter().map(|(keys, work)| (keys.into_claims(), Detached(work)));
        self.engine.enter_many(batch).map_err(|(accepted, rejected, why)| {
            let rejected = rejected.into_iter().map(|(claims, Detached(work))| (claims, work));
            BatchError::new(accepted, rejected.collect(), why)
        })
    }

    #[inline(always)]
    fn execute_patiently<F>(
        &self,
        claims: Claims<K>,
        work: F,
        patience: Patience,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.engine
            .submit(claims, Detached(work), patience)
            .map_err(|(why, claims, Detached(work))| SubmitError::new(why, (claims, work)))
    }

    #[inline(always)]
    fn enter_detached<F>(
        &self,
        claims: Claims<K>,
        work: F,
        toll: Toll,
    ) -> Result<(), SubmitError<Submission<K, F>>>
    where
        F: FnOnce() + Send + 'static,
    {
        self.engine.enter(claims, Detached(work), toll).map_err(|(claims, Detached(work))| {
            SubmitError::new(SubmitErrorKind::Closed, (claims, work))
        })
    }
}

// Jobs.
impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Begins a job: many subtasks under one name, with one result.
    ///
    /// Jobs share the workers by four rules, so that several make progress at once, none takes all
    /// workers, and the one with the fewest subtasks left is done first; [`allocate`](crate::allocate)
    /// has them. Work outside jobs shares as if each task were a job of its own.
    ///
    /// - Subtasks are split lazily: the iterator is asked for one when a worker is free for it, and so
    ///   may be endless, or of millions, in little memory. It is asked by one worker at a time.
    /// - Subtasks with keys belong to the same order as everything else in the pool.
    /// - A panic in the iterator, in a subtask or in a fold ends its job at the most.
    /// - A worker changes jobs only between two subtasks. It may take up to 64 at a time where they are
    ///   tiny and nobody else wants a worker.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let squares = pool.job("squares").each((0..1000_u64).map(|n| move || n * n)).collect()?;
    /// let sum = pool.job("sum").each((0..1000_u64).map(|n| move || n)).fold(0, |sum, n| sum + n)?;
    /// assert_eq!(squares.wait()?.unwrap()[31], 961);
    /// assert_eq!(sum.wait()?.unwrap(), 499_500);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn job(&self, name: impl Into<String>) -> JobBuilder<K, S> {
        JobBuilder::new(self.engine.clone(), name.into())
    }

    /// The jobs that are not over, those that wait to be admitted among them, the oldest first.
    pub fn jobs(&self) -> Vec<JobInfo> {
        let jobs = self.engine.survey_jobs().into_iter();
        jobs.map(|((id, job), progress)| JobInfo { id, name: job.name().clone(), progress })
            .collect()
    }

    /// Records which worker went to which job, when, and by which rule: the last `capacity` events from
    /// now on. Times are in milliseconds.
    ///
    /// # Panics
    ///
    /// If `capacity` is zero.
    pub fn record_decisions(&self, capacity: usize) {
        assert!(capacity > 0, "a record without room records nothing");
        self.engine.record_jobs(capacity);
    }

    /// What was recorded, if [that was asked for](Self::record_decisions) and there has been a job. It can be
    /// [replayed](Record::replay).
    pub fn recorded_decisions(&self) -> Option<Record> {
        self.engine.recorded_jobs()
    }
}

// The pool itself.
impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Refuses new work from now on. What was accepted goes on.
    pub fn close(&self) {
        self.engine.close();
    }

    /// Whether new work is refused.
    pub fn is_closed(&self) -> bool {
        self.engine.admission.is_closed()
    }

    /// Closes the pool and waits until everything that was accepted has ended, for at most
    /// `timeout` if one is given.
    ///
    /// # Errors
    ///
    /// [`DrainError::TimedOut`]: what was accepted goes on. [`DrainError::FromInside`], at once, if
    /// the caller is a task of the pool, whose own end would have to be waited for.
    pub fn drain(&self, timeout: Option<Duration>) -> Result<(), DrainError> {
        self.engine.drain_for(timeout)
    }

    /// Closes the pool, lets the bodies that run end, and returns exactly the tasks that have not
    /// begun, in an order in which they could have run. It does not wait for the bodies. Jobs are
    /// cancelled.
    pub fn stop_now(&self) -> Vec<UnrunTask<K>> {
        // What stands in the lanes for a job's subtasks is no task of its own; the jobs are cancelled.
        let unrun = self.engine.stop().into_iter().filter(|task| !task.work.is::<Entry>());
        unrun.map(|task| UnrunTask { claims: task.claims, body: task.work }).collect()
    }

    /// Looks at the running pool, with the `hottest` keys that have the most unfinished tasks.
    ///
    /// Costs a pass over all unfinished tasks, unless `hottest` is 0; during that submissions and
    /// the end of tasks wait, in one shard of the keys at a time.
    pub fn snapshot(&self, hottest: usize) -> Snapshot<K> {
        self.engine.survey(hottest)
    }

    /// Changes the number of workers. Surplus workers end after the task that they run.
    ///
    /// # Errors
    ///
    /// If the number is out of its range or the operating system refuses a thread.
    pub fn set_workers(&self, workers: usize) -> Result<(), crate::BuildError> {
        self.engine.set_workers(workers)
    }

    /// Changes the capacity. Below what is unfinished it admits nobody until enough has ended.
    ///
    /// # Errors
    ///
    /// If the number is out of its range.
    pub fn set_capacity(&self, capacity: usize) -> Result<(), crate::BuildError> {
        self.engine.set_capacity(capacity)
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

/// A task that was accepted and never began, because its pool was stopped.
///
/// Dropped, it ends as [`Cancelled`](crate::Outcome::Cancelled).
pub struct UnrunTask<K> {
    claims: Claims<K>,
    body: Body,
}

impl<K> UnrunTask<K> {
    /// Its keys.
    pub fn claims(&self) -> &Claims<K> {
        &self.claims
    }

    /// Runs it on this thread. Its handle learns the outcome.
    ///
    /// # Panics
    ///
    /// If the body panics and the task has no handle.
    pub fn run(self) {
        self.body.run(&mut bystander());
    }
}

impl<K> fmt::Debug for UnrunTask<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UnrunTask").finish_non_exhaustive()
    }
}

impl Patience {
    fn for_at_most(timeout: Duration) -> Self {
        Instant::now().checked_add(timeout).map_or(Patience::Endless, Patience::Until)
    }
}
