//! Records from the client to the consumer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::vec::Drain;

use rdkafka::Message as _;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::topic_partition_list::Offset;
use rdkafka::types::RDKafkaErrorCode;

use super::error::{is_lasting, is_out_of_range};
use super::fetched_batch::{FetchedBatch, FetchedMessage, Interruption, deliver_run};
use super::metadata_thread::MetadataRequest;
use super::partition::OwnedPartition;
use super::partition_queues::NamedQueue;
use super::source::{KafkaSource, RETRY_INTERVAL, SEEK_RETRY_INTERVAL};
use super::topic_partition::{TopicPartition, list};
use super::{context, ffi};
use crate::Position;
use crate::source::{SourceError, SourceEvent};

impl KafkaSource {
    /// Delivers records of the client, in the order of each partition.
    ///
    /// The client is polled even if no records are wanted, because it also delivers results of commits.
    pub(super) fn fetch(
        &mut self,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let mut batch = FetchedBatch::new(max_records, events);
        self.poll_client(&mut batch)?;
        let queues = self.queues.lend();
        let fetched = self.fetch_from(&queues, &mut batch);
        self.queues.put_back(queues);
        batch.flush();
        fetched
    }

    /// Takes all from the client's common queue: rebalances, results of commits, and errors of the group.
    fn poll_client(&mut self, batch: &mut FetchedBatch<'_>) -> Result<(), SourceError> {
        let consumer = self.consumer.share();
        loop {
            let calls = self.context().calls();
            match consumer.poll(Duration::ZERO) {
                // It would have no place in the order of its partition.
                Some(Ok(message)) => {
                    let (topic, number) = (message.topic(), message.partition());
                    return Err(SourceError::new(format!(
                        "the Kafka client has delivered a record of {topic}[{number}] beside its queue"
                    )));
                }
                Some(Err(error)) => self.client_failed(&error, batch)?,
                // No result and no callback: the client's queue is empty.
                None if self.context().calls() == calls => return Ok(()),
                None => self.take_client_events(batch.events())?,
            }
        }
    }

    /// Delivers the records of the queues of partitions that are not paused.
    fn fetch_from(
        &mut self,
        queues: &VecDeque<NamedQueue>,
        batch: &mut FetchedBatch<'_>,
    ) -> Result<(), SourceError> {
        let mut fetched = std::mem::take(&mut self.fetched);
        for NamedQueue { name, queue } in queues {
            if !batch.has_room() {
                break;
            }
            // Of many queues, most are empty: their partitions need not be looked up.
            if queue.waiting() == 0 || self.owned.get(name).is_some_and(|owned| owned.is_paused) {
                continue;
            }
            let must_seek = batch.collect(queue, &mut self.memory, &mut fetched);
            self.deliver(name, &mut fetched.drain(..), batch)?;
            // If the next position is being resolved, a seek follows anyway.
            if must_seek && self.owned.get(name).is_some_and(is_open) {
                self.seek(name);
            }
        }
        self.fetched = fetched;
        Ok(())
    }

    /// Delivers what was fetched of a partition. Records of a lost partition, of one whose offset is being
    /// resolved, and those behind the end are dropped.
    fn deliver(
        &mut self,
        name: &TopicPartition,
        fetched: &mut Drain<'_, FetchedMessage>,
        batch: &mut FetchedBatch<'_>,
    ) -> Result<(), SourceError> {
        loop {
            let owned = self.owned.get_mut(name).filter(|owned| is_open(owned));
            match deliver_run(owned, fetched, batch) {
                None => return Ok(()),
                Some(Interruption::Resolve) => {
                    self.ask(MetadataRequest::Bounds(vec![name.clone()]));
                }
                Some(Interruption::StopFetch) => self.stop_fetch(name),
                Some(Interruption::Error(code, reason)) => {
                    self.failed(code, &reason, Some(name))?;
                }
            }
        }
    }

    /// Makes the client fetch a partition again, if it was told to stop.
    pub(super) fn resume_fetch(&mut self, name: &TopicPartition) {
        let Some(owned) = self.owned.get_mut(name).filter(|owned| !owned.is_ended) else { return };
        if std::mem::take(&mut owned.is_stopped)
            && let Err(error) = self.consumer.resume(&list(std::slice::from_ref(name)))
        {
            self.notice(format!("{} cannot be fetched: {error}", name.partition()));
        }
    }

    /// Makes the client stop fetching a partition of which nothing is left to read.
    fn stop_fetch(&mut self, name: &TopicPartition) {
        let Some(owned) = self.owned.get_mut(name) else { return };
        if std::mem::replace(&mut owned.is_stopped, true) {
            return;
        }
        if let Err(error) = self.consumer.pause(&list(std::slice::from_ref(name))) {
            self.notice(format!("{} cannot be paused: {error}", name.partition()));
        }
    }

    /// Handles an error from the client's common queue.
    fn client_failed(
        &mut self,
        error: &KafkaError,
        batch: &mut FetchedBatch<'_>,
    ) -> Result<(), SourceError> {
        let reason = self.context().reason();
        if matches!(error, KafkaError::MessageConsumptionFatal(_)) {
            // The client is no member any more, for example because another one has its name.
            self.lost(self.owned.keys().cloned().collect(), batch.events());
            return Err(SourceError::because(
                "the Kafka client has failed for good; restart the consumer",
                reason,
            ));
        }
        self.failed(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown), &reason, None)
    }

    /// Handles an error of the client. `of` is the partition, if it is an error of one.
    fn failed(
        &mut self,
        code: RDKafkaErrorCode,
        reason: &str,
        of: Option<&TopicPartition>,
    ) -> Result<(), SourceError> {
        if is_out_of_range(code) {
            let names =
                of.map_or_else(|| self.owned.keys().cloned().collect(), |of| vec![of.clone()]);
            self.resolve_all(names, reason);
            return Ok(());
        }
        self.report_error(code, reason)
    }

    /// Reports a temporary error. Before the first success, a persistent one is returned.
    pub(super) fn report_error(
        &self,
        code: RDKafkaErrorCode,
        reason: &str,
    ) -> Result<(), SourceError> {
        if is_lasting(code) && !self.has_worked {
            return Err(SourceError::because(
                "the brokers refuse this client; check its credentials and permissions",
                reason,
            ));
        }
        self.notice(reason);
        Ok(())
    }

    /// Finds out where partitions continue whose next offset does not exist.
    fn resolve_all(&mut self, names: Vec<TopicPartition>, reason: &str) {
        let truncated_at = truncation_in(reason);
        let mut new = Vec::new();
        for name in names {
            let Some(owned) = self.owned.get_mut(&name) else { continue };
            if let Some((_, truncated_at)) = truncated_at.filter(|(at, _)| *at == owned.next) {
                owned.truncated_at = Some(truncated_at);
            }
            if owned.resolve() {
                new.push(name);
            }
        }
        if !new.is_empty() {
            self.retries.push((Instant::now() + RETRY_INTERVAL, MetadataRequest::Bounds(new)));
        }
    }

    /// Makes the client continue at the partition's next position, and the broker check that its
    /// log is the one that was read. Records polled from now on come from that position.
    pub(super) fn seek(&mut self, name: &TopicPartition) {
        let Some(owned) = self.owned.get_mut(name) else { return };
        owned.resolve();
        let epoch = owned.epochs.below(owned.next);
        let again_after = match ffi::seek(&self.consumer, name, owned.next, epoch) {
            Ok(()) => return owned.resolving = None,
            // The client does not fetch the partition at all, as after an error that stopped its
            // fetching.
            Err(RDKafkaErrorCode::State) => {
                self.restart_fetch(name);
                SEEK_RETRY_INTERVAL
            }
            Err(code) => {
                self.notice(format!("{} cannot be fetched: {code}", name.partition()));
                RETRY_INTERVAL
            }
        };
        let again = MetadataRequest::Bounds(vec![name.clone()]);
        self.retries.push((Instant::now() + again_after, again));
    }

    /// Assigns a partition to the client again that it has stopped fetching: it drops one that is
    /// out of range, and cannot restart it otherwise. It then fetches from the next position.
    ///
    /// While the client waits for an answer to a rebalance, it would take this call for the answer.
    /// So this is postponed while an answer is pending. A rebalance that started since the last
    /// poll, and is not reported yet, may still be answered too early by this: then the group may
    /// reassign those partitions before their records have completed, as after an expired session.
    fn restart_fetch(&mut self, name: &TopicPartition) {
        let is_asked = !self.pending_assignments.is_empty() || !self.revoked.is_empty();
        let begun = if is_asked { Ok(()) } else { self.reassign_to_client(name) };
        if let Err(error) = begun {
            self.notice(format!("{} cannot be fetched: {error}", name.partition()));
        }
    }

    fn reassign_to_client(&mut self, name: &TopicPartition) -> KafkaResult<()> {
        let mut names = vec![name.clone()];
        if context::is_cooperative(&self.consumer) {
            context::give_up(&self.consumer, &names)?;
        } else {
            // The eager protocol assigns a member's partitions as a whole.
            names = self.owned.keys().cloned().collect();
        }
        let mut places = list(&names);
        for name in &names {
            let at = Offset::Offset(self.owned[name].next.signed());
            places.set_partition_offset(&name.topic, name.number, at)?;
        }
        context::take(&self.consumer, &places)?;
        let stopped = |name: &TopicPartition| self.owned[name].is_stopped;
        let stopped: Vec<_> = names.into_iter().filter(stopped).collect();
        self.consumer.pause(&list(&stopped))
    }
}

/// Returns whether records of a partition are delivered.
fn is_open(owned: &OwnedPartition) -> bool {
    owned.resolving.is_none() && !owned.is_ended
}

/// Returns, from the client's text about a truncated log, the position that was read and the end of
/// the common log: "... truncation detected at offset 25 (leader epoch 1): broker end offset is 20
/// (...", or "No epoch found less or equal to offset 25 (leader epoch 1): broker end offset is -1
/// (...".
fn truncation_in(reason: &str) -> Option<(Position, Position)> {
    let number = |text: &str| {
        let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
        Position::checked(text[..end].parse().ok()?)
    };
    let (before, after) = reason.split_once("broker end offset is ")?;
    let (_, at) = before.rsplit_once("offset ")?;
    // No record of the old log is left.
    let nothing = after.starts_with('-');
    Some((number(at)?, if nothing { Position::ZERO } else { number(after)? }))
}

#[cfg(test)]
mod tests {
    use std::thread;

    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::DefaultProducerContext;

    use super::super::settings::{ClientSettings, KafkaSettings};
    use super::super::sink::KafkaSink;
    use super::*;
    use crate::Record;
    use crate::source::{Partition, Source as _};

    #[test]
    fn a_record_behind_a_batch_that_ends_with_the_end_of_the_partition_is_not_skipped() {
        let (_cluster, sink, mut source) = started();
        await_queue(&source, WRITTEN);
        let mut events = Vec::new();
        source.poll(Duration::ZERO, 1024, &mut events).expect("the source works");
        // The client's pause makes it continue at what it takes for the next position.
        let name = [TopicPartition::of(&Partition::new("orders", 0))];
        source.consumer.pause(&list(&name)).expect("the client is paused");
        sink.send_all("orders", &[record(WRITTEN)]).expect("it is written");
        source.consumer.resume(&list(&name)).expect("the client is resumed");
        let mut delivered = Vec::new();
        while delivered.last() != Some(&WRITTEN) {
            source.poll(Duration::from_millis(10), 1024, &mut events).expect("the source works");
            take_records(&mut events, &mut delivered);
        }
        assert_eq!(delivered, Vec::from_iter(0..=WRITTEN));
    }

    #[test]
    fn a_paused_partition_delivers_nothing_and_keeps_what_the_client_has_fetched() {
        let (_cluster, sink, mut source) = started();
        let partition = Partition::new("orders", 0);
        source.pause(&partition);
        await_queue(&source, WRITTEN);
        let (mut events, mut delivered) = (Vec::new(), Vec::new());
        for _ in 0..10 {
            source.poll(Duration::ZERO, 1024, &mut events).expect("the source works");
        }
        sink.send_all("orders", &[record(WRITTEN)]).expect("it is written");
        await_queue(&source, WRITTEN + 1);
        source.poll(Duration::ZERO, 1024, &mut events).expect("the source works");
        take_records(&mut events, &mut delivered);
        assert!(delivered.is_empty(), "the partition is paused: {delivered:?}");

        source.resume(&partition);
        // The resume is the only thing that ends the wait: all is fetched already.
        source.poll(Duration::MAX, 100, &mut events).expect("the source works");
        take_records(&mut events, &mut delivered);
        assert_eq!(delivered, Vec::from_iter(0..100));
        while delivered.last() != Some(&WRITTEN) {
            source.poll(Duration::MAX, 1024, &mut events).expect("the source works");
            take_records(&mut events, &mut delivered);
        }
        assert_eq!(delivered, Vec::from_iter(0..=WRITTEN));
    }

    /// Number of records that are written before the source joins.
    const WRITTEN: u64 = 1_000;

    fn record(number: u64) -> Record {
        Record::new("key", number.to_string())
    }

    /// Starts a source that has a partition with [`WRITTEN`] records, and has delivered none of them.
    fn started() -> (MockCluster<'static, DefaultProducerContext>, KafkaSink, KafkaSource) {
        let cluster = MockCluster::new(1).expect("a mock cluster starts");
        cluster.create_topic("orders", 1, 1).expect("it takes a topic");
        let client = ClientSettings::new(cluster.bootstrap_servers());
        let sink = KafkaSink::new(&client).expect("it takes these settings");
        sink.send_all("orders", &Vec::from_iter((0..WRITTEN).map(record)))
            .expect("they are written");
        let mut source = KafkaSource::join(KafkaSettings::new(client, ["orders"], "billing"))
            .expect("it takes these settings");
        let mut events = Vec::new();
        while !events.iter().any(|event| matches!(event, SourceEvent::Assigned(_))) {
            source.poll(Duration::from_millis(10), 1024, &mut events).expect("the source works");
        }
        (cluster, sink, source)
    }

    /// Waits until the client has fetched that many records, their end, and a message of its own before them.
    fn await_queue(source: &KafkaSource, records: u64) {
        while source.queues.waiting() < records as usize + 2 {
            thread::yield_now();
        }
    }

    /// Moves the positions of the delivered records to `delivered`.
    fn take_records(events: &mut Vec<SourceEvent>, delivered: &mut Vec<u64>) {
        for event in events.drain(..) {
            match event {
                SourceEvent::Records { records, .. } => {
                    delivered.extend(records.iter().map(|record| record.position.get()));
                }
                SourceEvent::Reached { position, .. } => {
                    let next = delivered.last().map_or(0, |last| last + 1);
                    assert_eq!(position.get(), next, "a record is passed over");
                }
                _ => {}
            }
        }
    }

    #[test]
    fn truncation_offsets_are_parsed_from_the_clients_message() {
        let truncation = "Partition log truncation detected at offset 25 (leader epoch 1): broker end \
                          offset is 20 (offset leader epoch 1). Reset to INVALID.: Local: Log truncation detected";
        assert_eq!(truncation_in(truncation), Some((Position::new(25), Position::new(20))));
        let none = "No epoch found less or equal to offset 25 (leader epoch 1): broker end offset is -1 \
                    (offset leader epoch -1). Reset using configured policy.";
        assert_eq!(truncation_in(none), Some((Position::new(25), Position::ZERO)));
        assert_eq!(truncation_in("fetch failed due to requested offset not available"), None);
    }
}
