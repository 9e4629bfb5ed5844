//! Records from the client to the consumer, including those of paused partitions.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime};

use rdkafka::Message as _;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::message::{BorrowedMessage, Headers as _};
use rdkafka::topic_partition_list::Offset;
use rdkafka::types::RDKafkaErrorCode;

use super::error::{is_lasting, is_out_of_range};
use super::metadata_thread::MetadataRequest;
use super::partition::OwnedPartition;
use super::partition_queues::NamedQueue;
use super::pause_buffer::{FetchedItem, weight};
use super::source::{KafkaSource, RETRY_INTERVAL, SEEK_RETRY_INTERVAL};
use super::topic_partition::{TopicPartition, list};
use super::{context, ffi};
use crate::source::{Partition, SourceError, SourceEvent};
use crate::{DeliveredRecord, Position, Record};

/// Maximum size of the records of a poll, in bytes. The last record may exceed it.
const MAX_POLL_BYTES: usize = 4 * 1024 * 1024;

/// Records for the next event, and the remaining limits of the poll.
#[derive(Debug)]
struct FetchedBatch {
    current: Option<(Partition, Vec<DeliveredRecord>)>,
    records_left: usize,
    bytes_left: usize,
}

impl FetchedBatch {
    fn new(max_records: usize) -> Self {
        FetchedBatch { current: None, records_left: max_records, bytes_left: MAX_POLL_BYTES }
    }

    fn has_room(&self) -> bool {
        self.records_left > 0 && self.bytes_left > 0
    }

    fn add(&mut self, partition: &Partition, item: FetchedItem, events: &mut Vec<SourceEvent>) {
        match item {
            FetchedItem::Record(delivered) => self.add_record(partition, delivered, events),
            FetchedItem::Reached(position) => {
                self.flush(events);
                events.push(SourceEvent::Reached { partition: partition.clone(), position });
            }
            FetchedItem::Ended => {
                self.flush(events);
                events.push(SourceEvent::Exhausted(partition.clone()));
            }
        }
    }

    fn add_record(
        &mut self,
        partition: &Partition,
        delivered: DeliveredRecord,
        events: &mut Vec<SourceEvent>,
    ) {
        self.records_left -= 1;
        self.bytes_left = self.bytes_left.saturating_sub(weight(&delivered));
        match &mut self.current {
            Some((current, records)) if current == partition => records.push(delivered),
            _ => {
                self.flush(events);
                self.current = Some((partition.clone(), vec![delivered]));
            }
        }
    }

    fn flush(&mut self, events: &mut Vec<SourceEvent>) {
        if let Some((partition, records)) = self.current.take() {
            events.push(SourceEvent::Records { partition, records });
        }
    }
}

impl KafkaSource {
    /// Delivers buffered records of resumed partitions, then records of the client, in the order of
    /// each partition.
    ///
    /// If no records are wanted, the client is polled all the same, because it also delivers
    /// results of commits; its records are buffered.
    pub(super) fn fetch(
        &mut self,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let mut batch = FetchedBatch::new(max_records);
        self.deliver_paused(&mut batch, events);
        let consumer = self.consumer.share();
        while batch.has_room() || max_records == 0 {
            let calls = self.context().calls();
            match consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => self.deliver(&message, &mut batch, events),
                Some(Err(error)) => self.failed(&error, None, &mut batch, events)?,
                // No result and no callback: the client's queue is empty.
                None if self.context().calls() == calls => break,
                None => {
                    batch.flush(events);
                    self.take_client_events(events)?;
                }
            }
        }
        let queues = self.queues.lend();
        let polled = self.fetch_from(&queues, &mut batch, events);
        self.queues.put_back(queues);
        batch.flush(events);
        polled
    }

    /// Delivers the records of queues of single partitions.
    fn fetch_from(
        &mut self,
        queues: &VecDeque<NamedQueue>,
        batch: &mut FetchedBatch,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        for queue in queues {
            while batch.has_room() {
                match queue.poll() {
                    Some(Ok(message)) => self.deliver(&message, batch, events),
                    Some(Err(error)) => self.failed(&error, Some(&queue.name), batch, events)?,
                    None => break,
                }
            }
        }
        Ok(())
    }

    fn deliver_paused(&mut self, batch: &mut FetchedBatch, events: &mut Vec<SourceEvent>) {
        while batch.has_room() {
            let Some(name) = self.ready.pop_front() else { return };
            let Some(owned) = self.owned.get_mut(&name) else { continue };
            while batch.has_room() && owned.pause_buffer.is_ready() {
                let item = owned.pause_buffer.pop().expect("the buffer is ready");
                batch.add(&owned.partition, item, events);
            }
            if owned.pause_buffer.is_ready() {
                self.ready.push_back(name);
            } else if !owned.pause_buffer.paused {
                self.resume_fetch(&name);
            }
        }
    }

    /// Makes the client fetch a partition again, if it was told to stop.
    pub(super) fn resume_fetch(&mut self, name: &TopicPartition) {
        let Some(owned) = self.owned.get_mut(name).filter(|owned| !owned.is_ended) else { return };
        if std::mem::take(&mut owned.pause_buffer.stopped)
            && let Err(error) = self.consumer.resume(&list(std::slice::from_ref(name)))
        {
            self.notice(format!("{} cannot be fetched: {error}", name.partition()));
        }
    }

    fn deliver(
        &mut self,
        message: &BorrowedMessage<'_>,
        batch: &mut FetchedBatch,
        events: &mut Vec<SourceEvent>,
    ) {
        if self.name.topic != message.topic() {
            message.topic().clone_into(&mut self.name.topic);
        }
        self.name.number = message.partition();
        // Records of a lost partition, of one whose offset is being resolved, or after the end are
        // dropped.
        let is_open = |owned: &&mut OwnedPartition| owned.resolving.is_none() && !owned.is_ended;
        let Some(owned) = self.owned.get_mut(&self.name).filter(is_open) else { return };
        let position = Position::checked(message.offset()).expect("offsets begin at 0");
        if !owned.epochs.deliver(position, ffi::leader_epoch(message)) {
            owned.truncated_at = Some(position);
            owned.resolve();
            self.ask(MetadataRequest::Bounds(vec![self.name.clone()]));
            return;
        }
        if position < owned.next {
            owned.resolve();
            self.ask(MetadataRequest::Bounds(vec![self.name.clone()]));
            return;
        }
        if let Some(end) = owned.end.filter(|end| position >= *end) {
            // The positions up to the end have no record.
            return self.reach(end, batch, events);
        }
        owned.next = position.next();
        let item = FetchedItem::Record(delivered(position, message));
        self.queue_or_add(item, batch, events);
        self.end_if_due(batch, events);
    }

    /// Continues the partition `self.name` at a position, where no record is missing before it.
    fn reach(
        &mut self,
        position: Position,
        batch: &mut FetchedBatch,
        events: &mut Vec<SourceEvent>,
    ) {
        self.owned.get_mut(&self.name).expect("the caller has looked it up").next = position;
        self.queue_or_add(FetchedItem::Reached(position), batch, events);
        self.end_if_due(batch, events);
    }

    /// Ends the partition `self.name` if nothing is left to read, and stops its fetching.
    fn end_if_due(&mut self, batch: &mut FetchedBatch, events: &mut Vec<SourceEvent>) {
        let owned = self.owned.get_mut(&self.name).expect("the caller has looked it up");
        if owned.ends_now() {
            self.queue_or_add(FetchedItem::Ended, batch, events);
            self.stop_fetch();
        }
    }

    /// Makes the client stop fetching the partition `self.name`.
    fn stop_fetch(&mut self) {
        let owned = self.owned.get_mut(&self.name).expect("the caller has looked it up");
        if std::mem::replace(&mut owned.pause_buffer.stopped, true) {
            return;
        }
        let stopped = self.consumer.pause(&list(std::slice::from_ref(&self.name)));
        if let Err(error) = stopped {
            let partition = self.name.partition();
            self.notice(format!("{partition} cannot be paused: {error}"));
        }
    }

    /// Delivers an item of the partition `self.name`, or buffers it while the partition is paused.
    fn queue_or_add(
        &mut self,
        item: FetchedItem,
        batch: &mut FetchedBatch,
        events: &mut Vec<SourceEvent>,
    ) {
        let owned = self.owned.get_mut(&self.name).expect("the caller has looked it up");
        if !owned.pause_buffer.must_queue() {
            if batch.has_room() {
                batch.add(&owned.partition, item, events);
                return;
            }
            self.ready.push_back(self.name.clone());
        }
        owned.pause_buffer.push(item);
        if owned.pause_buffer.is_full() {
            self.stop_fetch();
        }
    }

    /// Handles an error of the client, or the end of a partition. `of` is the partition, if its
    /// queue is known.
    fn failed(
        &mut self,
        error: &KafkaError,
        of: Option<&TopicPartition>,
        batch: &mut FetchedBatch,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let reason = self.context().reason();
        if let KafkaError::PartitionEOF(number) = error {
            if let Some(name) = of.cloned().or_else(|| self.only_one_with(*number)) {
                self.reached(name, &reason, batch, events);
            }
            return Ok(());
        }
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        if matches!(error, KafkaError::MessageConsumptionFatal(_)) {
            // The client is no member any more, for example because another one has its name.
            self.lost(self.owned.keys().cloned().collect(), events);
            return Err(SourceError::because(
                "the Kafka client has failed for good; restart the consumer",
                reason,
            ));
        }
        if is_out_of_range(code) {
            self.resolve_all(&reason);
            return Ok(());
        }
        self.report_error(code, &reason)
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

    /// Returns the partition with this number, if no other topic has one.
    fn only_one_with(&self, number: i32) -> Option<TopicPartition> {
        let mut same = self.owned.keys().filter(|name| name.number == number);
        let (Some(name), None) = (same.next(), same.next()) else { return None };
        Some(name.clone())
    }

    /// Handles the current end of a partition.
    fn reached(
        &mut self,
        name: TopicPartition,
        reason: &str,
        batch: &mut FetchedBatch,
        events: &mut Vec<SourceEvent>,
    ) {
        let Some(owned) = self.owned.get(&name) else { return };
        let is_open = owned.resolving.is_none() && !owned.is_ended;
        let Some(position) = end_in(reason).filter(|end| *end >= owned.next && is_open) else {
            return;
        };
        self.name = name;
        self.reach(position, batch, events);
    }

    /// Some offset does not exist, and the client does not say which, so all of them are checked.
    fn resolve_all(&mut self, reason: &str) {
        let truncated_at = truncation_in(reason);
        let mut names = Vec::new();
        for (name, owned) in &mut self.owned {
            // Several partitions may be at this position, and then all of them count as truncated.
            // That repeats records, where the contrary would miss some.
            if let Some((_, truncated_at)) = truncated_at.filter(|(at, _)| *at == owned.next) {
                owned.truncated_at = Some(truncated_at);
            }
            if owned.resolve() {
                names.push(name.clone());
            }
        }
        if !names.is_empty() {
            self.retries.push((Instant::now() + RETRY_INTERVAL, MetadataRequest::Bounds(names)));
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
        let stopped = |name: &TopicPartition| self.owned[name].pause_buffer.stopped;
        let stopped: Vec<_> = names.into_iter().filter(stopped).collect();
        self.consumer.pause(&list(&stopped))
    }
}

/// Returns the offset in the client's text about the end of a partition: "... end of partition at
/// offset 17 (...".
fn end_in(reason: &str) -> Option<Position> {
    let (_, rest) = reason.split_once("partition at offset ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Position::checked(digits.parse().ok()?)
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

fn delivered(position: Position, message: &BorrowedMessage<'_>) -> DeliveredRecord {
    let millis = message.timestamp().to_millis().and_then(|millis| u64::try_from(millis).ok());
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    DeliveredRecord {
        position,
        written: SystemTime::UNIX_EPOCH + Duration::from_millis(millis.unwrap_or(0)),
        record: Record {
            key: message.key().map(<[u8]>::to_vec),
            payload: message.payload().map(<[u8]>::to_vec),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.map(<[u8]>::to_vec)))
                .collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_partition_is_read_from_the_clients_words() {
        let words =
            "Fetch from broker 1 reached end of partition at offset 1234 (HighwaterMark 1236)";
        assert_eq!(end_in(words), Some(Position::new(1234)));
        assert_eq!(end_in("Broker: No more messages"), None);
        assert_eq!(end_in("partition at offset -1001"), None);
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
