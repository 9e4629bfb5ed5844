//! Builder of consumers: settings with their defaults, and one start method per form of handler.

use std::hash::Hash;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use keylane::{BuildError, MAX_CAPACITY, TaskContext, handler};

use super::attempt::{Ack, Attempt};
use super::batch::{BatchBy, BatchConfig, BatchFn};
use super::coordinator::{Coordinator, CoordinatorConfig};
use super::dead_letter_queue::DeadLetterQueue;
use super::event::ConsumerEvent;
use super::failure::AttemptFailure;
use super::failure_policy::FailurePolicy;
#[cfg(feature = "tokio")]
use super::handler::{AckOnReady, AsyncHandler};
use super::handler::{HandlerAdapter, SyncHandler, SyncWithOutput, WithAck};
use super::in_flight::InFlight;
use super::key_batches::KeyBatches;
use super::key_guard::PoolTurn;
use super::mailbox::Mailbox;
use super::mixed_batches::MixedBatches;
use super::ordering::{LaneId, OrderBy, UnkeyedPolicy};
use super::outbox::Outbox;
use super::outside::Outside;
use super::partition::InFlightLimits;
use super::shared::ConsumerShared;
use super::threads::BackgroundThreads;
use super::{Consumer, RecordPool, StartError};
use crate::Record;
use crate::dead_letters::DeadLetters;
use crate::retry::{RetryPolicy, RetryRule};
use crate::sink::Sink;
use crate::source::Source;

/// Builds a [`Consumer`].
#[must_use = "a builder does nothing until it starts a consumer"]
pub struct ConsumerBuilder {
    source: Box<dyn Source>,
    config: CoordinatorConfig,
    policy: FailurePolicy,
    dead_letter_sink: Option<Box<dyn DeadLetters>>,
    threads: Option<usize>,
    thread_name: String,
}

impl Consumer {
    /// Returns a builder of a consumer of `source`.
    pub fn builder(source: impl Source + 'static) -> ConsumerBuilder {
        ConsumerBuilder::new(Box::new(source))
    }
}

impl ConsumerBuilder {
    fn new(source: Box<dyn Source>) -> Self {
        let rule = RetryPolicy::new(RetryRule::default()).expect("the default rule is valid");
        ConsumerBuilder {
            source,
            config: CoordinatorConfig {
                order: OrderBy::Key,
                unkeyed: UnkeyedPolicy::default(),
                limits: InFlightLimits { records: 4096, bytes: 16 * 1024 * 1024 },
                commit_every: Duration::from_secs(1),
                commit_after: 10_000,
                shutdown_timeout: Duration::from_secs(30),
                cancel_grace: Duration::from_secs(5),
                on_event: None,
            },
            policy: FailurePolicy::new(rule, |_| ()),
            dead_letter_sink: None,
            threads: None,
            thread_name: "keylane-consumer".to_owned(),
        }
    }

    /// Orders by the record's own key, within its partition. This is the default.
    pub fn by_key(mut self) -> Self {
        self.config.order = OrderBy::Key;
        self
    }

    /// Orders by the result of a function, within each partition: a field of the payload, a header.
    /// `None` stands for a record without a key.
    ///
    /// One thread calls the function for all records, so it should be fast, and it must return the
    /// same key for the same record. If it panics, the record [fails](AttemptFailure::Panicked) without an
    /// attempt.
    pub fn by(
        mut self,
        key_of: impl Fn(&Record) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        self.config.order = OrderBy::By(Arc::new(key_of));
        self
    }

    /// Handles the records of a partition one after another.
    pub fn by_partition(mut self) -> Self {
        self.config.order = OrderBy::Partition;
        self
    }

    /// Handles records in any order.
    pub fn unordered(mut self) -> Self {
        self.config.order = OrderBy::None;
        self
    }

    /// Sets the order of records without a key. Default: [`UnkeyedPolicy::OneByOne`].
    pub fn unkeyed(mut self, unkeyed: UnkeyedPolicy) -> Self {
        self.config.unkeyed = unkeyed;
        self
    }

    /// Sets the number of threads that run handlers. Default: the pool's own, or one for handlers
    /// that only start their work. Handlers that block need one thread per record in progress.
    ///
    /// With blocking handlers and this setting, keys take turns by a [strict
    /// quantum](keylane::Builder::strict_quantum), so that all threads stay busy to the end.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// Sets the prefix of the threads' names; a number follows.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Limits the records in flight per partition, by number and by bytes. Default: 4,096 and 16
    /// MiB. A partition at a limit is paused; others continue. One record is always admitted,
    /// whatever its size.
    pub fn max_in_flight(mut self, records: usize, bytes: usize) -> Self {
        self.config.limits = InFlightLimits { records: records.max(1), bytes };
        self
    }

    /// Sets the commit interval: progress is committed `every` after the last commit, or after
    /// `after_records` completed records of a partition, whichever comes first. Default: 1 s and
    /// 10,000 records. After a crash, records completed since the last commit are handled again.
    pub fn commit(mut self, every: Duration, after_records: u64) -> Self {
        self.config.commit_every = every;
        self.config.commit_after = after_records.max(1);
        self
    }

    /// Sets the time that running attempts have when a partition is revoked, or the consumer stops
    /// after a failure. Default: 30 s. Later answers are ignored, and their records are handled
    /// again.
    pub fn shutdown_timeout(mut self, within: Duration) -> Self {
        self.config.shutdown_timeout = within;
        self
    }

    /// Sets the last part of the [shutdown timeout](Self::shutdown_timeout), in which running
    /// attempts are [asked to end](Attempt::on_cancel). It is at most half of that timeout. Default:
    /// 5 s.
    pub fn cancel_grace(mut self, grace: Duration) -> Self {
        self.config.cancel_grace = grace;
        self
    }

    /// Sets the retry policy. `classify` maps a failure to a class of the policy. Default: 10
    /// attempts for all failures, then the consumer stops.
    ///
    /// `classify` is called on the thread that ended the attempt. If it panics, the consumer stops.
    pub fn retry<C>(
        mut self,
        policy: RetryPolicy<C>,
        classify: impl Fn(&AttemptFailure) -> C + Send + Sync + 'static,
    ) -> Self
    where
        C: Eq + Hash + Send + Sync + 'static,
    {
        self.policy = FailurePolicy::new(policy, classify);
        self
    }

    /// Sets the destination of records whose last attempt has failed, for policies with
    /// [`OnExhausted::DeadLetter`](crate::retry::OnExhausted::DeadLetter).
    pub fn dead_letters(mut self, letters: impl DeadLetters + 'static) -> Self {
        self.dead_letter_sink = Some(Box::new(letters));
        self
    }

    /// Sets a callback for events. It is called on the coordinator thread and must return quickly.
    pub fn on_event(mut self, hook: impl Fn(&ConsumerEvent) + Send + 'static) -> Self {
        self.config.on_event = Some(Box::new(hook));
        self
    }

    /// Starts a consumer with a function as its handler. The record is handled when the function
    /// returns.
    ///
    /// # Errors
    /// If a thread cannot be started, or a rule uses dead letters and no destination is set.
    pub fn start<E>(
        self,
        handler: impl Fn(&Attempt) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<Consumer, StartError>
    where
        E: Into<AttemptFailure> + 'static,
    {
        self.start_with(SyncHandler(handler), None)
    }

    /// Starts a consumer whose handler returns a future. The record is handled when the future is
    /// ready. At most `concurrency` futures run at a time, on `runtime`.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    #[cfg(feature = "tokio")]
    pub fn start_async<F, E>(
        self,
        runtime: tokio::runtime::Handle,
        concurrency: usize,
        handler: impl Fn(Attempt) -> F + Send + Sync + 'static,
    ) -> Result<Consumer, StartError>
    where
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<AttemptFailure> + 'static,
    {
        let futures = AsyncHandler::new(handler, AckOnReady, runtime, concurrency);
        self.start_with(futures, Some(1))
    }

    /// Starts a consumer whose handler returns records for a sink. The handled record is complete
    /// when the sink has written them, or at once if there are none. [`Outbox`] documents the
    /// guarantees.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Examples
    /// ```
    /// use keylane_stream::Record;
    /// use keylane_stream::consumer::{Attempt, Consumer, AttemptFailure};
    /// use keylane_stream::journal::{Journal, JournalSource};
    /// use keylane_stream::sink::JournalSink;
    ///
    /// # let folder = tempfile::tempdir()?;
    /// let orders = Journal::open(folder.path().join("orders.journal"))?;
    /// let bills = Journal::open(folder.path().join("bills.journal"))?;
    /// orders.append(&Record::new("ann", "2"))?;
    ///
    /// let source = JournalSource::new(orders, "billing").to_the_end();
    /// let sink = JournalSink::new(bills.clone());
    /// let consumer = Consumer::builder(source).start_producing(sink, |order: &Attempt| {
    ///     let count: u64 = std::str::from_utf8(order.payload())?.parse()?;
    ///     let bill = format!("{} EUR", count * 7).into_bytes();
    ///     let key = order.key().map(Vec::from);
    ///     Ok::<_, AttemptFailure>(vec![Record { key, payload: Some(bill), headers: order.origin() }])
    /// })?;
    /// consumer.wait();
    /// assert_eq!(bills.read(Default::default(), 10)?[0].record.payload(), b"14 EUR");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_producing<E>(
        self,
        sink: impl Sink + 'static,
        handler: impl Fn(&Attempt) -> Result<Vec<Record>, E> + Send + Sync + 'static,
    ) -> Result<Consumer, StartError>
    where
        E: Into<AttemptFailure> + 'static,
    {
        let outbox = Outbox::start(sink).map_err(StartError::Thread)?;
        self.start_with(SyncWithOutput { handler, outbox }, None)
    }

    /// Starts a consumer whose handler returns a future of records for a sink. Combines
    /// [`start_async`](Self::start_async) and [`start_producing`](Self::start_producing).
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    #[cfg(feature = "tokio")]
    pub fn start_async_producing<F, E>(
        self,
        runtime: tokio::runtime::Handle,
        concurrency: usize,
        sink: impl Sink + 'static,
        handler: impl Fn(Attempt) -> F + Send + Sync + 'static,
    ) -> Result<Consumer, StartError>
    where
        F: Future<Output = Result<Vec<Record>, E>> + Send + 'static,
        E: Into<AttemptFailure> + 'static,
    {
        let outbox = Outbox::start(sink).map_err(StartError::Thread)?;
        self.start_with(AsyncHandler::new(handler, outbox, runtime, concurrency), Some(1))
    }

    /// Starts a consumer whose handler only starts its work, and ends it with the [`Ack`] on any
    /// thread.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_with_acks(
        self,
        handler: impl Fn(Attempt, Ack) + Send + Sync + 'static,
    ) -> Result<Consumer, StartError> {
        self.start_with(WithAck(handler), Some(1))
    }

    /// Starts a consumer whose handler receives several records at once. They are handled when it
    /// returns. At most one batch per [thread](Self::threads) is handled at a time.
    ///
    /// - [`BatchConfig::by`] chooses batches of different keys or of one key. Order is kept: a
    ///   batch of a key starts where the one before ended, and no two batches of a key run at the
    ///   same time. A batch is handled when it is full, or when its first record has waited for
    ///   [`linger`](BatchConfig::linger), including the time that it has waited for an earlier
    ///   batch of its key.
    /// - If the batch fails, an attempt at each of its records has failed, and the retry policy
    ///   applies to each; a retry may be in another batch. Records of one key are resolved in
    ///   order; when one of them is retried, those behind it are retried with it.
    /// - With [`split`](BatchConfig::split), each record of a failed batch is handled alone first,
    ///   so that one bad record does not count against the others; the good ones are then handled
    ///   twice. A handler that returns [`BatchFailure`](super::BatchFailure) names the bad record, and no
    ///   record is handled twice.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_batches<E>(
        self,
        batch: BatchConfig,
        handler: impl Fn(&[Attempt]) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<Consumer, StartError>
    where
        E: Into<AttemptFailure> + 'static,
    {
        let threads = self.threads.unwrap_or_else(default_threads);
        let handler: Arc<BatchFn> =
            Arc::new(move |attempts: &[Attempt]| handler(attempts).map_err(Into::into));
        // The pool only moves records into the queue, for which one thread suffices.
        let this = self.threads(1);
        match batch.by {
            BatchBy::Mixed => {
                let together = MixedBatches::start(batch, threads, &handler);
                this.start_with(together.map_err(StartError::Thread)?, None)
            }
            BatchBy::Key => {
                let by_key = KeyBatches::start(batch, threads, &handler);
                this.start_with(by_key.map_err(StartError::Thread)?, None)
            }
        }
    }

    fn start_with(
        self,
        handler: impl HandlerAdapter,
        threads: Option<usize>,
    ) -> Result<Consumer, StartError> {
        if self.policy.uses_dead_letters() && self.dead_letter_sink.is_none() {
            return Err(StartError::NoDeadLetters);
        }
        let shared = Arc::new(ConsumerShared {
            mailbox: Mailbox::new(self.source.waker()),
            policy: self.policy,
            timer: super::timer::RetryTimer::default(),
            dead_letters: DeadLetterQueue::default(),
            times: super::handler_times::TimeHistogram::default(),
            outside: Outside::system(),
        });
        let pool = start_pool(&shared, handler, self.threads.or(threads), self.thread_name)?;
        let pool = Arc::new(pool);
        let threads = BackgroundThreads::start(&shared, &pool, self.dead_letter_sink)?;
        let coordinator = Coordinator::new(self.source, pool, shared.clone(), self.config);
        let coordinator = thread::Builder::new()
            .name("keylane-coord".to_owned())
            .spawn(move || threads.end_with(coordinator.run()))
            .map_err(StartError::Thread)?;
        Ok(Consumer::new(shared, coordinator))
    }
}

/// Builds a pool whose workers call the handler with the turn of the record's lane.
fn start_pool<H: HandlerAdapter>(
    shared: &Arc<ConsumerShared>,
    handler: H,
    threads: Option<usize>,
    thread_name: String,
) -> Result<RecordPool, BuildError> {
    let mut pool = keylane::Pool::builder().capacity(MAX_CAPACITY).thread_name(thread_name);
    if let Some(threads) = threads {
        pool = pool.workers(threads);
        if H::BLOCKS {
            // A number of threads is set for handlers that block. Even progress of the keys keeps
            // all threads busy to the end.
            pool = pool.strict_quantum();
        }
    }
    let shared = shared.clone();
    let handle = move |lane: &LaneId, in_flight: InFlight, task: TaskContext<'_>| {
        handler.handle_record(&shared, lane, in_flight, &mut PoolTurn::new(task));
    };
    pool.build_handler(handler::with_context(handle))
}

fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl std::fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerBuilder").field("order", &self.config.order).finish_non_exhaustive()
    }
}
