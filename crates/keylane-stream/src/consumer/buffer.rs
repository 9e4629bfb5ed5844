//! Records of a partition that were delivered and are not admitted yet, in the chunks in which the
//! source delivered them.

use std::collections::VecDeque;
use std::vec;

use crate::{DeliveredRecord, Position};

#[derive(Debug, Default)]
/// Delivered records, in order.
pub(super) struct PartitionBuffer {
    /// No chunk is empty.
    items: VecDeque<BufferEntry>,
    /// Number of records in all chunks.
    records: usize,
}

#[derive(Debug)]
enum BufferEntry {
    Records(vec::IntoIter<DeliveredRecord>),
    Reached(Position),
}

/// Next item of a partition.
#[derive(Debug)]
pub(super) enum BufferItem {
    Record(DeliveredRecord),
    /// The source continues at this position; the positions before it are a gap.
    Reached(Position),
}

impl PartitionBuffer {
    pub(super) fn push_records(&mut self, records: Vec<DeliveredRecord>) {
        if !records.is_empty() {
            self.records += records.len();
            self.items.push_back(BufferEntry::Records(records.into_iter()));
        }
    }

    pub(super) fn push_reached(&mut self, position: Position) {
        self.items.push_back(BufferEntry::Reached(position));
    }

    /// Returns the next item if it is a record.
    pub(super) fn next_record(&self) -> Option<&DeliveredRecord> {
        match self.items.front()? {
            BufferEntry::Records(records) => records.as_slice().first(),
            BufferEntry::Reached(_) => None,
        }
    }

    pub(super) fn pop(&mut self) -> Option<BufferItem> {
        let BufferEntry::Records(records) = self.items.front_mut()? else {
            let Some(BufferEntry::Reached(position)) = self.items.pop_front() else { return None };
            return Some(BufferItem::Reached(position));
        };
        let record = records.next()?;
        self.records -= 1;
        if records.len() == 0 {
            self.items.pop_front();
        }
        Some(BufferItem::Record(record))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Number of buffered records.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    pub(super) fn clear(&mut self) {
        *self = PartitionBuffer::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::Record;

    #[test]
    fn items_are_popped_in_the_order_of_delivery() {
        let record = |number| DeliveredRecord {
            position: Position::new(number),
            written: SystemTime::UNIX_EPOCH,
            record: Record::without_key("x"),
        };
        let mut buffer = PartitionBuffer::default();
        buffer.push_records(vec![record(0), record(1)]);
        buffer.push_records(Vec::new());
        buffer.push_reached(Position::new(5));
        buffer.push_records(vec![record(5)]);
        let mut seen = Vec::new();
        while !buffer.is_empty() {
            let (before, next) = (buffer.records(), buffer.next_record().map(|next| next.position));
            match buffer.pop().expect("it is not empty") {
                BufferItem::Record(record) => {
                    assert_eq!(next, Some(record.position));
                    assert_eq!(buffer.records(), before - 1);
                    seen.push(record.position.get());
                }
                BufferItem::Reached(position) => {
                    assert_eq!(next, None);
                    seen.push(100 + position.get());
                }
            }
        }
        assert_eq!(seen, [0, 1, 105, 5]);
        assert!(buffer.pop().is_none());
    }
}
