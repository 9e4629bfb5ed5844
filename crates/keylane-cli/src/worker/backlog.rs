//! Backlog of a slot: keeps the records of the slot's keys in the order of their places, until its
//! child has room for them.
//!
//! A record in it holds its key's turn, so it counts as unfinished in the pool in front of the
//! workers, whose capacity bounds all backlogs together.

use std::collections::BTreeMap;

use super::worker_record::PendingRecord;

/// Records that wait for the room of one child.
#[derive(Debug)]
pub(super) struct SlotBacklog<T> {
    /// By place, then by arrival: of a consumer, records of several partitions have equal places. In
    /// boxes, because the map moves its entries: with the records themselves, that was a third of the
    /// time of a run with a fast worker.
    records: BTreeMap<(u64, u64), Box<WaitingLine<T>>>,
    arrivals: u64,
}

/// Record with its line.
#[derive(Debug)]
pub(super) struct WaitingLine<T> {
    pub(super) record: PendingRecord<T>,
    pub(super) line: Vec<u8>,
}

impl<T> SlotBacklog<T> {
    pub(super) fn new() -> Self {
        Self { records: BTreeMap::new(), arrivals: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.records.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    pub(super) fn push(&mut self, place: u64, record: PendingRecord<T>, line: Vec<u8>) {
        self.records.insert((place, self.arrivals), Box::new(WaitingLine { record, line }));
        self.arrivals += 1;
    }

    /// Returns the record with the lowest place.
    pub(super) fn next(&self) -> Option<&PendingRecord<T>> {
        self.records.first_key_value().map(|(_, waiting)| &waiting.record)
    }

    /// Takes the record with the lowest place.
    pub(super) fn pop(&mut self) -> Option<WaitingLine<T>> {
        self.records.pop_first().map(|(_, waiting)| *waiting)
    }

    /// Takes the record that the condition finds.
    #[cfg(feature = "consume")]
    pub(super) fn remove(&mut self, is_it: impl Fn(&T) -> bool) -> Option<PendingRecord<T>> {
        let found = self.records.iter().find(|(_, waiting)| is_it(&waiting.record.ticket));
        let place = *found?.0;
        self.records.remove(&place).map(|waiting| waiting.record)
    }

    /// Takes all records, in order.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = PendingRecord<T>> {
        std::mem::take(&mut self.records).into_values().map(|waiting| waiting.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::RecordKey;

    fn push(backlog: &mut SlotBacklog<char>, place: u64, ticket: char, length: usize) {
        let key = RecordKey::Serial;
        let (is_alone, is_pinned) = (false, false);
        let record = PendingRecord { ticket, key, length, is_alone, is_pinned, turn: None };
        backlog.push(place, record, vec![b'x'; length]);
    }

    #[test]
    fn records_leave_by_place_and_then_by_arrival() {
        let mut backlog = SlotBacklog::new();
        for (place, ticket) in [(7, 'c'), (3, 'a'), (7, 'd'), (5, 'b')] {
            push(&mut backlog, place, ticket, 1);
        }
        let order: String =
            std::iter::from_fn(|| backlog.pop()).map(|waiting| waiting.record.ticket).collect();
        assert_eq!(order, "abcd");
    }
}
