//! What a job is to be: its name, its subtasks, what becomes of their results.

use std::convert::Infallible;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use super::core::{CoreParts, JobCore, JobOps};
use super::fold::Fold;
#[cfg(feature = "tokio")]
use super::future::FutureSubtask;
use super::handle::Job;
use super::sink::{Collect, Result as JobResult, Sink};
use super::source::{JobSource, SubtaskSource};
use super::subtask::{Closure, SubtaskBody};
use crate::allocate::Supply;
use crate::complete::{InfallibleFn, Outcome, TaskCell};
use crate::engine::{Engine, JobControl, JobRunner, Key, WaitLimit, WeakJobControl};
use crate::error::{SubmitError, SubmitErrorKind};
use crate::order::{Claims, IntoClaims};
use crate::pool::Closures;
use crate::run::TaskBody;

/// What becomes of a job when one of its subtasks fails: returns an error, or panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnError {
    /// The others that have not begun are dropped, and the job is over when those that run have ended.
    #[default]
    FailFast,
    /// The others go on. If failures are not [folded](Subtasks::fold_outcomes), the first one is the
    /// outcome of the job in the end.
    FinishAll,
}

/// In which order results are folded, or collected.
///
/// In either order the results of subtasks that have a key in common, and do not just share it, come in
/// the order in which those were split: a result is taken before the turn of its subtask ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResultOrder {
    /// As the subtasks end: the default of a fold.
    Completion,
    /// As the splitter has made them: the default of a collection. A fold lets no more than some
    /// hundred results wait for an earlier one; the job is not split on meanwhile.
    Submission,
}

/// Begins a job: see [`Pool::job`](crate::Pool::job).
#[must_use = "nothing happens until its results are collected, folded or dropped"]
pub struct JobBuilder<K: Key, S: BuildHasher + Send + Sync + 'static> {
    engine: Arc<Engine<K, Closures, S>>,
    settings: JobSettings,
}

struct JobSettings {
    name: Arc<str>,
    weight: u32,
    on_error: OnError,
    order: Option<ResultOrder>,
    expected: Option<u64>,
    ahead: Option<usize>,
    /// For how long it waits for room: without end, unless somebody has said.
    within: Option<Duration>,
    /// Its subtasks need a runtime.
    #[cfg(feature = "tokio")]
    needs_runtime: bool,
    max_waiting: u64,
}

/// Subtasks of a job that may wait for keys before its splitter is held back: enough that a worker that is
/// free seldom finds all of them waiting, and little memory for a job of millions.
const MAX_WAITING: u64 = 64;

impl<K: Key, S: BuildHasher + Send + Sync + 'static> JobBuilder<K, S> {
    pub(crate) fn new(engine: Arc<Engine<K, Closures, S>>, name: String) -> Self {
        let settings = JobSettings {
            name: name.into(),
            weight: 1,
            on_error: OnError::default(),
            order: None,
            expected: None,
            ahead: None,
            within: None,
            #[cfg(feature = "tokio")]
            needs_runtime: false,
            max_waiting: MAX_WAITING,
        };
        JobBuilder { engine, settings }
    }

    /// Scales the job's claim to spare workers: with twice the weight and twice as many subtasks left
    /// it ranks the same. By default 1; 0 counts as 1.
    pub fn weight(mut self, weight: u32) -> Self {
        self.settings.weight = weight;
        self
    }

    /// What becomes of it when a subtask fails: by default [`OnError::FailFast`].
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.settings.on_error = on_error;
        self
    }

    /// In which order its results are taken.
    pub fn result_order(mut self, order: ResultOrder) -> Self {
        self.settings.order = Some(order);
        self
    }

    /// How many subtasks there will be, where the iterator's
    /// [`size_hint`](Iterator::size_hint) does not say. A job of which that is unknown gets spare
    /// workers after those of which it is known. If it turns out wrong, nothing is lost.
    pub fn subtask_count(mut self, subtasks: u64) -> Self {
        self.settings.expected = Some(subtasks);
        self
    }

    /// How many tiny subtasks without keys may be taken from the iterator at a time, before the first of
    /// them runs: at least one, and at most 64 are.
    ///
    /// By default that is 64 if the iterator knows its length, by its [`size_hint`](Iterator::size_hint), and
    /// one if it does not, for then it may wait for its next item, as that of a channel does, and what was
    /// taken before would wait with it. Say more for one that never waits: tiny subtasks then cost a
    /// tenth.
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

    /// For how long submitting it may wait for room in the pool: not at all if it is zero, as in async
    /// code. By default as long as it takes. A job takes the room of one task, until it is over.
    ///
    /// Submitting then fails with [`TimedOut`](SubmitErrorKind::TimedOut), or with
    /// [`Full`](SubmitErrorKind::Full) if it was zero, and the job comes back.
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
        self.settings.within = Some(timeout);
        self
    }

    /// Its subtasks: closures without keys.
    pub fn each<T, F, I>(self, subtasks: I) -> Subtasks<K, S, T>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
        I: IntoIterator<Item = F>,
        I::IntoIter: Send + 'static,
    {
        self.plan(subtasks.into_iter().map(|work| (Claims::none(), Closure(InfallibleFn(work)))))
    }

    /// The same, of closures that can fail.
    pub fn try_each<T, E, F, I>(self, subtasks: I) -> Subtasks<K, S, T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce() -> Result<T, E> + Send + 'static,
        I: IntoIterator<Item = F>,
        I::IntoIter: Send + 'static,
    {
        self.plan(subtasks.into_iter().map(|work| (Claims::none(), Closure(work))))
    }

    /// Its subtasks: closures with their keys, as in [`Pool::submit`](crate::Pool::submit). They belong to the order of the
    /// pool from the moment when they are split.
    pub fn each_keyed<C, T, F, I>(self, subtasks: I) -> Subtasks<K, S, T>
    where
        C: IntoClaims<K>,
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
        I: IntoIterator<Item = (C, F)>,
        I::IntoIter: Send + 'static,
    {
        self.plan(
            subtasks
                .into_iter()
                .map(|(keys, work)| (keys.into_claims(), Closure(InfallibleFn(work)))),
        )
    }

    /// The same, of closures that can fail.
    pub fn try_each_keyed<C, T, E, F, I>(self, subtasks: I) -> Subtasks<K, S, T, E>
    where
        C: IntoClaims<K>,
        T: Send + 'static,
        E: Send + 'static,
        F: FnOnce() -> Result<T, E> + Send + 'static,
        I: IntoIterator<Item = (C, F)>,
        I::IntoIter: Send + 'static,
    {
        self.plan(subtasks.into_iter().map(|(keys, work)| (keys.into_claims(), Closure(work))))
    }

    /// Its subtasks: futures with their keys, [`Claims::none`] if they have none. They run on the runtime
    /// of [`Builder::runtime`](crate::Builder::runtime), within its limit, and hold their turns until they
    /// end. No worker waits for them; the rules say which job's are handed over first.
    ///
    /// Cancelled, a future is dropped at its next step. Submitting the job fails with
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

    /// The same, of futures that can fail.
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
        self.settings.max_waiting = MAX_WAITING.max(self.engine.settings.concurrency as u64);
        self.plan(subtasks.into_iter().map(move |(keys, future)| {
            (keys.into_claims(), FutureSubtask { future, runtime: runtime.clone() })
        }))
    }

    fn plan<T, E, F, I>(self, subtasks: I) -> Subtasks<K, S, T, E>
    where
        T: Send + 'static,
        E: Send + 'static,
        F: SubtaskBody<T, E>,
        I: SubtaskSource<K, F>,
    {
        let JobBuilder { engine, settings } = self;
        let source = JobSource::new(subtasks, settings.ahead);
        Subtasks { engine, settings, plan: Box::new(source) }
    }
}

/// A job with its subtasks, to be submitted by saying what becomes of their results.
#[must_use = "nothing happens until its results are collected, folded or dropped"]
pub struct Subtasks<K: Key, S: BuildHasher + Send + Sync + 'static, T, E = Infallible> {
    engine: Arc<Engine<K, Closures, S>>,
    settings: JobSettings,
    plan: Box<dyn ErasedSource<K, T, E>>,
}

/// A splitter whose type is no longer known.
trait ErasedSource<K, T, E>: Send {
    fn expected(&self) -> Option<u64>;

    /// Makes a job of it.
    fn start(self: Box<Self>, parts: CoreParts<T, E>) -> Started<K>;
}

/// A job, as the engine and as its handle see it.
type Started<K> = (Arc<dyn JobRunner<K, TaskBody>>, Arc<dyn JobOps>);

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

    fn start(self: Box<Self>, parts: CoreParts<T, E>) -> Started<K> {
        let core = JobCore::new(*self, parts);
        (core.clone(), core)
    }
}

/// A job whose results are folded; or, if it was not accepted, all that it was to be made of.
type Folded<K, S, T, E, A, G> = Result<Job<A, E>, SubmitError<(Subtasks<K, S, T, E>, A, G)>>;

impl<K, S, T, E> Subtasks<K, S, T, E>
where
    K: Key,
    S: BuildHasher + Send + Sync + 'static,
    T: Send + 'static,
    E: Send + 'static,
{
    /// Submits the job. Its outcome is that its subtasks have ended; their results are dropped.
    ///
    /// Like every submission it waits for room: a job takes that of one task until it is over. Its
    /// subtasks with keys take some beyond the pool's capacity, at most some dozens at a time.
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed), and what [`submit_timeout`](JobBuilder::submit_timeout) says; the job comes
    /// back.
    pub fn run(self) -> Result<Job<(), E>, SubmitError<Self>> {
        self.fold((), |(), _| ()).map_err(|refused| {
            let why = refused.kind();
            SubmitError::new(why, refused.into_inner().0)
        })
    }

    /// Submits the job. Its outcome has the values of all subtasks: in the order in which they were
    /// split, unless [told otherwise](JobBuilder::result_order).
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
        let sink = Arc::new(Collect::new(order, Arc::downgrade(&result)));
        Ok(self.submit(supply, sink, result))
    }

    /// Submits the job, and folds the values of its subtasks as they come, or in the order in which
    /// they were split. Failures are not folded; the first one is the outcome of the job.
    ///
    /// The fold runs on the workers, or of futures on the runtime, one at a time, and counts as a part of
    /// the subtasks. If it panics, that ends the job alone.
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn fold<A, G>(self, init: A, mut fold: G) -> Folded<K, S, T, E, A, G>
    where
        A: Send + 'static,
        G: FnMut(A, T) -> A + Send + 'static,
    {
        let supply = match self.admit() {
            Ok(supply) => supply,
            Err(why) => return Err(SubmitError::new(why, (self, init, fold))),
        };
        let step = move |acc, outcome: Outcome<T, E>| {
            let value = outcome.ok().expect("what is not a value is not folded");
            fold(acc, value)
        };
        Ok(self.submit_fold(supply, init, step, false))
    }

    /// Submits the job, and folds the outcomes of its subtasks, failures and panics among them. Then a
    /// failure is not the outcome of the job, also where it [ends it](OnError::FailFast).
    ///
    /// # Errors
    ///
    /// As for [`run`](Self::run).
    pub fn fold_outcomes<A, G>(self, init: A, fold: G) -> Folded<K, S, T, E, A, G>
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

    /// Takes room for it, and says what the rules are to know of its subtasks.
    fn admit(&self) -> Result<Supply, SubmitErrorKind> {
        #[cfg(feature = "tokio")]
        if self.settings.needs_runtime && self.engine.settings.runtime.is_none() {
            return Err(SubmitErrorKind::NoRuntime);
        }
        let limit = match self.settings.within {
            None => WaitLimit::Endless,
            Some(Duration::ZERO) => WaitLimit::None,
            Some(timeout) => WaitLimit::for_at_most(timeout),
        };
        // Asks the user's iterator, which may panic: before there is room to be given back.
        let supply = self.supply();
        let refusal = |refused| self.engine.refusal(limit.explain(refused));
        self.engine.acquire_permit(limit).map_err(refusal)?;
        Ok(supply)
    }

    fn supply(&self) -> Supply {
        match self.plan.expected() {
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
        let sink = Arc::new(Fold::new(init, step, order, takes_failures, Arc::downgrade(&result)));
        self.submit(supply, sink, result)
    }

    /// Submits what has been admitted. Nothing of the user's is called here: its room would be lost if that
    /// panicked.
    fn submit<R: Send + 'static>(
        self,
        supply: Supply,
        sink: Arc<dyn Sink<T, E>>,
        result: Arc<JobResult<R, E>>,
    ) -> Job<R, E> {
        let Subtasks { engine, settings, plan } = self;
        let control: Arc<dyn JobControl> = engine.clone();
        let control: WeakJobControl = Arc::downgrade(&control);
        let JobSettings { name, weight, on_error, max_waiting, .. } = settings;
        let (runner, ops) = plan.start(CoreParts { name, on_error, control, sink, max_waiting });
        let id = engine.submit_job(runner, supply, weight, |id| ops.named(id));
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
