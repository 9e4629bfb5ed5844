//! Buffer for fetched records of a paused partition.

use std::collections::VecDeque;

use crate::{DeliveredRecord, Position};

/// Maximum number of buffered records. Beyond it, or beyond `MAX_BYTES`, the client stops fetching.
/// That discards the client's own buffer, so it is for long pauses only.
const MAX_RECORDS: usize = 1_000;
const MAX_BYTES: usize = 1024 * 1024;

/// Fetched items of a partition that cannot be delivered yet.
#[derive(Debug, Default)]
pub(super) struct PauseBuffer {
    /// Whether the consumer has paused the partition.
    pub(super) paused: bool,
    /// Whether the client was told to stop fetching.
    pub(super) stopped: bool,
    items: VecDeque<FetchedItem>,
    bytes: usize,
}

/// An item that a partition delivers.
#[derive(Debug)]
pub(super) enum FetchedItem {
    Record(DeliveredRecord),
    Reached(Position),
    /// The end of the partition.
    Ended,
}

impl PauseBuffer {
    /// Returns whether a new item must queue: the partition is paused, or older items are waiting.
    pub(super) fn must_queue(&self) -> bool {
        self.paused || !self.items.is_empty()
    }

    /// Returns whether an item can be delivered.
    pub(super) fn is_ready(&self) -> bool {
        !self.paused && !self.items.is_empty()
    }

    pub(super) fn push(&mut self, item: FetchedItem) {
        self.bytes += item.bytes();
        self.items.push_back(item);
    }

    pub(super) fn pop(&mut self) -> Option<FetchedItem> {
        let item = self.items.pop_front()?;
        self.bytes -= item.bytes();
        Some(item)
    }

    /// Returns whether the client should stop fetching.
    pub(super) fn is_full(&self) -> bool {
        self.items.len() >= MAX_RECORDS || self.bytes >= MAX_BYTES
    }
}

impl FetchedItem {
    /// Returns the estimated memory of the item, in bytes.
    fn bytes(&self) -> usize {
        match self {
            FetchedItem::Record(delivered) => size_of::<FetchedItem>() + weight(delivered),
            FetchedItem::Reached(_) | FetchedItem::Ended => size_of::<FetchedItem>(),
        }
    }
}

/// Returns the size of a record, in bytes.
pub(super) fn weight(delivered: &DeliveredRecord) -> usize {
    delivered.record.weight()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;
    use std::time::SystemTime;

    fn record(number: u64, size: usize) -> FetchedItem {
        FetchedItem::Record(DeliveredRecord {
            position: Position::new(number),
            written: SystemTime::UNIX_EPOCH,
            record: Record::new("key", vec![0; size]),
        })
    }

    #[test]
    fn is_full_by_count_or_by_size() {
        let mut buffer = PauseBuffer::default();
        (0..MAX_RECORDS as u64 - 1).for_each(|number| buffer.push(record(number, 1)));
        assert!(!buffer.is_full());
        buffer.push(record(MAX_RECORDS as u64, 1));
        assert!(buffer.is_full());

        let mut buffer = PauseBuffer::default();
        buffer.push(record(0, MAX_BYTES / 2));
        assert!(!buffer.is_full());
        buffer.push(record(1, MAX_BYTES / 2));
        assert!(buffer.is_full());
        buffer.pop();
        assert!(!buffer.is_full());
    }

    #[test]
    fn items_after_a_pause_queue_behind_buffered_ones() {
        let mut buffer = PauseBuffer { paused: true, ..PauseBuffer::default() };
        buffer.push(record(1, 1));
        assert!(buffer.must_queue() && !buffer.is_ready());
        buffer.paused = false;
        assert!(buffer.must_queue() && buffer.is_ready());
        assert!(matches!(buffer.pop(), Some(FetchedItem::Record(_))));
        assert!(!buffer.must_queue() && !buffer.is_ready());
    }
}
