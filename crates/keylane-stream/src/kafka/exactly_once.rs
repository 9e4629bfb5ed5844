//! A source whose progress is committed in transactions, with what was made of its records: how one begins, and how
//! its partitions go on when a transaction was given up.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::ffi;
use super::metadata_thread::{CommittedOffset, MetadataRequest};
use super::partition::OwnedPartition;
use super::settings::KafkaSettings;
use super::source::KafkaSource;
use super::start_offset::{StartAt, epochs_of};
use super::topic_partition::TopicPartition;
use super::transaction::{TransactionOutcome, TransactionalOutput, Transactions};
use crate::source::{Assigned, Partition, Source as _, SourceError, SourceEvent};
use crate::tracker::MapLimit;

/// What is to be done about a transaction that was given up.
#[derive(Debug)]
pub(super) enum AbortState {
    /// There is none.
    None,
    /// The partitions are lost; what is stored of these is being looked up.
    Restoring(Vec<TopicPartition>),
    /// They are assigned again; the next transaction is opened when that was read.
    Reported,
    /// There will be no other.
    Hopeless,
}

impl KafkaSource {
    /// Joins a group whose records are handled exactly once, as far as their output is concerned: what was made of a
    /// record is in the topic `output`, as those see it who read what is committed, if and only if the
    /// record is done, and once, whatever fails. The second value is the sink for the handler's output; the two
    /// belong to one consumer.
    ///
    /// - Output and progress are committed in transactions: as often as the consumer
    ///   [commits](crate::consumer::Builder::commit). Output is seen so much later. Handlers go on meanwhile.
    /// - When one cannot be committed, its output is aborted, all partitions go back to what is stored, and their
    ///   records are handled again; [`Attempt::epoch`](crate::consumer::Attempt::epoch) is another one then. What
    ///   handlers do beside their output happens at least once, and dead letters are written at least once.
    /// - A process that dies, is stopped for long, or has lost its partitions leaves nothing behind that counts. Whoever
    ///   takes a partition over waits until the transaction is decided, at most for the client's
    ///   `transaction.timeout.ms` (10 s); it is also the longest time between two commits.
    /// - A record of a topic that is written by transactions is handled when its own was committed.
    /// - Output that brokers refuse for good, which the client did not know, ends the consumer.
    ///
    /// # Errors
    /// If a setting is unknown, wrong, or one that Keylane relies on.
    ///
    /// # Examples
    /// ```no_run
    /// use keylane_stream::Record;
    /// use keylane_stream::consumer::{Attempt, Consumer, Failure};
    /// use keylane_stream::kafka::{ClientSettings, KafkaSource, KafkaSettings};
    ///
    /// let settings = KafkaSettings::new(ClientSettings::new("localhost:9092"), ["orders"], "billing");
    /// let (orders, bills) = KafkaSource::join_exactly_once(settings, "bills")?;
    /// let consumer = Consumer::builder(orders).start_producing(bills, |order: &Attempt| {
    ///     let key = order.key().map(Vec::from);
    ///     Ok::<_, Failure>(vec![Record { key, payload: Some(b"a bill".to_vec()), headers: vec![] }])
    /// })?;
    /// # drop(consumer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn join_exactly_once(
        settings: KafkaSettings,
        output: impl Into<String>,
    ) -> Result<(Self, TransactionalOutput), SourceError> {
        let client = settings.client.clone();
        if client.get("isolation.level").is_some_and(|level| level != "read_committed") {
            let what = "exactly once is for records that are committed; leave out isolation.level";
            return Err(SourceError::new(what));
        }
        // Another producer of this name would be told that this one is the past, so no other process may have it.
        let random = RandomState::new().build_hasher().finish();
        let name = format!("keylane-{}-{random:016x}", settings.group);
        let mut source = KafkaSource::join(settings)?;
        let wakeup = Arc::clone(&source.context().wakeup);
        let (transactions, output) = Transactions::start(&client, &name, output.into(), wakeup)?;
        source.transactions = Some(transactions);
        Ok((source, output))
    }

    /// Commits these offsets and the output that goes with them, all of it or nothing.
    pub(super) fn commit_with_outputs(&mut self, offsets: TopicPartitionList, whose: &[Partition]) {
        let Some(transactions) = &self.transactions else { return };
        let names: Vec<_> = whose.iter().map(TopicPartition::of).collect();
        let place = |name: &TopicPartition| Some((name.clone(), self.owned.get(name)?.committing?));
        let watermarks: Vec<_> = names.iter().filter_map(place).collect();
        let is_member = ffi::is_member(self.consumer.client());
        let is_whole = watermarks.len() == offsets.count() && self.pending.is_empty();
        match self.consumer.group_metadata() {
            // The broker would take a client without a name for one that is in no group.
            Some(member) if is_whole && (is_member || watermarks.is_empty()) => {
                transactions.commit(offsets, member, watermarks);
            }
            _ => transactions.abort(),
        }
    }

    /// What came of transactions.
    pub(super) fn take_transaction_outcomes(
        &mut self,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let Some(transactions) = &self.transactions else { return Ok(()) };
        if matches!(self.aborted, AbortState::Hopeless) {
            return Err(SourceError::new("no transaction can be committed"));
        }
        for notice in transactions.take_notices() {
            self.notice(notice);
        }
        while let Some(outcome) = self.transactions.as_ref().and_then(Transactions::take_outcome) {
            match outcome {
                TransactionOutcome::Committed(watermarks) => {
                    let watermarks = watermarks.into_iter();
                    let committed = watermarks.map(|(name, at)| (name, Some(at.signed()), Ok(())));
                    self.committed(committed.collect(), events);
                }
                TransactionOutcome::Aborted { map_too_long } => {
                    if map_too_long {
                        let half = (self.map_limit.get() / 2).max(MapLimit::MIN_CHARACTERS);
                        self.map_limit = MapLimit::characters(half).unwrap_or(self.map_limit);
                    }
                    self.restore(events);
                }
                TransactionOutcome::Hopeless(error) => {
                    self.aborted = AbortState::Hopeless;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Gives everything up, and looks where it goes on.
    fn restore(&mut self, events: &mut Vec<SourceEvent>) {
        self.pending.retain(|event| !matches!(event, SourceEvent::Committed { .. }));
        let ours = self.owned.values().map(|owned| owned.partition.clone());
        events.push(SourceEvent::Lost(ours.collect()));
        // What was to be given back is given back as it is stored.
        for names in std::mem::take(&mut self.revoked) {
            names.iter().for_each(|name| drop(self.owned.remove(name)));
            self.confirm_revoked(&names);
        }
        let mut names = Vec::with_capacity(self.owned.len());
        for (name, owned) in &mut self.owned {
            owned.resolving = true;
            names.push(name.clone());
        }
        self.aborted = AbortState::Restoring(names.clone());
        if names.is_empty() {
            self.finish_restore(events);
        } else {
            self.ask(MetadataRequest::Committed(names));
        }
    }

    pub(super) fn is_restoring(&self, names: &[TopicPartition]) -> bool {
        matches!(&self.aborted, AbortState::Restoring(asked) if asked == names)
    }

    /// What is stored of partitions that are still ours: they go on there.
    pub(super) fn restored(
        &mut self,
        found: &[CommittedOffset],
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        for committed in found {
            let name = &committed.name;
            let decided = self.start_policy.start_at(committed)?;
            let Some(owned) = self.owned.get_mut(name) else { continue };
            let (progress, epochs) = match decided.what {
                StartAt::At(progress) => (progress, epochs_of(committed)),
                // Nothing was ever stored, so it goes on where it began.
                StartAt::First | StartAt::Last => (owned.begun.clone(), (None, None)),
            };
            // Where the client was told to fetch nothing it has to be told to go on.
            let was_stopped = owned.pause_buffer.stopped;
            *owned = OwnedPartition::new(name, owned.id, &progress, epochs);
            owned.pause_buffer.stopped = was_stopped;
            let partition = owned.partition.clone();
            let limit = self.map_limit;
            events.push(SourceEvent::Assigned(Assigned {
                partition: partition.clone(),
                progress,
                limit,
            }));
            self.resume(&partition);
            self.seek(name);
        }
        self.finish_restore(events);
        Ok(())
    }

    fn finish_restore(&mut self, events: &mut Vec<SourceEvent>) {
        events.push(SourceEvent::Aborted);
        self.aborted = AbortState::Reported;
    }

    /// Opens the next transaction, if the one before was given up and that was read: this is called by the poll after.
    pub(super) fn reopen_if_read(&mut self, events: &[SourceEvent]) {
        if matches!(self.aborted, AbortState::Reported) && events.is_empty() {
            self.aborted = AbortState::None;
            self.transactions.iter().for_each(Transactions::open);
        }
    }
}
