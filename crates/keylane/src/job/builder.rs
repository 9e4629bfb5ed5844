//! Builder of jobs: configures name, subtasks and results, and submits the job.

use std::convert::Infallible;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use keylane_allocate::Supply;

use super::core::{CoreParts, JobCore, JobOps};
use super::fold::FoldSink;
#[cfg(feature = "tokio")]
use super::future::FutureSubtask;
use super::handle::Job;
use super::options::{OnError, ResultOrder};
use super::sink::{CollectSink, DiscardSink, OutcomeSink, SharedResult as JobResult};
use super::source::{JobSource, SubtaskSource};
use super::subtask::{ClosureBody, SubtaskBody};
use crate::complete::{FallibleFn, InfallibleFn, Outcome, TaskCell};
use crate::engine::{
    Engine, EngineSettings, JobControl, JobRunner, Key, WaitLimit, WeakJobControl,
};
use crate::error::{SubmitError, SubmitErrorKind};
use crate::order::{Claims, IntoClaims};
use crate::pool::ClosureExecutor;
use crate::run::TaskBody;

/// Builder of a job: see [`Pool::job`](crate::Pool::job).
#[must_use = "a job is submitted by `run`, `collect`, `fold` or `fold_outcomes`"]
pub struct JobBuilder<K: Key, S: BuildHasher + Send + Sync + 'static> {
    engine: Arc<Engine<K, ClosureExecutor, S>>,
    settings: JobSettings,
}

struct JobSettings {
    name: Arc<str>,
    weight: u32,
    on_error: OnError,
    order: Option<ResultOrder>,
    expected: Option<u64>,
    ahead: Option<usize>,
    /// Maximum wait for capacity; `None` for no limit.
    submit_timeout: Option<Duration>,
    /// Whether the subtasks need a runtime.
    #[cfg(feature = "tokio")]
    needs_runtime: bool,
    max_waiting: u64,
}

/// Maximum of subtasks that wait for keys before the splitter is paused: enough that a free worker
/// seldom finds all of them waiting, four times those that have ended and are not reported
/// (`run/stretch.rs`), and little memory for a job of millions. In a pool with a small bound they are at most a quarter of that, but
/// [`MIN_WAITING`]: they are admitted beyond it, and other submitters wait meanwhile.
const MAX_WAITING: u64 = 256;

/// Minimum of this maximum.
const MIN_WAITING: u64 = 64;

/// The same for futures, unless the pool lets more of them run at the same time.
#[cfg(feature = "tokio")]
const MAX_WAITING_FUTURES: u64 = 64;

impl<K: Key, S: BuildHasher + Send + Sync + 'static> JobBuilder<K, S> {
    pub(crate) fn new(engine: Arc<Engine<K, ClosureExecutor, S>>, name: String) -> Self {
        let EngineSettings { capacity, per_key, .. } = engine.settings;
        let bound = per_key.unwrap_or(usize::MAX).min(capacity) as u64;
        let settings = JobSettings {
            name: name.into(),
            weight: 1,
            on_error: OnError::FailFast,
            order: None,
            expected: None,
            ahead: None,
            submit_timeout: None,
            #[cfg(feature = "tokio")]
            needs_runtime: false,
            max_waiting: (bound / 4).clamp(MIN_WAITING, MAX_WAITING),
        };
        JobBuilder { engine, settings }
    }

    /// Sets the weight of the job's claim to spare workers: a job with twice the weight and twice
    /// as many remaining subtasks has the same rank. 1 by default; 0 counts as 1.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let numbers = || (0..1000_u64).map(|n| move || n);
    /// let report = pool.job("report").each(numbers()).fold(0, |sum, n| sum + n)?;
    /// let urgent = pool.job("urgent").weight(10).each(numbers()).fold(0, |sum, n| sum + n)?;
    /// assert_eq!((urgent.wait()?.unwrap(), report.wait()?.unwrap()), (499_500, 499_500));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn weight(mut self, weight: u32) -> Self {
        self.settings.weight = weight;
        self
    }

    /// Sets the policy for failed subtasks; [`OnError::FailFast`] by default.
    ///
    /// ```
    /// use keylane::{OnError, Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let halves = (0..10).map(|n| move || if n % 2 == 0 { Ok(n / 2) } else { Err("odd") });
    /// let job = pool.job("halves").on_error(OnError::FinishAll).try_each(halves);
    /// let mut job = job.run()?;
    /// pool.wait_idle()?;
    /// assert!(matches!(job.try_join(), Some(Outcome::Failed("odd"))));
    /// assert_eq!((job.progress().done, job.progress().failed), (5, 5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.settings.on_error = on_error;
        self
    }

    /// Sets the order in which results are taken.
    ///
    /// ```
    /// use keylane::{Pool, ResultOrder};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let words = ["one", "two", "three"].map(|word| move || word);
    /// let job = pool.job("words").result_order(ResultOrder::Submission).each(words);
    /// let text = job.fold(String::new(), |text, word| text + word)?;
    /// assert_eq!(text.wait()?.unwrap(), "onetwothree");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn result_order(mut self, order: ResultOrder) -> Self {
        self.settings.order = Some(order);
        self
    }

    /// Sets the expected number of subtasks, for an iterator whose
    /// [`size_hint`](Iterator::size_hint) does not tell it. Jobs of unknown size get spare workers
    /// after those of known size. A wrong number does no harm.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (send, received) = channel();
    /// (0..10_u64).try_for_each(|n| send.send(n))?;
    /// drop(send);
    /// let pool = Pool::<u32>::builder().build()?;
    /// let job = pool.job("sum").subtask_count(10).each(received.into_iter().map(|n| move || n));
    /// assert_eq!(job.fold(0, |sum, n| sum + n)?.wait()?.unwrap(), 45);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn subtask_count(mut self, subtasks: u64) -> Self {
        self.settings.expected = Some(subtasks);
        self
    }

    /// Sets the maximum of subtasks without keys pulled from the iterator at a time, before the
    /// first of them runs: at least 1; values above 64 count as 64.
    ///
    /// The default is 64 for an iterator of known length, by its
    /// [`size_hint`](Iterator::size_hint). Otherwise it is 1, because the iterator may block for
    /// its next item, like that of a channel, and the items pulled before would wait with it. Set
    /// more for one that never blocks: short subtasks then cost a tenth.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let odd = (0..1000_u64).filter(|n| n % 2 == 1).map(|n| move || n);
    /// let sum = pool.job("odd").prefetch(64).each(odd).fold(0, |sum, n| sum + n)?;
    /// assert_eq!(sum.wait()?.unwrap(), 250_000);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn prefetch(mut self, subtasks: usize) -> Self {
        self.settings.ahead = Some(subtasks.max(1));
        self
    }

    /// Sets the maximum wait for capacity in the pool; zero for no wait, as in async code. Without
    /// a limit by default. A job uses the capacity of one task until it ends.
    ///
    /// A submission then fails with [`TimedOut`](SubmitErrorKind::TimedOut), or with
    /// [`Full`](SubmitErrorKind::Full) for a limit of zero, and returns the job.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().workers(1).capacity(1).build()?;
    /// let (stop, stopped) = std::sync::mpsc::channel::<()>();
    /// let busy = pool.submit(1, move || stopped.recv())?;
    /// let job = pool.job("later").submit_timeout(Duration::ZERO).each([|| 5]).collect();
    /// let refused = job.unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::Full);
    /// drop(stop);
    /// busy.wait()?;
    /// pool.shutdown()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn submit_timeout(mut self, timeout: Duration) -> Self {
        self.settings.submit_timeout = Some(timeout);
        self
    }

    /// Sets the subtasks: closures without keys.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let squares = pool.job("squares").each((0..4).map(|n| move || n * n)).collect()?;
    /// assert_eq!(squares.wait()?.unwrap(), [0, 1, 4, 9]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn each<T, F, I>(self, subtasks: I) -> Subtasks<K, S, T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
        I: IntoIterator<Item = F>,
        I::IntoIter: Send + 'static,
    {
        self.with_source(
            subtasks.into_iter().map(|work| (Claims::none(), ClosureBody(InfallibleFn(work)))),
        )
    }

    /// Sets the subtasks: fallible closures without keys.
    ///
    /// ```
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let numbers = ["1", "two", "3"].map(|text| move || text.parse::<u32>());
    /// let job = pool.job("numbers").try_each(numbers).collect()?;
    /// assert!(matches!(job.wait()?, Outcome::Failed(_)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_each<T, E, F, I>(self, subtasks: I) -> Subtasks<K, S, T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce() -> Result<T, E> + Send + 'static,
        I: IntoIterator<Item = F>,
        I::IntoIter: Send + 'static,
    {
        self.with_source(
            subtasks.into_iter().map(|work| (Claims::none(), ClosureBody(FallibleFn(work)))),
        )
    }

    /// Sets the subtasks: closures with keys, as in [`Pool::submit`](crate::Pool::submit). A
    /// subtask enters the order of the pool when it is split, before the iterator is asked for the next one.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let pool = Pool::<&str>::builder().build()?;
    /// let subtasks = (0..4).map(move |n| {
    ///     let tell = tell.clone();
    ///     ("alice", move || tell.send(n).unwrap())
    /// });
    /// let job = pool.job("in the order of alice").each_keyed(subtasks).run()?;
    /// assert!(job.wait()?.is_completed());
    /// assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn each_keyed<C, T, F, I>(self, subtasks: I) -> Subtasks<K, S, T>
    where
        C: IntoClaims<K>,
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
        I: IntoIterator<Item = (C, F)>,
        I::IntoIter: Send + 'static,
    {
        self.with_source(
            subtasks
                .into_iter()
                .map(|(keys, work)| (keys.into_claims(), ClosureBody(InfallibleFn(work)))),
        )
    }

    /// Sets the subtasks: fallible closures with keys, as in [`Pool::submit`](crate::Pool::submit).
    ///
    /// ```
    /// use keylane::{Outcome, Pool};
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// let payments = [("alice", 10), ("bob", 0), ("alice", 5)].map(|(account, amount)| {
    ///     (account, move || if amount == 0 { Err("nothing to pay") } else { Ok(amount) })
    /// });
    /// let job = pool.job("payments").try_each_keyed(payments).collect()?;
    /// assert!(matches!(job.wait()?, Outcome::Failed("nothing to pay")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_each_keyed<C, T, E, F, I>(self, subtasks: I) -> Subtasks<K, S, T, E>
    where
        C: IntoClaims<K>,
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce() -> Result<T, E> + Send + 'static,
        I: IntoIterator<Item = (C, F)>,
        I::IntoIter: Send + 'static,
    {
        self.with_source(
            subtasks
                .into_iter()
                .map(|(keys, work)| (keys.into_claims(), ClosureBody(FallibleFn(work)))),
        )
    }

    /// Sets the subtasks: futures with their keys, or [`Claims::none`]. They run on the runtime of
    /// [`Builder::runtime`](crate::Builder::runtime), within its limit, and hold their turns until
    /// they end. No worker waits for them; the scheduler decides the job whose future is launched
    /// next.
    ///
    /// A cancelled future is dropped at its next suspension. Submission fails with
    /// [`NoRuntime`](SubmitErrorKind::NoRuntime) if the pool has no runtime.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    /// let pool = Pool::<u32>::builder().runtime(runtime.handle().clone(), 500).build()?;
    /// let replies = (0..100).map(|n| (n % 10, async move { n }));
    /// let job = pool.job("asks").each_future(replies).collect()?;
    /// assert_eq!(job.wait()?.unwrap().len(), 100);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn each_future<C, T, F, I>(self, subtasks: I) -> Subtasks<K, S, T>
    where
        C: IntoClaims<K>,
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
        I: IntoIterator<Item = (C, F)>,
        I::IntoIter: Send + 'static,
    {
        let subtasks = subtasks.into_iter();
        self.try_each_future(subtasks.map(|(keys, future)| (keys, async { Ok(future.await) })))
    }

    /// Sets the subtasks: fallible futures with their keys, as in
    /// [`each_future`](Self::each_future).
    ///
    /// ```
    /// use keylane::{Claims, Outcome, Pool};
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    /// let pool = Pool::<u32>::builder().runtime(runtime.handle().clone(), 500).build()?;
    /// let replies = (0..4).map(|n| {
    ///     (Claims::none(), async move { if n < 3 { Ok(n) } else { Err("no reply") } })
    /// });
    /// let job = pool.job("asks").try_each_future(replies).collect()?;
    /// assert!(matches!(job.wait()?, Outcome::Failed("no reply")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn try_each_future<C, T, E, F, I>(mut self, subtasks: I) -> Subtasks<K, S, T, E>
    where
        C: IntoClaims<K>,
        T: Send + 'static,
        E: Send + 'static,
        F: Future<Output = Result<T, E>> + Send + 'static,
        I: IntoIterator<Item = (C, F)>,
        I::IntoIter: Send + 'static,
    {
        let runtime = self.engine.settings.runtime.clone();
        self.settings.needs_runtime = true;
        let concurrency = self.engine.settings.concurrency as u64;
        self.settings.max_waiting = MAX_WAITING_FUTURES.max(concurrency);
        self.with_source(subtasks.into_iter().map(move |(keys, future)| {
            (keys.into_claims(), FutureSubtask { future, runtime: runtime.clone() })
        }))
    }

    fn with_source<T, E, F, I>(self, subtasks: I) -> Subtasks<K, S, T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: SubtaskBody<T, E>,
        I: SubtaskSource<K, F>,
    {
        let JobBuilder { engine, settings } = self;
        let source = JobSource::new(subtasks, settings.ahead);
        Subtasks { engine, settings, source: Box::new(source) }
    }
}

/// Job with its subtasks, to be submitted by a choice of its result.
#[must_use = "a job is submitted by `run`, `collect`, `fold` or `fold_outcomes`"]
pub struct Subtasks<K: Key, S: BuildHasher + Send + Sync + 'static, T, E = Infallible> {
    engine: Arc<Engine<K, ClosureExecutor, S>>,
    settings: JobSettings,
    source: Box<dyn ErasedSource<K, T, E>>,
}

/// Type-erased splitter.
trait ErasedSource<K, T, E>: Send {
    fn expected(&self) -> Option<u64>;

    /// Creates the running job.
    fn start(self: Box<Self>, parts: CoreParts<T, E>) -> StartedJob<K>;
}

/// Running job, as seen by the engine and by its handle.
type StartedJob<K> = (Arc<dyn JobRunner<K, TaskBody>>, Arc<dyn JobOps>);

impl<K, I, F, T, E> ErasedSource<K, T, E> for JobSource<K, I, F>
where
    K: Key,
    I: SubtaskSource<K, F>,
    F: SubtaskBody<T, E>,
    T: Send + 'static,
    E: Send + 'static,
{
    fn expected(&self) -> Option<u64> {
        JobSource::expected(self)
    }

    fn start(self: Box<Self>, parts: CoreParts<T, E>) -> StartedJob<K> {
        let core = JobCore::new(*self, parts);
        (core.clone(), core)
    }
}

/// Job with folded results, or, if it was refused, its parts.
type FoldedJob<K, S, T, E, A, G> = Result<Job<A, E>, SubmitError<(Subtasks<K, S, T, E>, A, G)>>;

impl<K, S, T, E> Subtasks<K, S, T, E>
where
    K: Key,
    S: BuildHasher + Send + Sync + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    /// Submits the job and drops the results of its subtasks. Its outcome is `()`.
    ///
    /// Like every submission it waits for capacity: a job uses that of one task until it ends. Its
    /// subtasks with keys exceed the pool's capacity by at most some hundreds at a time.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let pool = Pool::<u32>::builder().build()?;
    /// let subtasks = (0..10).map(move |n| {
    ///     let tell = tell.clone();
    ///     move || tell.send(n).unwrap()
    /// });
    /// let job = pool.job("tells").each(subtasks).run()?;
    /// assert!(job.wait()?.is_completed());
    /// assert_eq!(told.try_iter().sum::<u32>(), 45);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed), and the errors of
    /// [`submit_timeout`](JobBuilder::submit_timeout). The error returns the job.
    pub fn run(self) -> Result<Job<(), E>, SubmitError<Self>> {
        let supply = match self.admit() {
            Ok(supply) => supply,
            Err(why) => return Err(SubmitError::new(why, self)),
        };
        let result = Arc::new(TaskCell::new(()));
        let sink = Arc::new(DiscardSink::new(Arc::downgrade(&result)));
        Ok(self.submit(supply, sink, result))
    }

    /// Submits the job and collects the values of all subtasks, in the order in which they were
    /// split unless [configured](JobBuilder::result_order).
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let words = ["one", "two", "three"].map(|word| move || word.len());
    /// let lengths = pool.job("lengths").each(words).collect()?;
    /// assert_eq!(lengths.wait()?.unwrap(), [3, 3, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn collect(self) -> Result<Job<Vec<T>, E>, SubmitError<Self>> {
        let supply = match self.admit() {
            Ok(supply) => supply,
            Err(why) => return Err(SubmitError::new(why, self)),
        };
        let order = self.settings.order.unwrap_or(ResultOrder::Submission);
        let result = Arc::new(TaskCell::new(()));
        let sink = Arc::new(CollectSink::new(order, Arc::downgrade(&result)));
        Ok(self.submit(supply, sink, result))
    }

    /// Submits the job and folds the values of its subtasks, in the order of completion unless
    /// [configured](JobBuilder::result_order). Failures are not folded; the first one is the
    /// outcome of the job.
    ///
    /// The fold runs on the workers, or for futures on the runtime, one call at a time, as a part
    /// of the subtasks. If it panics, that ends this job only.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let words = ["one", "two", "three"].map(|word| move || word.len());
    /// let longest = pool.job("longest").each(words).fold(0, usize::max)?;
    /// assert_eq!(longest.wait()?.unwrap(), 5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn fold<A, G>(self, init: A, mut fold: G) -> FoldedJob<K, S, T, E, A, G>
    where
        A: Send + 'static,
        G: FnMut(A, T) -> A + Send + 'static,
    {
        let supply = match self.admit() {
            Ok(supply) => supply,
            Err(why) => return Err(SubmitError::new(why, (self, init, fold))),
        };
        let step = move |acc, outcome: Outcome<T, E>| {
            let value = outcome.ok().expect("only values are folded");
            fold(acc, value)
        };
        Ok(self.submit_fold(supply, init, step, false))
    }

    /// Submits the job and folds the outcomes of its subtasks, including failures and panics. A
    /// failure is then not the outcome of the job, even where it [ends it](OnError::FailFast).
    ///
    /// ```
    /// use keylane::{OnError, Outcome, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let numbers = ["1", "two", "3"].map(|text| move || text.parse::<u32>());
    /// let job = pool.job("numbers").on_error(OnError::FinishAll).try_each(numbers);
    /// let counts = job.fold_outcomes((0, 0), |(good, bad), outcome| match outcome {
    ///     Outcome::Completed(_) => (good + 1, bad),
    ///     _ => (good, bad + 1),
    /// })?;
    /// assert_eq!(counts.wait()?.unwrap(), (2, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn fold_outcomes<A, G>(self, init: A, fold: G) -> FoldedJob<K, S, T, E, A, G>
    where
        A: Send + 'static,
        G: FnMut(A, Outcome<T, E>) -> A + Send + 'static,
    {
        let supply = match self.admit() {
            Ok(supply) => supply,
            Err(why) => return Err(SubmitError::new(why, (self, init, fold))),
        };
        Ok(self.submit_fold(supply, init, fold, true))
    }

    /// Takes the capacity for the job, and returns the subtasks as the scheduler sees them.
    fn admit(&self) -> Result<Supply, SubmitErrorKind> {
        #[cfg(feature = "tokio")]
        if self.settings.needs_runtime && self.engine.settings.runtime.is_none() {
            return Err(SubmitErrorKind::NoRuntime);
        }
        let limit = match self.settings.submit_timeout {
            None => WaitLimit::Endless,
            Some(Duration::ZERO) => WaitLimit::None,
            Some(timeout) => WaitLimit::for_at_most(timeout),
        };
        // Before the capacity is taken, because this polls the user's iterator, which may panic.
        let supply = self.supply();
        let refusal = |refused| self.engine.refusal(limit.explain(refused));
        self.engine.acquire_permit(limit).map_err(refusal)?;
        Ok(supply)
    }

    fn supply(&self) -> Supply {
        match self.source.expected() {
            Some(0) => Supply::Ready(0),
            hint => Supply::Split { expected: hint.or(self.settings.expected) },
        }
    }

    fn submit_fold<A, G>(self, supply: Supply, init: A, step: G, takes_failures: bool) -> Job<A, E>
    where
        A: Send + 'static,
        G: FnMut(A, Outcome<T, E>) -> A + Send + 'static,
    {
        let order = self.settings.order.unwrap_or(ResultOrder::Completion);
        let result = Arc::new(TaskCell::new(()));
        let sink =
            Arc::new(FoldSink::new(init, step, order, takes_failures, Arc::downgrade(&result)));
        self.submit(supply, sink, result)
    }

    /// Submits an admitted job. Calls no user code, whose panic would leak the capacity.
    fn submit<R: Send + 'static>(
        self,
        supply: Supply,
        sink: Arc<dyn OutcomeSink<T, E>>,
        result: Arc<JobResult<R, E>>,
    ) -> Job<R, E> {
        let Subtasks { engine, settings, source } = self;
        let control: Arc<dyn JobControl> = engine.clone();
        let control: WeakJobControl = Arc::downgrade(&control);
        let JobSettings { name, weight, on_error, max_waiting, .. } = settings;
        let (runner, ops) = source.start(CoreParts { name, on_error, control, sink, max_waiting });
        let id = engine.submit_job(runner, supply, weight, |id| ops.set_id(id));
        Job::new(ops, result, id)
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> fmt::Debug for JobBuilder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobBuilder").field("name", &self.settings.name).finish_non_exhaustive()
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static, T, E> fmt::Debug for Subtasks<K, S, T, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subtasks").field("name", &self.settings.name).finish_non_exhaustive()
    }
}
