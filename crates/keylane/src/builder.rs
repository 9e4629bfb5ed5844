//! What can be chosen when a pool is built.

use std::any::Any;
use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::allocate::default_workers;
#[cfg(feature = "tokio")]
use crate::complete::MOST_FUTURES;
use crate::engine::{Engine, Execute, JobRules, Key, Settings};
use crate::error::BuildError;
use crate::handler::{HandlerPool, Messages};
use crate::pool::{Closures, Pool};
use crate::run::{CrewControl, Turn};

/// The most workers that a pool can have.
pub const MAX_WORKERS: usize = 1 << 16;

/// The most tasks that a pool can have room for.
pub const MAX_CAPACITY: usize = 1 << 31;

/// The hasher of a pool's keys, unless another is chosen: fast, and seeded anew in each process, so
/// that keys cannot easily be chosen to collide. It does not claim to withstand an attacker who can
/// measure it; against such choose `std::hash::RandomState`.
#[derive(Clone, Debug, Default)]
pub struct KeyHasher(foldhash::quality::RandomState);

impl BuildHasher for KeyHasher {
    type Hasher = KeyHash;

    #[inline]
    fn build_hasher(&self) -> KeyHash {
        KeyHash(self.0.build_hasher())
    }
}

/// Hashes one key for a [`KeyHasher`].
#[derive(Clone)]
pub struct KeyHash(foldhash::quality::FoldHasher<'static>);

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

impl Hasher for KeyHash {
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

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHash").finish_non_exhaustive()
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
pub struct Builder<K, S = KeyHasher> {
    settings: Settings,
    hasher: S,
    keys: PhantomData<fn(K)>,
}

impl<K> Default for Builder<K> {
    fn default() -> Self {
        Builder {
            settings: Settings {
                workers: default_workers(),
                capacity: 65_536,
                quantum_tasks: 64,
                quantum_time: Duration::from_millis(10),
                thread_name: "keylane".to_owned(),
                stack_size: None,
                on_panic: None,
                jobs: JobRules::default(),
                #[cfg(feature = "tokio")]
                runtime: None,
                #[cfg(feature = "tokio")]
                concurrency: 1,
            },
            hasher: KeyHasher::default(),
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

    /// How many jobs may be active at a time, at least one: by default as many as there are workers,
    /// so that each of them can have one. A job that comes when so many are active waits for one of
    /// them to end.
    ///
    /// With as many long jobs as workers the next one, however short, waits for a whole job. A larger
    /// bound lets it in, and jobs beyond the number of workers take turns; so does
    /// [`shortest_job_first`](Self::shortest_job_first).
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

    /// Gives each free worker to the job with the fewest subtasks left, instead of one to each active
    /// job first, and bounds the active jobs only if [told to](Self::max_active_jobs).
    ///
    /// That comes near the least mean time that is possible, where subtasks take about equally long. A
    /// long job gets nothing while there are shorter ones, unless there is a
    /// [patience](Self::job_patience).
    pub fn shortest_job_first(mut self) -> Self {
        self.settings.jobs.shortest_first = true;
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
        let permits = concurrency.clamp(1, MOST_FUTURES);
        self.settings.runtime = Some(crate::complete::Runtime::new(handle, permits));
        self
    }

    /// The hasher of the keys: by default a [`KeyHasher`].
    pub fn hasher<T: BuildHasher + Send + Sync + 'static>(self, hasher: T) -> Builder<K, T> {
        Builder { settings: self.settings, hasher, keys: PhantomData }
    }

    /// Builds a pool that runs closures.
    ///
    /// # Errors
    ///
    /// If a setting is out of its range, or a thread cannot be had.
    pub fn build(self) -> Result<Pool<K, S>, BuildError> {
        self.start(Closures).map(Pool::new)
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
        self.start(Messages::new(move |key: &K, message, _| handler(key, message)))
            .map(HandlerPool::new)
    }

    /// The same for a handler that only begins the work: the turn of the message lasts until the
    /// [`Turn`] is dropped, on whatever thread, and the worker is free as soon as the handler
    /// returns.
    ///
    /// # Errors
    ///
    /// As for [`build`](Self::build).
    pub fn build_handler_with_turns<M: Send + 'static>(
        self,
        handler: impl Fn(&K, M, Turn) + Send + Sync + 'static,
    ) -> Result<HandlerPool<K, M, S>, BuildError> {
        self.start(Messages::new(move |key: &K, message, stage| {
            handler(key, message, stage.keep_turn());
        }))
        .map(HandlerPool::new)
    }

    fn start<X: Execute<K>>(self, executor: X) -> Result<Arc<Engine<K, X, S>>, BuildError> {
        let Settings { workers, capacity, quantum_tasks, .. } = self.settings;
        if !(1..=MAX_WORKERS).contains(&workers) {
            return Err(BuildError::Workers(workers));
        }
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            return Err(BuildError::Capacity(capacity));
        }
        if quantum_tasks == 0 {
            return Err(BuildError::QuantumTasks);
        }
        #[cfg(feature = "tokio")]
        if !(1..=MOST_FUTURES).contains(&self.settings.concurrency) {
            return Err(BuildError::Concurrency(self.settings.concurrency));
        }
        let engine = Arc::new(Engine::new(self.settings, self.hasher, executor));
        if let Err(error) = engine.fill_crew() {
            engine.shut_down();
            return Err(BuildError::Thread(error));
        }
        Ok(engine)
    }
}

impl<K, S> fmt::Debug for Builder<K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("settings", &self.settings).finish_non_exhaustive()
    }
}
