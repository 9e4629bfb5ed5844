//! What can be chosen when a pool is built.

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::admit::ByteBound;
use crate::allocate::{Order, default_workers};
#[cfg(feature = "tokio")]
use crate::complete::MAX_FUTURES;
use crate::engine::{Engine, EngineSettings, Execute, JobRules, Key, OnFailure};
use crate::error::BuildError;
use crate::handler::{HandlerPool, Messages};
use crate::observe::Statistics;
use crate::order::Rate;
use crate::pool::{Closures, Pool};
use crate::run::{ExecContext, MockClock, Placement, SpawnWorkers, TaskContext, Turn};

/// The most workers that a pool can have.
pub const MAX_WORKERS: usize = 1 << 16;

/// The most bytes that the tasks of a pool can be bounded by: see [`Builder::capacity_bytes`].
pub const MAX_CAPACITY_BYTES: usize = ByteBound::MAX;

/// The most tasks that a pool can have room for.
pub const MAX_CAPACITY: usize = 1 << 31;

/// The hasher of a pool's keys, unless another is chosen: fast, and seeded anew in each process, so
/// that keys cannot easily be chosen to collide. It does not claim to withstand an attacker who can
/// measure it; against such choose `std::hash::RandomState`.
#[derive(Clone, Debug, Default)]
pub struct KeyBuildHasher(foldhash::quality::RandomState);

impl BuildHasher for KeyBuildHasher {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0.build_hasher())
    }
}

/// Hashes one key for a [`KeyBuildHasher`].
#[derive(Clone)]
pub struct KeyHasher(foldhash::quality::FoldHasher<'static>);

/// Hands every kind of write on, for each has a fast path of its own.
macro_rules! forward {
    ($($write:ident($int:ty)),*) => {
        $(
            #[inline]
            fn $write(&mut self, value: $int) {
                self.0.$write(value);
            }
        )*
    };
}

impl Hasher for KeyHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    forward!(write_u8(u8), write_u16(u16), write_u32(u32), write_u64(u64), write_u128(u128));
    forward!(write_usize(usize));
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}

/// Builds a [`Pool`] or a [`HandlerPool`].
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
                stop_after: None,
                rate: None,
                rate_per_key: None,
                clock: None,
                thread_name: "keylane".to_owned(),
                stack_size: None,
                on_panic: None,
                placement: Placement::default(),
                jobs: JobRules::default(),
                statistics: Statistics::default(),
                self_check: false,
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
    /// The number of worker threads: by default [`default_workers`], one for each physical core that
    /// the process may use, within its quota, with a CPU left for the rest of the process where there
    /// is one to spare. `keylane calibrate` measures what suits a machine best.
    ///
    /// Bodies that wait, for a disk, a network or a lock, want more workers than processors.
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.workers = workers;
        self
    }

    /// How many tasks may be accepted and unfinished at a time: by default 65,536.
    pub fn capacity(mut self, capacity: usize) -> Self {
        self.settings.capacity = capacity;
        self
    }

    /// How many tasks of one key may be accepted and unfinished at a time, so that a hot key cannot
    /// fill the pool: by default as many as there is room for at all. The one that runs counts, as do
    /// those that wait; a rollup counts in each of its keys, a barrier in none.
    ///
    /// Who submits beyond that waits for its key, first come, first served among those of that key,
    /// and until then takes no room from anybody else and stands before nobody else in a line.
    /// A rollup waits until each of its keys has a place for it, and only those who come after it
    /// for one of its keys wait behind it. A task that submits from inside never waits, and may
    /// exceed the bound.
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
    /// let refused = pool.try_execute("hot", || {}).unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::KeyFull);
    /// pool.execute("cold", || println!("goes on"))?;
    /// finish.send(())?;
    /// pool.execute("hot", || println!("after the other two, once one of them has ended"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn capacity_per_key(mut self, tasks: usize) -> Self {
        self.settings.per_key = Some(tasks);
        self
    }

    /// How many bytes unfinished tasks may hold together: by default as many as they like. What a
    /// task weighs is said with [`Claims::with_cost`](crate::Claims::with_cost), what a message weighs
    /// by the function that is given to [`build_weighed_handler`](Self::build_weighed_handler). Any
    /// other unit than bytes will do as well.
    ///
    /// Who waits for bytes is served first come, first served, so large tasks do not starve: those that
    /// come later and weigh something wait behind them. What weighs more than the bound is refused
    /// with [`TooLarge`](crate::SubmitErrorKind::TooLarge). A task that submits from inside never
    /// waits, and may exceed the bound. The bytes are free again when the body has returned, and its
    /// captures are gone; where the turn is kept, when it ends.
    pub fn capacity_bytes(mut self, bytes: usize) -> Self {
        self.settings.bytes = Some(bytes);
        self
    }

    /// Which worker runs the tasks of a key: by default whoever is free first.
    ///
    /// With [`Placement::Sticky`] it is the same one again, for what it has of the key in its cache. That costs nobody
    /// anything: a worker that has nothing to do takes the tasks of another that is busy, and those of one
    /// that is with a long task are taken by all. It is a preference and no promise, and changes with the number of workers.
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

    /// How often tasks may begin, those of all keys together: by default whenever they can. Beyond that no worker
    /// takes one until it may begin. [`Settings::set_rate`](crate::control::Settings::set_rate) changes it.
    ///
    /// - Each body that begins counts: a rollup and a barrier as one, and each subtask of a job.
    /// - It bounds beginnings, not how many run at a time, which is what workers are for.
    /// - What is accepted waits, and counts for the capacity; so does whoever waits for
    ///   [a drain](Pool::shutdown). What has not begun is returned by [`Pool::shutdown_now`].
    ///
    /// A pool with any rate has a thread more, which sleeps until somebody may go on, and spends more on
    /// each task; without one nothing is spent.
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

    /// How often tasks of one key may begin: by default whenever they can. Beyond that the key is held, as if
    /// somebody had [paused](crate::control::Keys::pause) it, until the next may begin.
    /// [`Settings::set_rate_per_key`](crate::control::Settings::set_rate_per_key) changes it, and [`Keys::set_rate`](crate::control::Keys::set_rate) for one key.
    ///
    /// - The order within a key stays what it is, and no other key waits. No worker does, either.
    /// - A rollup counts in each of its keys, and waits until all of them have a token. A task that shares the key
    ///   counts; a barrier does not. A cancelled task counts when its turn comes.
    /// - A rollup that has got a key which it shares begins, though others that share it may have used
    ///   the last token meanwhile; the key then waits for so much longer. So the rate is kept in the long run, and the
    ///   burst, in that one case, is not.
    /// - A subtask of a job counts when it gets its keys, just before a worker of the job comes for it.
    /// - [`Keys::paused`](crate::control::Keys::paused) says when the next may begin, and so does all that explains.
    ///
    /// A key costs a few hundred bytes from its first task until its bucket is full again, or for a second.
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

    /// Keeps rates by this clock instead of the system's, for tests. See [`MockClock`] for an example.
    pub fn clock(mut self, clock: &MockClock) -> Self {
        self.settings.clock = Some(clock.clone());
        self
    }

    /// How long a lane may keep a worker while other tasks are ready: so many tasks, and not much
    /// longer than so long. By default 64 tasks and 10 ms. Beyond that it may stay on as long as no
    /// more than half of the workers are on such lanes: the others are for everybody else, and the
    /// longest chain of tasks is often what the whole takes.
    ///
    /// The time is looked at between tasks: after each one that takes 20 µs or more, and at most 64
    /// tasks apart.
    pub fn quantum(mut self, tasks: usize, time: Duration) -> Self {
        self.settings.quantum_tasks = tasks;
        self.settings.quantum_time = time;
        self
    }

    /// Has a lane yield after its quantum while other tasks are ready, unless more waits in it than in the lane
    /// whose turn it would be, and it stays on no more than half of the workers with others like it:
    /// [`quantum`](Self::quantum) has the rule without this.
    ///
    /// For lanes that all have much to do, and slow tasks: what is left of them gets evenly less, so that none of
    /// them is left in the end with the others' workers idle.
    /// Turns go round all lanes; so all workers share one lock, which costs nothing that can be measured where tasks
    /// take some 100 µs or more.
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

    /// What becomes of a key whose tasks fail: by default it goes on. A pool in which failures count
    /// spends a little more on each task; others nothing.
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.settings.stop_after = match on_failure {
            OnFailure::Continue => None,
            OnFailure::StopKey { after } => Some(after),
        };
        self
    }

    /// What the worker threads are called, before their number: by default `keylane`.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.settings.thread_name = name.into();
        self
    }

    /// The stack of each worker, in bytes: by default what the platform gives a thread.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.settings.stack_size = Some(bytes);
        self
    }

    /// Called with the payload of each panic of a task, on the worker, before the next task of the
    /// same key. By default nothing is, beyond the process' own panic hook.
    pub fn on_panic(mut self, hook: impl Fn(&(dyn Any + Send)) + Send + Sync + 'static) -> Self {
        self.settings.on_panic = Some(Box::new(hook));
        self
    }

    /// How many jobs may be active at a time, at least one: those that have begun, and run or could. By
    /// default as many as there are workers; in another order than [`Order::Arrival`] there is no bound.
    /// A job that comes when so many are active waits for one of them to end.
    pub fn max_active_jobs(mut self, jobs: usize) -> Self {
        self.settings.jobs.max_active = Some(jobs);
        self
    }

    /// For how long a job can be held at one worker while others with less to do get the rest: after
    /// that it gets another for one subtask, and waits anew. By default for ever. Counted in
    /// milliseconds, rounded up.
    pub fn job_patience(mut self, patience: Duration) -> Self {
        let millis = patience.as_nanos().div_ceil(1_000_000);
        self.settings.jobs.patience = Some(u64::try_from(millis).unwrap_or(u64::MAX));
        self
    }

    /// Whom the rules for jobs put first: by default [`Order::Arrival`], where each active job keeps a
    /// worker. Where many jobs of different sizes come at a high load, [`Order::Balanced`] makes the
    /// mean of their times many times shorter.
    ///
    /// ```
    /// use keylane::Pool;
    /// use keylane::allocate::Order;
    ///
    /// let pool = Pool::<u32>::builder().job_order(Order::Balanced).build()?;
    /// let job = pool.job("short ones first").each((0..10).map(|n| move || n)).collect()?;
    /// assert_eq!(job.wait()?.unwrap().len(), 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn job_order(mut self, order: Order) -> Self {
        self.settings.jobs.order = order;
        self
    }

    /// Where the futures of [`Pool::submit_future`] run, and how many at a time.
    ///
    /// A future that has its keys and no permit to run waits on the runtime, not on a worker. The
    /// limit is independent of the number of workers, which only hand futures over.
    #[cfg(feature = "tokio")]
    pub fn runtime(mut self, handle: tokio::runtime::Handle, concurrency: usize) -> Self {
        self.settings.concurrency = concurrency;
        // What is out of its range is refused by `build`.
        let permits = concurrency.clamp(1, MAX_FUTURES);
        self.settings.runtime = Some(crate::complete::Runtime::new(handle, permits));
        self
    }

    /// How much is measured while the pool runs: by default as much as can be for next to nothing,
    /// which is [`Statistics::Sampled`]. `docs/observe.md` has what each costs.
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

    /// Whether each task is checked against the pool's own promises when it begins: that none runs that
    /// it conflicts with, nor more of a key than [may](crate::Claims::limited), and that none has begun of one of its keys that was submitted after it. By default
    /// not. [`Snapshot::violations`](crate::observe::Snapshot::violations) says how often that was not so, which must be
    /// never; if it is not, please report it.
    ///
    /// For tests. Each task takes about a microsecond more, all workers share a lock, and every key that
    /// was ever seen is remembered. Subtasks of jobs that have no keys are not checked.
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

    /// The hasher of the keys: by default a [`KeyBuildHasher`].
    pub fn hasher<T: BuildHasher + Send + Sync + 'static>(self, hasher: T) -> Builder<K, T> {
        Builder { settings: self.settings, hasher, keys: PhantomData }
    }

    /// Builds a pool that runs closures.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range, or a thread cannot be had.
    pub fn build(self) -> Result<Pool<K, S>, BuildError> {
        self.start(|_| Closures).map(Pool::new)
    }

    /// Builds a pool with one handler for many messages.
    ///
    /// Neither a closure nor an allocation is spent on a message: it is stored beside its key until
    /// the handler is called with both.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_handler<M: Send + 'static>(
        self,
        handler: impl Fn(&K, M) + Send + Sync + 'static,
    ) -> Result<HandlerPool<K, M, S>, BuildError> {
        self.start(|_| Messages::new(move |key: &K, message, _| handler(key, message)))
            .map(HandlerPool::new)
    }

    /// The same for a handler that can fail. What it returns counts where failures of a key
    /// [count](Self::on_failure), and is dropped: a handler that wants to keep it does so itself.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_fallible_handler<M: Send + 'static, E>(
        self,
        handler: impl Fn(&K, M) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<HandlerPool<K, M, S>, BuildError> {
        self.start(|_| {
            Messages::new(move |key: &K, message, ctx: &mut dyn ExecContext| {
                if handler(key, message).is_err() {
                    ctx.failed();
                }
            })
        })
        .map(HandlerPool::new)
    }

    /// The same for a handler that only begins the work: the turn of the message lasts until the
    /// [`Turn`] is dropped, on whatever thread, and the worker is free as soon as the handler
    /// returns.
    ///
    /// A turn that is dropped before the handler returns ends when that does. If the handler panics the message has
    /// failed, whatever becomes of the turn.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_handler_with_turns<M: Send + 'static>(
        self,
        handler: impl Fn(&K, M, Turn) + Send + Sync + 'static,
    ) -> Result<HandlerPool<K, M, S>, BuildError> {
        self.start(|_| {
            Messages::new(move |key: &K, message, ctx: &mut dyn ExecContext| {
                handler(key, message, ctx.keep_turn());
            })
        })
        .map(HandlerPool::new)
    }

    /// The same for a handler that has mostly done the work when it returns, and keeps the turn where it has
    /// not: see [`TaskContext`]. What never keeps one costs what it does with
    /// [`build_handler`](Self::build_handler).
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_handler_keeping_turns<M: Send + 'static>(
        self,
        handler: impl Fn(&K, M, TaskContext<'_>) + Send + Sync + 'static,
    ) -> Result<HandlerPool<K, M, S>, BuildError> {
        self.start(|_| {
            Messages::new(move |key: &K, message, ctx: &mut dyn ExecContext| {
                handler(key, message, TaskContext::new(ctx));
            })
        })
        .map(HandlerPool::new)
    }

    /// Like [`build_handler`](Self::build_handler), where [`capacity_bytes`](Self::capacity_bytes)
    /// bounds what the messages weigh.
    ///
    /// `weigh` is asked twice, when the message is sent and before it is handled, so it must give the
    /// same answer: the bytes that come back are those of the second. It must not panic.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder()
    ///     .capacity_bytes(64 << 20)
    ///     .build_weighed_handler(Vec::len, |key: &u32, page: Vec<u8>| println!("{key}: {}", page.len()))?;
    /// pool.send(7, vec![0; 4096])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_weighed_handler<M: Send + 'static>(
        self,
        weigh: impl Fn(&M) -> usize + Send + Sync + 'static,
        handler: impl Fn(&K, M) + Send + Sync + 'static,
    ) -> Result<HandlerPool<K, M, S>, BuildError> {
        let handler = move |key: &K, message, _: &mut dyn ExecContext| handler(key, message);
        self.start(|bytes| Messages::weighed(weigh, bytes, handler)).map(HandlerPool::new)
    }

    /// Like [`build_handler_with_turns`](Self::build_handler_with_turns), where
    /// [`capacity_bytes`](Self::capacity_bytes) bounds what the messages weigh, by a `weigh` as for
    /// [`build_weighed_handler`](Self::build_weighed_handler).
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_weighed_handler_with_turns<M: Send + 'static>(
        self,
        weigh: impl Fn(&M) -> usize + Send + Sync + 'static,
        handler: impl Fn(&K, M, Turn) + Send + Sync + 'static,
    ) -> Result<HandlerPool<K, M, S>, BuildError> {
        let handler = move |key: &K, message, ctx: &mut dyn ExecContext| {
            handler(key, message, ctx.keep_turn());
        };
        self.start(|bytes| Messages::weighed(weigh, bytes, handler)).map(HandlerPool::new)
    }

    /// Like [`build_handler_keeping_turns`](Self::build_handler_keeping_turns), where
    /// [`capacity_bytes`](Self::capacity_bytes) bounds what the messages weigh, by a `weigh` as for
    /// [`build_weighed_handler`](Self::build_weighed_handler). What a message weighs is taken until its turn is
    /// dropped, if that is kept.
    ///
    /// ```
    /// use keylane::{Pool, TaskContext};
    ///
    /// let pool = Pool::<u32>::builder().capacity_bytes(64 << 20).build_weighed_handler_keeping_turns(
    ///     Vec::len,
    ///     |key: &u32, page: Vec<u8>, _: TaskContext<'_>| println!("{key}: {}", page.len()),
    /// )?;
    /// pool.send(7, vec![0; 4096])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_weighed_handler_keeping_turns<M: Send + 'static>(
        self,
        weigh: impl Fn(&M) -> usize + Send + Sync + 'static,
        handler: impl Fn(&K, M, TaskContext<'_>) + Send + Sync + 'static,
    ) -> Result<HandlerPool<K, M, S>, BuildError> {
        let handler = move |key: &K, message, ctx: &mut dyn ExecContext| {
            handler(key, message, TaskContext::new(ctx));
        };
        self.start(|bytes| Messages::weighed(weigh, bytes, handler)).map(HandlerPool::new)
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
