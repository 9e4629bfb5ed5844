//! What came of a partition and was not taken on yet, in the lists in which it came.

use std::collections::VecDeque;
use std::vec;

use crate::{Delivered, Position};

#[derive(Debug, Default)]
pub(super) struct Buffer {
    /// No list is empty.
    items: VecDeque<Item>,
    /// How many records there are in them.
    records: usize,
}

#[derive(Debug)]
enum Item {
    Records(vec::IntoIter<Delivered>),
    Reached(Position),
}

/// What comes next.
#[derive(Debug)]
pub(super) enum Next {
    Record(Delivered),
    /// The source goes on there, and what is between is a gap.
    Reached(Position),
}

impl Buffer {
    pub(super) fn came(&mut self, records: Vec<Delivered>) {
        if !records.is_empty() {
            self.records += records.len();
            self.items.push_back(Item::Records(records.into_iter()));
        }
    }

    pub(super) fn reached(&mut self, position: Position) {
        self.items.push_back(Item::Reached(position));
    }

    /// The record that comes next, if it is one.
    pub(super) fn next_record(&self) -> Option<&Delivered> {
        match self.items.front()? {
            Item::Records(records) => records.as_slice().first(),
            Item::Reached(_) => None,
        }
    }

    pub(super) fn pop(&mut self) -> Option<Next> {
        let Item::Records(records) = self.items.front_mut()? else {
            let Some(Item::Reached(position)) = self.items.pop_front() else { return None };
            return Some(Next::Reached(position));
        };
        let record = records.next()?;
        self.records -= 1;
        if records.len() == 0 {
            self.items.pop_front();
        }
        Some(Next::Record(record))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many records there are.
    pub(super) fn records(&self) -> usize {
        self.records
    }

    pub(super) fn clear(&mut self) {
        *self = Buffer::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::Record;

    #[test]
    fn what_came_is_popped_in_its_order() {
        let record = |number| Delivered {
            position: Position::new(number),
            written: SystemTime::UNIX_EPOCH,
            record: Record::without_key("x"),
        };
        let mut buffer = Buffer::default();
        buffer.came(vec![record(0), record(1)]);
        buffer.came(Vec::new());
        buffer.reached(Position::new(5));
        buffer.came(vec![record(5)]);
        let mut seen = Vec::new();
        while !buffer.is_empty() {
            let (before, next) = (buffer.records(), buffer.next_record().map(|next| next.position));
            match buffer.pop().expect("it is not empty") {
                Next::Record(record) => {
                    assert_eq!(next, Some(record.position));
                    assert_eq!(buffer.records(), before - 1);
                    seen.push(record.position.get());
                }
                Next::Reached(position) => {
                    assert_eq!(next, None);
                    seen.push(100 + position.get());
                }
            }
        }
        assert_eq!(seen, [0, 1, 105, 5]);
        assert!(buffer.pop().is_none());
    }
}
