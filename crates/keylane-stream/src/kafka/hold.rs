use std::collections::VecDeque;

use crate::{Delivered, Position};

/// How much of a partition that is held back is kept for when it goes on. What is beyond is not fetched
/// until then: to stop the client's fetching throws away what it has fetched, so that is for long halts.
const MOST_KEPT: usize = 1_000;
const MOST_KEPT_BYTES: usize = 1024 * 1024;

/// What was fetched of a partition and may not be delivered yet.
#[derive(Debug, Default)]
pub(super) struct Hold {
    /// Whether the consumer wants nothing of it now.
    pub(super) paused: bool,
    /// Whether the client was told to fetch nothing of it.
    pub(super) stopped: bool,
    kept: VecDeque<Item>,
    bytes: usize,
}

/// What a partition delivers.
#[derive(Debug)]
pub(super) enum Item {
    Record(Delivered),
    Reached(Position),
}

impl Hold {
    /// Whether what comes now may not be delivered, or has to queue behind what is kept.
    pub(super) fn holds(&self) -> bool {
        self.paused || !self.kept.is_empty()
    }

    /// Whether something can be delivered that is kept.
    pub(super) fn is_ready(&self) -> bool {
        !self.paused && !self.kept.is_empty()
    }

    pub(super) fn keep(&mut self, item: Item) {
        self.bytes += item.bytes();
        self.kept.push_back(item);
    }

    pub(super) fn take(&mut self) -> Option<Item> {
        let item = self.kept.pop_front()?;
        self.bytes -= item.bytes();
        Some(item)
    }

    /// Whether so much is kept that no more should be fetched.
    pub(super) fn is_full(&self) -> bool {
        self.kept.len() >= MOST_KEPT || self.bytes >= MOST_KEPT_BYTES
    }
}

impl Item {
    /// About how much memory it holds.
    fn bytes(&self) -> usize {
        match self {
            Item::Record(delivered) => size_of::<Item>() + weight(delivered),
            Item::Reached(_) => size_of::<Item>(),
        }
    }
}

/// The bytes of a record's parts.
pub(super) fn weight(delivered: &Delivered) -> usize {
    delivered.record.weight()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Record;
    use std::time::SystemTime;

    fn record(number: u64, size: usize) -> Item {
        Item::Record(Delivered {
            position: Position::new(number),
            written: SystemTime::UNIX_EPOCH,
            record: Record::new("key", vec![0; size]),
        })
    }

    #[test]
    fn is_full_by_count_or_by_size() {
        let mut hold = Hold::default();
        (0..MOST_KEPT as u64 - 1).for_each(|number| hold.keep(record(number, 1)));
        assert!(!hold.is_full());
        hold.keep(record(MOST_KEPT as u64, 1));
        assert!(hold.is_full());

        let mut hold = Hold::default();
        hold.keep(record(0, MOST_KEPT_BYTES / 2));
        assert!(!hold.is_full());
        hold.keep(record(1, MOST_KEPT_BYTES / 2));
        assert!(hold.is_full());
        hold.take();
        assert!(!hold.is_full());
    }

    #[test]
    fn what_comes_after_a_halt_queues_behind_what_was_kept() {
        let mut hold = Hold { paused: true, ..Hold::default() };
        hold.keep(record(1, 1));
        assert!(hold.holds() && !hold.is_ready());
        hold.paused = false;
        assert!(hold.holds() && hold.is_ready());
        assert!(matches!(hold.take(), Some(Item::Record(_))));
        assert!(!hold.holds() && !hold.is_ready());
    }
}
