//! A source that commits progress in transactions with the output of its records: how it joins, and
//! how it restores its partitions after an abort.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::abort_state::AbortState;
use super::ffi;
use super::metadata_thread::{CommittedOffset, MetadataRequest};
use super::partition::OwnedPartition;
use super::settings::KafkaSettings;
use super::source::KafkaSource;
use super::start_offset::{StartAt, epochs_of};
use super::topic_partition::TopicPartition;
use super::transaction::{TransactionControl, TransactionOutcome, TransactionalOutput};
use crate::source::{Partition, Source as _, SourceError, SourceEvent};
use crate::tracker::OffsetMapLimit;

impl KafkaSource {
    /// Joins a group with exactly-once output: a record's output is in the topic `output`, visible
    /// to readers of committed data, exactly once, if and only if the record is complete. The
    /// second value is the sink for the handler's output; both belong to one consumer.
    ///
    /// - Output and progress are committed in transactions, at the consumer's [commit
    ///   interval](crate::consumer::ConsumerBuilder::commit), which delays the output. Handlers continue
    ///   during a commit.
    /// - If a commit fails, its output is aborted, all partitions return to the stored progress,
    ///   and their records are handled again, with another
    ///   [`Attempt::epoch`](crate::consumer::Attempt::epoch). Other effects of handlers happen at
    ///   least once, and dead letters are written at least once.
    /// - A process that dies, is suspended for long, or has lost its partitions leaves no visible
    ///   output behind. The member that takes over a partition waits until the transaction is
    ///   decided, at most for the client's `transaction.timeout.ms` (10 s), which also limits the
    ///   time between two commits.
    /// - Records of transactional topics are handled once they are committed.
    /// - Output that the brokers refuse permanently stops the consumer.
    ///
    /// # Errors
    /// If a client setting is unknown, invalid, or reserved by Keylane.
    ///
    /// # Examples
    /// ```no_run
    /// use keylane_stream::Record;
    /// use keylane_stream::consumer::{Attempt, Consumer, AttemptFailure};
    /// use keylane_stream::kafka::{ClientSettings, KafkaSource, KafkaSettings};
    ///
    /// let settings = KafkaSettings::new(ClientSettings::new("localhost:9092"), ["orders"], "billing");
    /// let (orders, bills) = KafkaSource::join_exactly_once(settings, "bills")?;
    /// let consumer = Consumer::builder(orders).start_producing(bills, |order: &Attempt| {
    ///     let key = order.record().key.clone();
    ///     Ok::<_, AttemptFailure>(vec![Record { key, payload: Some("a bill".into()), headers: vec![] }])
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
            let what = "exactly-once delivery requires isolation.level=read_committed; leave out \
                        the setting";
            return Err(SourceError::new(what));
        }
        // A second producer with this name would fence this one, so the name must be unique.
        let random = RandomState::new().build_hasher().finish();
        let name = format!("keylane-{}-{random:016x}", settings.group);
        let mut source = KafkaSource::join(settings)?;
        let wakeup = Arc::clone(&source.context().wakeup);
        let (transactions, output) =
            TransactionControl::start(&client, &name, output.into(), wakeup)?;
        source.transactions = Some(transactions);
        Ok((source, output))
    }

    /// Commits these offsets together with the output in the transaction, or aborts both.
    pub(super) fn commit_with_outputs(&mut self, offsets: TopicPartitionList, whose: &[Partition]) {
        let Some(transactions) = &self.transactions else { return };
        let names: Vec<_> = whose.iter().map(TopicPartition::of).collect();
        let place = |name: &TopicPartition| Some((name.clone(), self.owned.get(name)?.committing?));
        let watermarks: Vec<_> = names.iter().filter_map(place).collect();
        let is_member = ffi::is_member(self.consumer.client());
        let is_whole = watermarks.len() == offsets.count() && self.pending.is_empty();
        match self.consumer.group_metadata() {
            // The broker would take a client without a member id for one without a group, and not
            // check it.
            Some(member) if is_whole && (is_member || watermarks.is_empty()) => {
                transactions.commit(offsets, member, watermarks);
            }
            _ => transactions.abort(),
        }
    }

    /// Processes the results of transactions.
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
        while let Some(outcome) =
            self.transactions.as_ref().and_then(TransactionControl::take_outcome)
        {
            match outcome {
                TransactionOutcome::Committed(watermarks) => {
                    let watermarks = watermarks.into_iter();
                    let committed = watermarks.map(|(name, at)| (name, Some(at.signed()), Ok(())));
                    self.committed(committed.collect(), events);
                }
                TransactionOutcome::Aborted { map_too_long } => {
                    if map_too_long {
                        let half = (self.map_limit.get() / 2).max(OffsetMapLimit::MIN_CHARACTERS);
                        self.map_limit = OffsetMapLimit::characters(half).unwrap_or(self.map_limit);
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

    /// Reports all partitions as lost, and fetches their stored progress.
    fn restore(&mut self, events: &mut Vec<SourceEvent>) {
        self.pending.retain(|event| !matches!(event, SourceEvent::Committed { .. }));
        let ours = self.owned.values().map(|owned| owned.partition.clone());
        events.push(SourceEvent::Lost(ours.collect()));
        // Revoked partitions have their stored progress. The consumer releases them when the attempts
        // that it has just lost have ended, so that none runs beside those of the next member.
        for names in &self.revoked {
            let ours = names.iter().filter_map(|name| self.owned.get(name));
            events.push(SourceEvent::Revoked(ours.map(|owned| owned.partition.clone()).collect()));
        }
        let is_kept = |name: &TopicPartition| !self.revoked.iter().any(|it| it.contains(name));
        let mut names = Vec::with_capacity(self.owned.len());
        for (name, owned) in self.owned.iter_mut().filter(|(name, _)| is_kept(name)) {
            owned.resolve();
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

    /// Assigns the partitions again, from their stored progress.
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
                // No progress was ever stored, so the partition continues where it began.
                StartAt::First | StartAt::Last => (owned.begun.clone(), (None, None)),
            };
            // If the client was told to stop fetching, it must be told to resume.
            let was_stopped = owned.is_stopped;
            *owned = OwnedPartition::new(name, owned.id, &progress, epochs).until(owned.end);
            owned.is_stopped = was_stopped;
            let partition = owned.partition.clone();
            owned.report(progress, self.map_limit, events);
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

    /// Opens the next transaction after an abort, once the events were read: called by the
    /// following poll.
    pub(super) fn reopen_if_read(&mut self, events: &[SourceEvent]) {
        if matches!(self.aborted, AbortState::Reported) && events.is_empty() {
            self.aborted = AbortState::None;
            self.transactions.iter().for_each(TransactionControl::open);
        }
    }
}
