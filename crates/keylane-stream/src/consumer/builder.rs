//! Builder of consumers: settings with their defaults, and one start method per form of handler.

use std::hash::Hash;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use keylane::Rate;

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
use super::key_batches::KeyBatches;
use super::mailbox::Mailbox;
use super::mixed_batches::MixedBatches;
use super::ordering::{OrderBy, RecordClaims, UnkeyedPolicy};
use super::outbox::Outbox;
use super::outside::Outside;
use super::partition::InFlightLimits;
use super::pool_lanes::{self, LaneConfig};
use super::shared::ConsumerShared;
use super::threads::BackgroundThreads;
use super::{Consumer, StartError};
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
    lanes: LaneConfig,
    has_batches: bool,
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
                has_limits: false,
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
            lanes: LaneConfig {
                thread_name: "keylane-consumer".to_owned(),
                ..LaneConfig::default()
            },
            has_batches: false,
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

    /// Orders by any number of keys per record, which a function returns, over all partitions: a transfer
    /// between two accounts, a report that only reads, an end of the day as a barrier.
    ///
    /// - Of two records that [conflict](RecordClaims), the later one starts when the earlier one is
    ///   complete. In one partition, "later" is by position; of two partitions, by delivery.
    /// - The consumer needs all partitions of the stream, because it cannot wait for a record that
    ///   another process has. If another member of its group has some of them, or gets some, it stops
    ///   with [`StopReason::NotAlone`](super::StopReason::NotAlone): before it handles a record of such an assignment,
    ///   and when its running attempts have ended.
    /// - The rules for the function are those of [`by`](Self::by). Records without any key follow
    ///   [`unkeyed`](Self::unkeyed).
    /// - Cannot be combined with [batches](Self::start_batches) or [`latest`](Self::latest).
    pub fn by_keys(
        mut self,
        claims_of: impl Fn(&Record) -> RecordClaims + Send + Sync + 'static,
    ) -> Self {
        self.config.order = OrderBy::Claims(Arc::new(claims_of));
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
        self.lanes.thread_name = name.into();
        self
    }

    /// Limits the starts of records. Further attempts at a record are not counted. Records that wait
    /// for the rate occupy no thread, and are in flight.
    pub fn rate(mut self, rate: Rate) -> Self {
        self.lanes.rate = Some(rate);
        self
    }

    /// Limits the starts of the records of a key, as [`rate`](Self::rate) does those of all records.
    pub fn rate_per_key(mut self, rate: Rate) -> Self {
        self.lanes.rate_per_key = Some(rate);
        self
    }

    /// Lets up to `records` records of a key run at the same time, in no order among them. Records
    /// without a key keep their [policy](Self::unkeyed).
    ///
    /// When a record stops its key, those of the key that run may end, and no other begins.
    ///
    /// It is for consumers that order by keys. It cannot be combined with
    /// [batches](Self::start_batches) or [`latest`](Self::latest).
    pub fn limit_per_key(mut self, records: NonZeroU16) -> Self {
        self.lanes.limit_per_key = Some(records);
        self.config.has_limits = true;
        self
    }

    /// Lets a record replace the one of its key and partition that has not begun: only the latest is
    /// worth the work. The replaced record is complete at once, and counted in
    /// [`ConsumerCounts::replaced`](super::ConsumerCounts::replaced). Should the process die before the
    /// later record is complete, that one is delivered again.
    ///
    /// Records without a key are not replaced, nor are those that wait for their next attempt or
    /// behind a record that has stopped the key. It cannot be combined with
    /// [batches](Self::start_batches) or [`limit_per_key`](Self::limit_per_key).
    pub fn latest(mut self) -> Self {
        self.lanes.is_latest = true;
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
    ///     let bill = Some(format!("{} EUR", count * 7).into());
    ///     let key = order.record().key.clone();
    ///     Ok::<_, AttemptFailure>(vec![Record { key, payload: bill, headers: order.origin() }])
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
        let mut this = self.threads(1);
        this.has_batches = true;
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
        self.check_lanes()?;
        let has_lane_sets = self.config.order.is_over_partitions();
        let lanes = LaneConfig { has_lane_sets, ..self.lanes };
        let shared = Arc::new(ConsumerShared {
            mailbox: Mailbox::new(self.source.waker()),
            policy: self.policy,
            timer: super::timer::RetryTimer::default(),
            dead_letters: DeadLetterQueue::default(),
            times: super::handler_times::TimeHistogram::default(),
            outside: Outside::system(),
        });
        let threads = self.threads.or(threads);
        let lanes = pool_lanes::start(&shared, handler, threads, lanes)?;
        let threads = BackgroundThreads::start(&shared, &lanes, self.dead_letter_sink)?;
        let coordinator = Coordinator::new(self.source, lanes, shared.clone(), self.config);
        let coordinator = thread::Builder::new()
            .name("keylane-coord".to_owned())
            .spawn(move || threads.end_with(coordinator.run()))
            .map_err(StartError::Thread)?;
        Ok(Consumer::new(shared, coordinator))
    }

    /// Refuses settings of lanes that contradict each other.
    fn check_lanes(&self) -> Result<(), StartError> {
        let LaneConfig { limit_per_key, is_latest, .. } = self.lanes;
        let has_key = matches!(self.config.order, OrderBy::Key | OrderBy::By(_));
        let has_several = self.config.order.is_over_partitions();
        let refused = [
            (
                is_latest && limit_per_key.is_some(),
                "`latest` and `limit_per_key` exclude each other",
            ),
            (is_latest && self.has_batches, "`latest` cannot be combined with batches"),
            (
                limit_per_key.is_some() && self.has_batches,
                "`limit_per_key` cannot be combined with batches",
            ),
            (has_several && self.has_batches, "`by_keys` cannot be combined with batches"),
            (is_latest && !has_key, "`latest` is for consumers that order by one key"),
            (
                limit_per_key.is_some() && !has_key && !has_several,
                "`limit_per_key` is for consumers that order by keys",
            ),
        ];
        let refused = refused.into_iter().find(|(is_refused, _)| *is_refused);
        refused.map_or(Ok(()), |(_, why)| Err(StartError::Lanes(why)))
    }
}

fn default_threads() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

impl std::fmt::Debug for ConsumerBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerBuilder").field("order", &self.config.order).finish_non_exhaustive()
    }
}
