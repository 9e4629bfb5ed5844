//! Builds pools from their settings, and checks these.

use std::any::Any;
use std::fmt;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use keylane_allocate::{JobPolicy, default_workers};

use crate::admit::ByteBound;
#[cfg(feature = "tokio")]
use crate::complete::MAX_FUTURES;
use crate::engine::{Engine, EngineSettings, Execute, JobRules, Key, OnFailure};
use crate::error::BuildError;
use crate::handler_pool::{HandlerPool, Messages};
use crate::key_hasher::KeyBuildHasher;
use crate::message_handler::Handler;
use crate::observe::Statistics;
use crate::order::Rate;
use crate::pool::{ClosureExecutor, Pool};
use crate::run::{MockClock, Placement, SpawnWorkers};

/// Maximum number of workers of a pool.
pub const MAX_WORKERS: usize = 1 << 16;

/// Maximum for [`Builder::capacity_bytes`].
pub const MAX_CAPACITY_BYTES: usize = ByteBound::MAX;

/// Maximum capacity of a pool, in tasks.
pub const MAX_CAPACITY: usize = 1 << 31;

impl<K: Key> Pool<K> {
    /// Returns a builder of pools.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<String>::builder().workers(2).build()?;
    /// assert_eq!(pool.submit("alice".to_owned(), || 6 * 7)?.join()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> Builder<K> {
        Builder::default()
    }
}

/// Builder of a [`Pool`] or a [`HandlerPool`].
///
/// ```
/// use std::time::Duration;
/// use keylane::Pool;
///
/// let pool = Pool::<String>::builder()
///     .workers(4)
///     .capacity(10_000)
///     .quantum(32, Duration::from_millis(1))
///     .thread_name("orders")
///     .build()?;
/// # drop(pool);
/// # Ok::<(), keylane::BuildError>(())
/// ```
#[must_use = "a builder builds nothing until `build` is called"]
pub struct Builder<K, S = KeyBuildHasher> {
    settings: EngineSettings,
    hasher: S,
    keys: PhantomData<fn(K)>,
}

impl<K> Default for Builder<K> {
    fn default() -> Self {
        Builder {
            settings: EngineSettings {
                workers: default_workers(),
                capacity: 65_536,
                per_key: None,
                bytes: None,
                quantum_tasks: 64,
                quantum_time: Duration::from_millis(10),
                strict_quantum: false,
                in_order: false,
                stop_after: None,
                rate: None,
                rate_per_key: None,
                clock: None,
                thread_name: "keylane".to_owned(),
                stack_size: None,
                on_panic: None,
                placement: Placement::Any,
                jobs: JobRules::default(),
                statistics: Statistics::Sampled,
                self_check: false,
                key_states: None,
                #[cfg(feature = "tokio")]
                runtime: None,
                #[cfg(feature = "tokio")]
                concurrency: 1,
            },
            hasher: KeyBuildHasher::default(),
            keys: PhantomData,
        }
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Builder<K, S> {
    /// Sets the number of worker threads: by default [`default_workers`], one for each physical
    /// core that the process may use, within its quota, with a CPU left for the rest of the process
    /// if there is one to spare. `keylane calibrate` measures the best number for a machine.
    ///
    /// Bodies that wait, for a disk, a network or a lock, need more workers than processors.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// Sets the maximum number of accepted and unfinished tasks: by default 65,536.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.settings.capacity = capacity;
        self
    }

    /// Sets the maximum number of accepted and unfinished tasks of one key, so that a hot key
    /// cannot fill the pool: by default only the capacity limits it. Running and waiting tasks
    /// count; a rollup counts in each of its keys, a barrier in none.
    ///
    /// A submitter beyond that waits for its key, first come, first served among those of that key.
    /// Until then it uses no capacity and delays no submitter of another key. A rollup waits until
    /// each of its keys can accept it, and only later submitters for one of its keys wait behind
    /// it. A task that submits from inside never waits, and may exceed the bound.
    ///
    /// A pool with this bound spends more on each task; without it nothing.
    ///
    /// ```
    /// use keylane::{Pool, SubmitErrorKind};
    /// use std::sync::mpsc::channel;
    ///
    /// let pool = Pool::<&str>::builder().capacity_per_key(2).build()?;
    /// let (finish, wait) = channel::<()>();
    /// pool.execute("hot", move || wait.recv().unwrap())?;
    /// pool.execute("hot", || {})?;
    /// let refused = pool.task("hot").try_execute(|| {}).unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::KeyFull);
    /// pool.execute("cold", || println!("continues"))?;
    /// finish.send(())?;
    /// pool.execute("hot", || println!("after the other two, once one of them has ended"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn capacity_per_key(mut self, tasks: usize) -> Self {
        self.settings.per_key = Some(tasks);
        self
    }

    /// Sets the maximum total cost of unfinished tasks, in bytes: by default unlimited.
    /// [`Claims::with_cost`](crate::Claims::with_cost) sets the cost of a task, the function given
    /// to [`weighed`](crate::handler::weighed) that of a message. Any unit other
    /// than bytes works as well.
    ///
    /// Submitters that wait for bytes are served first come, first served, so large tasks do not
    /// starve: later ones with a cost wait behind them. A task whose cost exceeds the bound is
    /// refused with [`TooLarge`](crate::SubmitErrorKind::TooLarge). A task that submits from inside
    /// never waits, and may exceed the bound. The bytes are released when the body has returned and
    /// its captures are dropped, or when a kept turn ends.
    ///
    /// ```
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().capacity_bytes(10_000).build()?;
    /// pool.keys().pause(&7);
    /// pool.task(7).cost(6_000).execute(|| ())?;
    /// let refused = pool.task(8).cost(6_000).try_execute(|| ()).unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::Full); // until the first has ended
    /// let large = pool.task(8).cost(20_000).execute(|| ()).unwrap_err();
    /// assert_eq!(large.kind(), SubmitErrorKind::TooLarge); // at any time
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn capacity_bytes(mut self, bytes: usize) -> Self {
        self.settings.bytes = Some(bytes);
        self
    }

    /// Sets the placement of keys on workers: by default a task runs on the first free worker.
    ///
    /// With [`Placement::Sticky`] the tasks of a key run on the same worker again, which has its
    /// data in the cache. No task waits for that: a worker without work takes the tasks of a busy
    /// one, and all take the tasks of one with a long task. It is a preference and no promise, and
    /// changes with the number of workers.
    ///
    /// ```
    /// use keylane::{Placement, Pool};
    ///
    /// let pool = Pool::<u32>::builder().placement(Placement::Sticky).build()?;
    /// # Ok::<(), keylane::BuildError>(())
    /// ```
    pub fn placement(mut self, placement: Placement) -> Self {
        self.settings.placement = placement;
        self
    }

    /// Sets the rate at which tasks of all keys together may begin: by default unlimited. No worker
    /// takes a task before it may begin. [`Settings::set_rate`](crate::control::Settings::set_rate)
    /// changes it.
    ///
    /// - Each body that begins counts: a rollup and a barrier as one, and each subtask of a job.
    /// - It limits starts, not the number of running tasks, which the number of workers limits.
    /// - Accepted tasks wait, and count for the capacity; [a shutdown](Pool::shutdown) waits for
    ///   them. [`Pool::shutdown_now`] returns those that have not begun.
    ///
    /// A pool with any rate has one more thread, which sleeps until a task may begin, and spends
    /// more on each task; without a rate nothing.
    ///
    /// ```
    /// use keylane::{Pool, Rate};
    ///
    /// // What the service at the other end allows for.
    /// let pool = Pool::<u32>::builder().rate(Rate::per_second(200).burst(20)).build()?;
    /// # Ok::<(), keylane::BuildError>(())
    /// ```
    pub fn rate(mut self, rate: Rate) -> Self {
        self.settings.rate = Some(rate);
        self
    }

    /// Sets the rate at which tasks of one key may begin: by default unlimited. Without a token the
    /// key is [paused](crate::control::Keys::pause) until the next one.
    /// [`Settings::set_rate_per_key`](crate::control::Settings::set_rate_per_key) changes the rate,
    /// and [`Keys::set_rate`](crate::control::Keys::set_rate) that of one key.
    ///
    /// - The order within a key stays the same, and no other key and no worker waits.
    /// - A rollup counts in each of its keys, and waits until all of them have a token. A task that
    ///   shares the key counts; a barrier does not. A cancelled task counts when its turn comes.
    /// - A rollup that holds a key which it shares begins, even if others that share the key have
    ///   used the last token meanwhile; the next token then comes an interval later. So the rate
    ///   holds in the long run, but in this one case the burst does not.
    /// - A subtask of a job counts when it gets its keys, just before a worker of the job comes for
    ///   it.
    /// - [`Keys::paused`](crate::control::Keys::paused) and the explanations tell when the next
    ///   task may begin.
    ///
    /// A key costs a few hundred bytes from its first task until its bucket is full again, or for a
    /// second.
    ///
    /// ```
    /// use keylane::{Pool, Rate};
    ///
    /// // Each customer gets five at once, then one a second.
    /// let pool = Pool::<String>::builder().rate_per_key(Rate::per_second(1).burst(5)).build()?;
    /// # Ok::<(), keylane::BuildError>(())
    /// ```
    pub fn rate_per_key(mut self, rate: Rate) -> Self {
        self.settings.rate_per_key = Some(rate);
        self
    }

    /// Sets the clock of the rates, the delays and the waits between attempts, for tests: by default
    /// the system's. See [`MockClock`] for an example.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{MockClock, Pool};
    ///
    /// let (clock, hour) = (MockClock::new(), Duration::from_secs(3600));
    /// let pool = Pool::<&str>::builder().clock(&clock).build()?;
    /// let later = pool.task("alice").after(hour).submit(|| "an hour later")?;
    /// assert!(!later.is_finished());
    /// clock.advance(hour);
    /// assert_eq!(later.join()?, "an hour later");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clock(mut self, clock: &MockClock) -> Self {
        self.settings.clock = Some(clock.clone());
        self
    }

    /// Sets the quantum: the number of tasks and the time for which a lane may keep a worker while
    /// other tasks are ready. By default 64 tasks and 10 ms. Beyond that it may continue as long as
    /// at most half of the workers are on such lanes: the others serve all other lanes, and the
    /// longest chain of tasks often determines the total time.
    ///
    /// The time is checked between tasks: after each one that takes 20 µs or more, and at most 64
    /// tasks apart.
    pub fn quantum(mut self, tasks: usize, time: Duration) -> Self {
        self.settings.quantum_tasks = tasks;
        self.settings.quantum_time = time;
        self
    }

    /// Makes a lane yield after its quantum while other tasks are ready, unless its wait queue is
    /// longer than that of the lane whose turn is next, and at most half of the workers continue
    /// such lanes. Without this, [`quantum`](Self::quantum) has the rule.
    ///
    /// For lanes that all have many slow tasks: they progress evenly, so that none of them is left
    /// in the end while the workers of the others are idle. Turns rotate over all lanes, so all
    /// workers share one lock, whose cost is not measurable if tasks take some 100 µs or more.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Pool;
    ///
    /// let quantum = Duration::from_millis(5);
    /// let pool = Pool::<u32>::builder().workers(16).quantum(64, quantum).strict_quantum().build()?;
    /// # Ok::<(), keylane::BuildError>(())
    /// ```
    pub fn strict_quantum(mut self) -> Self {
        self.settings.strict_quantum = true;
        self
    }

    /// Makes tasks begin in the order of submission, as far as their keys allow: a worker that
    /// becomes free takes the earliest of the tasks that may run. Without this, that order is only
    /// approximate: workers prefer the key or the part of the pool that they have just served.
    ///
    /// There are no [quanta](Self::quantum) then. A task that became ready later does not begin
    /// before an earlier one, but for two cases: a further attempt begins when its time has come,
    /// and a subtask of a job when the job's turn has come.
    ///
    /// All workers share one lock, whose cost is not measurable if tasks take some 100 µs or more.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().workers(8).start_in_order().build()?;
    /// # Ok::<(), keylane::BuildError>(())
    /// ```
    pub fn start_in_order(mut self) -> Self {
        self.settings.in_order = true;
        self
    }

    /// Sets the policy for a key whose tasks fail: by default it continues. A pool that counts
    /// failures spends slightly more on each task; others nothing.
    ///
    /// ```
    /// use keylane::{OnFailure, Pool};
    ///
    /// let on_failure = OnFailure::StopKey { after: 2 };
    /// let pool = Pool::<&str>::builder().on_failure(on_failure).build()?;
    /// for _ in 0..2 {
    ///     pool.task("alice").fallible().execute(|| "no number".parse::<u32>())?;
    /// }
    /// pool.wait_idle()?;
    /// assert_eq!(pool.keys().list_stopped()[0].key, "alice");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.settings.stop_after = match on_failure {
            OnFailure::Continue => None,
            OnFailure::StopKey { after } => Some(after),
        };
        self
    }

    /// Sets the name of the worker threads, before their number: by default `keylane`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.settings.thread_name = name.into();
        self
    }

    /// Sets the stack size of each worker, in bytes: by default the platform's.
    ///
    /// ```
    /// use std::hint::black_box;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().stack_size(16 << 20).build()?;
    /// let len = pool.submit(7, || {
    ///     let table = [black_box(1_u8); 4 << 20]; // more than the 2 MiB of a thread of `std`
    ///     black_box(&table).len()
    /// })?;
    /// assert_eq!(len.join()?, 4 << 20);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.settings.stack_size = Some(bytes);
        self
    }

    /// Sets a hook that is called with the payload of each panic of a task, on the worker, before
    /// the next task of the same key. By default there is none, beside the process's own panic
    /// hook.
    ///
    /// ```
    /// use std::any::Any;
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let hook = move |payload: &(dyn Any + Send)| {
    ///     tell.send(payload.downcast_ref::<&str>().copied()).unwrap();
    /// };
    /// let pool = Pool::<u32>::builder().on_panic(hook).build()?;
    /// pool.execute(7, || panic!("out of range"))?;
    /// assert_eq!(told.recv()?, Some("out of range"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_panic(mut self, hook: impl Fn(&(dyn Any + Send)) + Send + Sync + 'static) -> Self {
        self.settings.on_panic = Some(Box::new(hook));
        self
    }

    /// Sets the maximum number of active jobs, at least one: jobs that have begun, and run or
    /// could. By default the number of workers; with a policy other than [`JobPolicy::Arrival`] there
    /// is no bound. Further jobs wait for one of them to end.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().workers(2).max_active_jobs(1).build()?;
    /// let ((begin, begun), (end, ended)) = (channel(), channel::<()>());
    /// let wait = move || {
    ///     begin.send(()).unwrap();
    ///     _ = ended.recv();
    /// };
    /// let first = pool.job("first").each([wait]).run()?;
    /// begun.recv()?;
    /// let second = pool.job("second").each([|| 2]).collect()?;
    /// assert!(first.progress().admitted && !second.progress().admitted);
    /// drop(end);
    /// assert_eq!(second.wait()?.unwrap(), [2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn max_active_jobs(mut self, jobs: usize) -> Self {
        self.settings.jobs.max_active = Some(jobs);
        self
    }

    /// Sets the time for which a job can be limited to one worker while others with less work get
    /// the rest: after that it gets another worker for one subtask, and waits anew. By default
    /// unlimited. In milliseconds, rounded up.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Pool;
    ///
    /// let patience = Duration::from_secs(1);
    /// let pool = Pool::<u32>::builder().workers(4).job_patience(patience).build()?;
    /// let long = pool.job("long").each((0..1000).map(|n| move || n)).fold(0, i32::max)?;
    /// let short = pool.job("short").each((0..10).map(|n| move || n)).fold(0, i32::max)?;
    /// assert_eq!((long.wait()?.unwrap(), short.wait()?.unwrap()), (999, 9));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn job_patience(mut self, patience: Duration) -> Self {
        let millis = patience.as_nanos().div_ceil(1_000_000);
        self.settings.jobs.patience = Some(u64::try_from(millis).unwrap_or(u64::MAX));
        self
    }

    /// Sets the policy by which the rules rank jobs: by default [`JobPolicy::Arrival`], where each
    /// active job keeps a worker. With many jobs of different sizes at a high load,
    /// [`JobPolicy::Balanced`] makes their mean time many times shorter.
    ///
    /// ```
    /// use keylane::{JobPolicy, Pool};
    ///
    /// let pool = Pool::<u32>::builder().job_policy(JobPolicy::Balanced).build()?;
    /// let job = pool.job("short ones first").each((0..10).map(|n| move || n)).collect()?;
    /// assert_eq!(job.wait()?.unwrap().len(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn job_policy(mut self, policy: JobPolicy) -> Self {
        self.settings.jobs.policy = policy;
        self
    }

    /// Sets the runtime of [tasks that are futures](crate::Task), and the maximum number that run
    /// at a time.
    ///
    /// A future that has its keys and no permit to run waits on the runtime, not on a worker. The
    /// limit is independent of the number of workers, which only start futures.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let runtime = tokio::runtime::Builder::new_multi_thread().build()?;
    /// // Two workers start the futures, of which up to 500 run at a time.
    /// let handle = runtime.handle().clone();
    /// let pool = Pool::<&str>::builder().workers(2).runtime(handle, 500).build()?;
    /// let status = pool.task("example.org").submit(async { 200 })?;
    /// assert_eq!(status.join()?, 200);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn runtime(mut self, handle: tokio::runtime::Handle, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        // `build` refuses a value out of its range.
        let permits = concurrency.clamp(1, MAX_FUTURES);
        self.settings.runtime = Some(crate::complete::FutureRuntime::new(handle, permits));
        self
    }

    /// Sets the extent of the measurements while the pool runs: by default [`Statistics::Sampled`],
    /// which costs next to nothing. `docs/observe.md` has the cost of each.
    ///
    /// ```
    /// use keylane::observe::Statistics;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().statistics(Statistics::Every).build()?;
    /// pool.submit(7, || {})?.wait()?;
    /// assert_eq!(pool.inspect().snapshot(0).wait_time.count(), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn statistics(mut self, statistics: Statistics) -> Self {
        self.settings.statistics = statistics;
        self
    }

    /// Sets whether each task is checked against the pool's guarantees when it begins: that no
    /// conflicting task runs, that no more tasks of a key run than its
    /// [limit](crate::Claims::limited), and that no later task of one of its keys has begun. By
    /// default not. [`Snapshot::violations`](crate::observe::Snapshot::violations) counts the
    /// violations, which must be zero; if they are not, please report it.
    ///
    /// For tests. Each task takes about a microsecond more, all workers share a lock, and every key
    /// is remembered for good. Subtasks of jobs without keys are not checked.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().self_check(true).build()?;
    /// for task in 0..100 {
    ///     pool.execute(task % 10, || {})?;
    /// }
    /// pool.shutdown()?;
    /// assert!(pool.inspect().snapshot(0).violations.is_some_and(|violations| violations.is_none()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn self_check(mut self, check: bool) -> Self {
        self.settings.self_check = check;
        self
    }

    /// Sets the hasher of the keys: by default a [`KeyBuildHasher`].
    ///
    /// ```
    /// use std::hash::RandomState;
    /// use keylane::Pool;
    ///
    /// // For keys that an attacker may choose.
    /// let pool = Pool::<String>::builder().hasher(RandomState::new()).build()?;
    /// assert_eq!(pool.submit("alice".to_owned(), || 6 * 7)?.join()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn hasher<T: BuildHasher + Send + Sync + 'static>(self, hasher: T) -> Builder<K, T> {
        Builder { settings: self.settings, hasher, keys: PhantomData }
    }

    /// Builds a pool that runs closures.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range, or the operating system refuses a thread.
    pub fn build(self) -> Result<Pool<K, S>, BuildError> {
        self.start(|_| ClosureExecutor).map(Pool::new)
    }

    /// Builds a pool with one handler for many messages: a closure, or another [`Handler`], such as
    /// those of the module [`handler`](crate::handler).
    ///
    /// A message needs neither a closure nor an allocation: it is stored beside its key until the
    /// handler is called with both.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let handler = move |account: &u32, amount: i64| tell.send((*account, amount)).unwrap();
    /// let pool = Pool::<u32>::builder().build_handler(handler)?;
    /// pool.send(7, 100)?;
    /// pool.send(7, -30)?;
    /// pool.shutdown()?;
    /// assert_eq!(told.try_iter().collect::<Vec<_>>(), [(7, 100), (7, -30)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_handler<M: Send + 'static>(
        mut self,
        handler: impl Handler<K, M>,
    ) -> Result<HandlerPool<K, M, S>, BuildError> {
        let needs = handler.needs();
        self.settings.key_states = needs.key_states;
        let engine = self.start(|bytes| Messages::new(handler, bytes))?;
        // Dropped on an error, it ends its workers.
        let pool = HandlerPool::new(engine.clone());
        if needs.timer {
            engine.start_timer().map_err(BuildError::Thread)?;
        }
        Ok(pool)
    }

    fn start<X: Execute<K>>(
        self,
        executor: impl FnOnce(Option<Arc<ByteBound>>) -> X,
    ) -> Result<Arc<Engine<K, X, S>>, BuildError> {
        let EngineSettings { workers, capacity, per_key, bytes, quantum_tasks, .. } = self.settings;
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(BuildError::Workers(workers));
        }
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            return Err(BuildError::Capacity(capacity));
        }
        if per_key == Some(0) {
            return Err(BuildError::PerKey);
        }
        if let Some(bytes) = bytes.filter(|bytes| !(1..=MAX_CAPACITY_BYTES).contains(bytes)) {
            return Err(BuildError::Bytes(bytes));
        }
        if quantum_tasks == 0 {
            return Err(BuildError::QuantumTasks);
        }
        if self.settings.stop_after == Some(0) {
            return Err(BuildError::Failures);
        }
        #[cfg(feature = "tokio")]
        if !(1..=MAX_FUTURES).contains(&self.settings.concurrency) {
            return Err(BuildError::Concurrency(self.settings.concurrency));
        }
        let bytes = bytes.map(ByteBound::new);
        let executor = executor(bytes.clone());
        let engine = Arc::new(Engine::new(self.settings, bytes, self.hasher, executor));
        let settings = &engine.settings;
        let has_rates = settings.rate.is_some() || settings.rate_per_key.is_some();
        let started = engine.spawn_workers().map_err(BuildError::Thread);
        let started = started.and_then(|()| if has_rates { engine.keep_rates() } else { Ok(()) });
        match started {
            Ok(()) => Ok(engine),
            Err(error) => {
                engine.shut_down();
                Err(error)
            }
        }
    }
}

impl<K, S> fmt::Debug for Builder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
