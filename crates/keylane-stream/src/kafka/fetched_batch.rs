//! Records and errors of a poll: read from the queue of a partition, and delivered as events.

use std::time::{Duration, SystemTime};
use std::vec::Drain;

use rdkafka::types::RDKafkaErrorCode;

use super::context::ClientCallbacks;
use super::ffi::{ClientMessage, NextMessage, PartitionQueue};
use super::partition::OwnedPartition;
use crate::record_memory::RecordMemory;
use crate::source::{Partition, SourceEvent};
use crate::{DeliveredRecord, Position, Record};

/// Maximum size of the records of a poll, in bytes. The last record may exceed it.
const MAX_POLL_BYTES: usize = 4 * 1024 * 1024;

/// Events of a poll, and its remaining limits.
pub(super) struct FetchedBatch<'a> {
    events: &'a mut Vec<SourceEvent>,
    /// Partition and records of the next event.
    current: Option<(Partition, Vec<DeliveredRecord>)>,
    records_left: usize,
    bytes_left: usize,
}

/// An item that a partition delivers.
pub(super) enum FetchedItem {
    Record(DeliveredRecord),
    Reached(Position),
    /// The end of the partition.
    Ended,
}

/// A record or an error from the queue of a partition.
pub(super) enum FetchedMessage {
    Record {
        delivered: DeliveredRecord,
        /// Leader epoch, if the broker has epochs.
        epoch: Option<u32>,
    },
    /// The current end of the partition.
    EndOfPartition(Position),
    /// An error, with the client's text.
    Error(RDKafkaErrorCode, String),
}

/// Why the delivery of a partition's messages was interrupted.
pub(super) enum Interruption {
    /// The next position is to be resolved.
    Resolve,
    /// The client is to stop fetching the partition.
    StopFetch,
    /// The client has reported an error.
    Error(RDKafkaErrorCode, String),
}

impl<'a> FetchedBatch<'a> {
    pub(super) fn new(max_records: usize, events: &'a mut Vec<SourceEvent>) -> Self {
        FetchedBatch {
            events,
            current: None,
            records_left: max_records,
            bytes_left: MAX_POLL_BYTES,
        }
    }

    pub(super) fn has_room(&self) -> bool {
        self.records_left > 0 && self.bytes_left > 0
    }

    /// Begins with the records of a partition.
    pub(super) fn begin(&mut self, partition: &Partition) {
        if self.current.as_ref().is_none_or(|(current, _)| current != partition) {
            self.flush();
            self.current = Some((partition.clone(), Vec::new()));
        }
    }

    /// Adds an item of the partition that was [begun](Self::begin).
    pub(super) fn add(&mut self, item: FetchedItem) {
        let (partition, records) = self.current.as_mut().expect("a partition was begun");
        let event = match item {
            FetchedItem::Record(delivered) => {
                self.records_left = self.records_left.saturating_sub(1);
                self.bytes_left = self.bytes_left.saturating_sub(delivered.record.weight());
                return records.push(delivered);
            }
            FetchedItem::Reached(position) => {
                SourceEvent::Reached { partition: partition.clone(), position }
            }
            FetchedItem::Ended => SourceEvent::Exhausted(partition.clone()),
        };
        if !records.is_empty() {
            let (partition, records) = (partition.clone(), std::mem::take(records));
            self.events.push(SourceEvent::Records { partition, records });
        }
        self.events.push(event);
    }

    /// Moves the records to their event.
    pub(super) fn flush(&mut self) {
        if let Some((partition, records)) = self.current.take()
            && !records.is_empty()
        {
            self.events.push(SourceEvent::Records { partition, records });
        }
    }

    /// Returns the events, for one that comes after all records so far.
    pub(super) fn events(&mut self) -> &mut Vec<SourceEvent> {
        self.flush();
        self.events
    }

    /// Takes messages from the queue of a partition, as many as there is room for. Returns whether the client's own position
    /// [must be set again](PartitionQueue::serve).
    ///
    /// Of large records, more than fit the limit may be taken: at most what the client has queued of one
    /// partition (`queued.max.messages.kbytes`).
    pub(super) fn collect(
        &self,
        queue: &PartitionQueue<ClientCallbacks>,
        memory: &mut RecordMemory,
        fetched: &mut Vec<FetchedMessage>,
    ) -> bool {
        let (mut records, mut bytes) = (0, 0);
        queue.serve(self.records_left, |message| {
            let message = FetchedMessage::of(message, memory);
            if let FetchedMessage::Record { delivered, .. } = &message {
                records += 1;
                bytes += delivered.record.weight();
            }
            fetched.push(message);
            let is_full = records >= self.records_left || bytes >= self.bytes_left;
            if is_full { NextMessage::Keep } else { NextMessage::Deliver }
        })
    }
}

impl FetchedMessage {
    /// Copies a message of the client.
    fn of(message: &ClientMessage, memory: &mut RecordMemory) -> Self {
        match (message.error(), message.position()) {
            (Some(RDKafkaErrorCode::PartitionEOF), Some(end)) => {
                FetchedMessage::EndOfPartition(end)
            }
            (Some(code), _) => FetchedMessage::Error(code, message.reason()),
            (None, Some(position)) => FetchedMessage::Record {
                delivered: delivered(position, message, memory),
                epoch: message.leader_epoch(),
            },
            (None, None) => {
                let reason = "the client has delivered a record without an offset";
                FetchedMessage::Error(RDKafkaErrorCode::Fail, reason.to_owned())
            }
        }
    }
}

/// Delivers messages of a partition until one needs the client, or all are delivered. `owned` is `None` if nothing of
/// the partition is to be delivered; then only errors count.
pub(super) fn deliver_run(
    mut owned: Option<&mut OwnedPartition>,
    fetched: &mut Drain<'_, FetchedMessage>,
    batch: &mut FetchedBatch<'_>,
) -> Option<Interruption> {
    owned.iter().for_each(|owned| batch.begin(&owned.partition));
    fetched.find_map(|message| match message {
        FetchedMessage::Error(code, reason) => Some(Interruption::Error(code, reason)),
        FetchedMessage::EndOfPartition(end) => {
            let owned = owned.as_mut().filter(|owned| end >= owned.next)?;
            owned.reach(end, batch)
        }
        FetchedMessage::Record { delivered, epoch } => {
            owned.as_mut()?.deliver(delivered, epoch, batch)
        }
    })
}

impl OwnedPartition {
    /// Delivers the next record of the client.
    fn deliver(
        &mut self,
        delivered: DeliveredRecord,
        epoch: Option<u32>,
        batch: &mut FetchedBatch<'_>,
    ) -> Option<Interruption> {
        let position = delivered.position;
        if !self.epochs.deliver(position, epoch) {
            self.truncated_at = Some(position);
            self.resolve();
            return Some(Interruption::Resolve);
        }
        if position < self.next {
            self.resolve();
            return Some(Interruption::Resolve);
        }
        if let Some(end) = self.end.filter(|end| position >= *end) {
            // The positions up to the end have no record.
            return self.reach(end, batch);
        }
        self.next = position.next();
        self.add(FetchedItem::Record(delivered), batch)
    }

    /// Continues at a position before which no record is missing.
    fn reach(&mut self, position: Position, batch: &mut FetchedBatch<'_>) -> Option<Interruption> {
        self.next = position;
        self.add(FetchedItem::Reached(position), batch)
    }

    /// Adds an item, and the end of the partition if nothing is left to read.
    fn add(&mut self, item: FetchedItem, batch: &mut FetchedBatch<'_>) -> Option<Interruption> {
        batch.add(item);
        if !self.ends_now() {
            return None;
        }
        batch.add(FetchedItem::Ended);
        Some(Interruption::StopFetch)
    }
}

fn delivered(
    position: Position,
    message: &ClientMessage,
    memory: &mut RecordMemory,
) -> DeliveredRecord {
    let mut copy = |bytes: Option<&[u8]>| bytes.map(|bytes| memory.copy(bytes));
    DeliveredRecord {
        position,
        written: SystemTime::UNIX_EPOCH + Duration::from_millis(message.timestamp().unwrap_or(0)),
        record: Record {
            key: copy(message.key()),
            payload: copy(message.payload()),
            headers: message.headers(),
        },
    }
}
