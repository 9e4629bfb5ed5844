use std::hash::Hash;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use keylane::{BuildError, MAX_CAPACITY, TurnKeeper};

use super::attempt::{Ack, Attempt, InFlight};
use super::batch::{BatchBy, BatchConfig, BatchFn};
use super::coordinator::{Coordinator, CoordinatorConfig};
use super::dead_letter_writer::DeadLetterQueue;
use super::event::ConsumerEvent;
use super::failure::Failure;
use super::failure_policy::FailurePolicy;
#[cfg(feature = "tokio")]
use super::handler::{AckOnReady, AsyncHandler};
use super::handler::{RecordHandler, SyncHandler, SyncWithOutput, WithAck};
use super::key_batches::KeyBatches;
use super::mailbox::Mailbox;
use super::mixed_batches::MixedBatches;
use super::ordering::{LaneId, OrderBy, UnkeyedPolicy};
use super::outbox::Outbox;
use super::partition::InFlightLimits;
use super::shared::ConsumerShared;
use super::threads::BackgroundThreads;
use super::{Consumer, Pool, StartError};
use crate::Record;
use crate::dead_letters::DeadLetters;
use crate::retry::{RetryPolicy, Rule};
use crate::sink::Sink;
use crate::source::Source;

/// Builds a [`Consumer`].
#[must_use = "a builder does nothing until it starts a consumer"]
pub struct Builder {
    source: Box<dyn Source>,
    config: CoordinatorConfig,
    policy: FailurePolicy,
    dead_letter_sink: Option<Box<dyn DeadLetters>>,
    threads: Option<usize>,
    thread_name: String,
}

impl Builder {
    pub(super) fn new(source: Box<dyn Source>) -> Self {
        let rule = RetryPolicy::new(Rule::default()).expect("the default makes sense");
        Builder {
            source,
            config: CoordinatorConfig {
                order: OrderBy::Key,
                unkeyed: UnkeyedPolicy::default(),
                limits: InFlightLimits { records: 4096, bytes: 16 * 1024 * 1024 },
                commit_every: Duration::from_secs(1),
                commit_after: 10_000,
                shutdown_timeout: Duration::from_secs(30),
                on_event: None,
            },
            policy: FailurePolicy::new(rule, |_| ()),
            dead_letter_sink: None,
            threads: None,
            thread_name: "keylane-consumer".to_owned(),
        }
    }

    /// Keeps order by the record's own key, within its partition. That is so by default.
    pub fn by_key(mut self) -> Self {
        self.config.order = OrderBy::Key;
        self
    }

    /// Keeps order by what a function says, within each partition: a field of the payload, a header.
    /// None is a record without a key.
    ///
    /// It is called by one thread for all records, so it should be quick, and must give the same answer
    /// for the same record. If it panics the record [fails](Failure::Panicked) without an attempt.
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

    /// Keeps no order.
    pub fn unordered(mut self) -> Self {
        self.config.order = OrderBy::None;
        self
    }

    /// What becomes of records without a key: by default [`UnkeyedPolicy::OneByOne`].
    pub fn unkeyed(mut self, unkeyed: UnkeyedPolicy) -> Self {
        self.config.unkeyed = unkeyed;
        self
    }

    /// Completion many threads run handlers: by default as many as a pool has, or one where handlers only
    /// begin their work. Handlers that block want as many as there should be at a time.
    ///
    /// Where handlers block and this is said, keys take turns on the threads, by a
    /// [strict quantum](keylane::Builder::strict_quantum), so that all threads have something to do to the end.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = Some(threads);
        self
    }

    /// What the threads are called, before their number.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Completion many records of a partition may be taken on and not done, and how many bytes they may take:
    /// by default 4,096 and 16 MiB. Beyond that the partition is held back, and it alone. One record is
    /// always taken on, however large it is.
    pub fn max_in_flight(mut self, records: usize, bytes: usize) -> Self {
        self.config.limits = InFlightLimits { records: records.max(1), bytes };
        self
    }

    /// When progress is stored: so long after the last time, or after so many records of a partition,
    /// whichever comes first. By default 1 s and 10,000 records. What was done since the last time is
    /// done again after a crash.
    pub fn commit(mut self, every: Duration, after_records: u64) -> Self {
        self.config.commit_every = every;
        self.config.commit_after = after_records.max(1);
        self
    }

    /// Completion long what runs is awaited when a partition is wanted back, or all stops because of a failure:
    /// by default 30 s. What runs longer is given up: its end does not count, and its record is handled
    /// again.
    pub fn shutdown_timeout(mut self, within: Duration) -> Self {
        self.config.shutdown_timeout = within;
        self
    }

    /// What is done about failures: `classify` sorts them into the classes of the policy. By default all
    /// are tried 10 times, and then everything stops.
    ///
    /// `classify` is called where the attempt ended. If it panics, everything stops.
    pub fn retry<C>(
        mut self,
        policy: RetryPolicy<C>,
        classify: impl Fn(&Failure) -> C + Send + Sync + 'static,
    ) -> Self
    where
        C: Eq + Hash + Send + Sync + 'static,
    {
        self.policy = FailurePolicy::new(policy, classify);
        self
    }

    /// Where records go whose last attempt has failed, if the policy sends them there.
    pub fn dead_letters(mut self, dead_letter_sink: impl DeadLetters + 'static) -> Self {
        self.dead_letter_sink = Some(Box::new(dead_letter_sink));
        self
    }

    /// Called with what a person may want to know, on the thread that keeps everything going: it must
    /// not take long.
    pub fn on_event(mut self, tell: impl Fn(&ConsumerEvent) + Send + 'static) -> Self {
        self.config.on_event = Some(Box::new(tell));
        self
    }

    /// Starts a consumer whose handler has handled the record when it returns.
    ///
    /// # Errors
    /// If a thread cannot be had, or a rule asks for dead dead_letter_sink and there is no place for them.
    pub fn start<E>(
        self,
        handler: impl Fn(&Attempt) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<Consumer, StartError>
    where
        E: Into<Failure> + 'static,
    {
        self.start_with(SyncHandler(handler), None)
    }

    /// Starts a consumer whose handler makes a future, which has handled the record when it is ready.
    /// Up to `concurrency` of them run at a time, on this runtime.
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
        E: Into<Failure> + 'static,
    {
        let futures = AsyncHandler::new(handler, AckOnReady, runtime, concurrency);
        self.start_with(futures, Some(1))
    }

    /// Starts a consumer whose handler returns records for a sink. The one that it got is done when
    /// these are written; if there are none, at once. [`Outbox`] has the promises.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Examples
    /// ```
    /// use keylane_stream::Record;
    /// use keylane_stream::consumer::{Attempt, Consumer, Failure};
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
    ///     Ok::<_, Failure>(vec![Record { key, payload: Some(bill), headers: order.origin() }])
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
        E: Into<Failure> + 'static,
    {
        let outbox = Outbox::start(sink).map_err(StartError::Thread)?;
        self.start_with(SyncWithOutput { handler, outbox }, None)
    }

    /// Starts a consumer whose handler makes a future that returns records for a sink: otherwise as
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
        E: Into<Failure> + 'static,
    {
        let outbox = Outbox::start(sink).map_err(StartError::Thread)?;
        self.start_with(AsyncHandler::new(handler, outbox, runtime, concurrency), Some(1))
    }

    /// Starts a consumer whose handler only begins its work. The [`Ack`] is its answer, on whatever
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

    /// Starts a consumer whose handler gets several records at once, and has handled them when it
    /// returns. As many batches are handled at a time as there are [threads](Self::threads).
    ///
    /// - A batch has records of different keys, or of one: [`Batch::by`]. OrderBy holds as ever: a batch of a key
    ///   begins where the one before ended, and no two of a key run at the same time. There is no batch
    ///   before it has as many records as it may, or its first one has waited as long as it shall; in a batch
    ///   of a key, who has waited for the batch before has waited.
    /// - If it fails, an attempt at each of its records has failed, and each goes its way by the policy:
    ///   the next time it may have other company. Those of a key go their ways in their order, each when the
    ///   one before is done with; as soon as one of them is tried again, those behind it are tried with it.
    /// - With [`split`](Batch::split) each of them is handled alone first, so that one that is bad does not
    ///   count against the others; those that were good are then handled twice. A handler that knows which
    ///   one was bad says so with [`FailedAt`](super::FailedAt), and nothing is handled twice.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    pub fn start_batches<E>(
        self,
        batch: BatchConfig,
        handler: impl Fn(&[Attempt]) -> Result<(), E> + Send + Sync + 'static,
    ) -> Result<Consumer, StartError>
    where
        E: Into<Failure> + 'static,
    {
        let threads = self.threads.unwrap_or_else(default_threads);
        let handler: Arc<BatchFn> =
            Arc::new(move |attempts: &[Attempt]| handler(attempts).map_err(Into::into));
        // One is enough to put records into a line.
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
        handler: impl RecordHandler,
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

/// A pool whose workers call the handler, with the turn of the record's lane.
fn start_pool<H: RecordHandler>(
    shared: &Arc<ConsumerShared>,
    handler: H,
    threads: Option<usize>,
    thread_name: String,
) -> Result<Pool, BuildError> {
    let mut pool = keylane::Pool::builder().capacity(MAX_CAPACITY).thread_name(thread_name);
    if let Some(threads) = threads {
        pool = pool.workers(threads);
        if H::BLOCKS {
            // Whoever says how many has handlers that wait. Keys are to get on evenly then, so that all threads
            // have something to do to the end.
            pool = pool.strict_quantum();
        }
    }
    let shared = shared.clone();
    pool.build_handler_keeping_turns(
        move |lane: &LaneId, in_flight: InFlight, turn: TurnKeeper<'_>| {
            handler.handle_record(&shared, lane, in_flight, turn);
        },
    )
}

fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Builder").field("order", &self.config.order).finish_non_exhaustive()
    }
}
