//! Records from the client to the consumer, and what is kept of those that are held back.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use rdkafka::Message as _;
use rdkafka::consumer::Consumer as _;
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers as _};
use rdkafka::types::RDKafkaErrorCode;

use super::failure::{is_lasting, is_out_of_range};
use super::hold::{Item, weight};
use super::lookup::Question;
use super::names::{Name, list};
use super::source::{ASK_AGAIN_AFTER, KafkaSource};
use crate::source::{Event, Partition, SourceError};
use crate::{Delivered, Position, Record};

/// How much a poll adds at most, in bytes, beside the record that goes beyond it.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// Records that are collected for an event, and how many more may be.
#[derive(Debug)]
struct Batch {
    current: Option<(Partition, Vec<Delivered>)>,
    records_left: usize,
    bytes_left: usize,
}

impl Batch {
    fn new(most_records: usize) -> Self {
        Batch { current: None, records_left: most_records, bytes_left: MOST_BYTES }
    }

    fn has_room(&self) -> bool {
        self.records_left > 0 && self.bytes_left > 0
    }

    fn add(&mut self, partition: &Partition, item: Item, events: &mut Vec<Event>) {
        match item {
            Item::Record(delivered) => self.add_record(partition, delivered, events),
            Item::Reached(position) => {
                self.flush(events);
                events.push(Event::Reached { partition: partition.clone(), position });
            }
        }
    }

    fn add_record(&mut self, partition: &Partition, delivered: Delivered, events: &mut Vec<Event>) {
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

    fn flush(&mut self, events: &mut Vec<Event>) {
        if let Some((partition, records)) = self.current.take() {
            events.push(Event::Records { partition, records });
        }
    }
}

impl KafkaSource {
    /// What is kept and may go on, then what the client has, in the order of each partition.
    ///
    /// If no records are wanted the client is asked all the same, for it also says what came of commits; what
    /// it has is kept.
    pub(super) fn fetch(
        &mut self,
        most_records: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), SourceError> {
        let mut batch = Batch::new(most_records);
        self.deliver_kept(&mut batch, events);
        let consumer = Arc::clone(&self.consumer);
        while batch.has_room() || most_records == 0 {
            let calls = self.context().calls();
            match consumer.poll(Duration::ZERO) {
                Some(Ok(message)) => self.deliver(&message, &mut batch, events),
                Some(Err(error)) => self.failed(&error, &mut batch, events)?,
                // Nothing, and nothing was called back: then there is nothing.
                None if self.context().calls() == calls => break,
                None => {
                    batch.flush(events);
                    self.take_happened(events)?;
                }
            }
        }
        batch.flush(events);
        Ok(())
    }

    fn deliver_kept(&mut self, batch: &mut Batch, events: &mut Vec<Event>) {
        while batch.has_room() {
            let Some(name) = self.ready.pop_front() else { return };
            let Some(owned) = self.owned.get_mut(&name) else { continue };
            while batch.has_room() && owned.hold.is_ready() {
                let item = owned.hold.take().expect("something is ready");
                batch.add(&owned.partition, item, events);
            }
            if owned.hold.is_ready() {
                self.ready.push_back(name);
            } else if !owned.hold.paused {
                self.let_fetch(&name);
            }
        }
    }

    /// Has the client fetch a partition again, if it was told not to.
    pub(super) fn let_fetch(&mut self, name: &Name) {
        let Some(owned) = self.owned.get_mut(name) else { return };
        if std::mem::take(&mut owned.hold.stopped)
            && let Err(error) = self.consumer.resume(&list(std::slice::from_ref(name)))
        {
            self.notice(format!("{} cannot be fetched: {error}", name.partition()));
        }
    }

    fn deliver(
        &mut self,
        message: &BorrowedMessage<'_>,
        batch: &mut Batch,
        events: &mut Vec<Event>,
    ) {
        if self.name.topic != message.topic() {
            message.topic().clone_into(&mut self.name.topic);
        }
        self.name.number = message.partition();
        // Of a partition that was lost, or has to be looked at, what was on its way is dropped.
        let Some(owned) = self.owned.get_mut(&self.name).filter(|owned| !owned.asking) else {
            return;
        };
        let position = Position::checked(message.offset()).expect("offsets begin at 0");
        if position < owned.next {
            owned.asking = true;
            self.ask(Question::Bounds(vec![self.name.clone()]));
            return;
        }
        owned.next = position.next();
        let item = Item::Record(delivered(position, message));
        self.keep_or_add(item, batch, events);
    }

    /// Passes something of the partition `self.name` on, or keeps it while that is held back.
    fn keep_or_add(&mut self, item: Item, batch: &mut Batch, events: &mut Vec<Event>) {
        let owned = self.owned.get_mut(&self.name).expect("it was looked up by who calls this");
        if !owned.hold.holds() {
            if batch.has_room() {
                batch.add(&owned.partition, item, events);
                return;
            }
            self.ready.push_back(self.name.clone());
        }
        owned.hold.keep(item);
        if owned.hold.is_full() && !owned.hold.stopped {
            owned.hold.stopped = true;
            let stopped = self.consumer.pause(&list(std::slice::from_ref(&self.name)));
            if let Err(error) = stopped {
                let partition = self.name.partition();
                self.notice(format!("{partition} cannot be held back: {error}"));
            }
        }
    }

    fn failed(
        &mut self,
        error: &KafkaError,
        batch: &mut Batch,
        events: &mut Vec<Event>,
    ) -> Result<(), SourceError> {
        let reason = self.context().reason();
        if let KafkaError::PartitionEOF(number) = error {
            self.reached(*number, &reason, batch, events);
            return Ok(());
        }
        let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
        if matches!(error, KafkaError::MessageConsumptionFatal(_)) {
            return Err(SourceError::because("the Kafka client has given up", reason));
        }
        if is_out_of_range(code) {
            self.ask_where_all_go_on();
            return Ok(());
        }
        self.tell(code, &reason)
    }

    /// Something that may pass is told. Before anything has worked, what will not is an error.
    pub(super) fn tell(&self, code: RDKafkaErrorCode, reason: &str) -> Result<(), SourceError> {
        if is_lasting(code) && !self.has_worked {
            return Err(SourceError::because("the brokers refuse us", reason));
        }
        self.notice(reason);
        Ok(())
    }

    /// A partition with this number was read to where it ends for now. The client does not say of which
    /// topic, so it counts only if there is but one.
    fn reached(&mut self, number: i32, reason: &str, batch: &mut Batch, events: &mut Vec<Event>) {
        let mut same = self.owned.iter_mut().filter(|(name, _)| name.number == number);
        let (Some((name, owned)), None) = (same.next(), same.next()) else { return };
        let Some(position) = end_in(reason).filter(|end| *end >= owned.next && !owned.asking)
        else {
            return;
        };
        owned.next = position;
        self.name.clone_from(name);
        self.keep_or_add(Item::Reached(position), batch, events);
    }

    /// A place does not exist, and the client does not say which: each is looked at.
    fn ask_where_all_go_on(&mut self) {
        let mut names = Vec::new();
        for (name, owned) in &mut self.owned {
            if !std::mem::replace(&mut owned.asking, true) {
                names.push(name.clone());
            }
        }
        if !names.is_empty() {
            self.later.push((Instant::now() + ASK_AGAIN_AFTER, Question::Bounds(names)));
        }
    }

    pub(super) fn seek(&mut self, name: &Name) {
        let Some(owned) = self.owned.get_mut(name) else { return };
        let offset = rdkafka::Offset::Offset(owned.next.signed());
        match self.consumer.seek(&name.topic, name.number, offset, Duration::ZERO) {
            Ok(()) => owned.asking = false,
            Err(error) => {
                self.notice(format!("{} cannot be fetched: {error}", name.partition()));
                let again = Question::Bounds(vec![name.clone()]);
                self.later.push((Instant::now() + ASK_AGAIN_AFTER, again));
            }
        }
    }
}

/// The place in the client's words about the end of a partition: "... end of partition at offset 17 (...".
fn end_in(reason: &str) -> Option<Position> {
    let (_, rest) = reason.split_once("partition at offset ")?;
    let digits = rest.split(|c: char| !c.is_ascii_digit()).next()?;
    Position::checked(digits.parse().ok()?)
}

fn delivered(position: Position, message: &BorrowedMessage<'_>) -> Delivered {
    let millis = message.timestamp().to_millis().and_then(|millis| u64::try_from(millis).ok());
    let headers = message.headers().into_iter().flat_map(|headers| headers.iter());
    Delivered {
        position,
        written: SystemTime::UNIX_EPOCH + Duration::from_millis(millis.unwrap_or(0)),
        record: Record {
            key: message.key().map(<[u8]>::to_vec),
            payload: message.payload().unwrap_or_default().to_vec(),
            headers: headers
                .map(|header| (header.key.to_owned(), header.value.unwrap_or_default().to_vec()))
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
}
