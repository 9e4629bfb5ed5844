//! Decides which records of a lane form the next batch: a plain state machine without locks or
//! threads; the time is passed in.
//!
//! A lane with records is *lingering*, *ready* or *taken*. With its first record a lane lingers. It
//! becomes ready when it has a whole batch, or when its first record has waited for the linger
//! time. The thread that [takes](KeyBatcher::take) a batch owns the lane until it
//! [releases](KeyBatcher::release) it; meanwhile new records queue behind, and unhandled ones are
//! [put back](KeyBatcher::put_back) in front. So the batches of a lane are handled one after
//! another, each starts where the one before ended, and the records of a lane keep their order.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use super::ordering::LaneId;

/// Maximum linger time. A longer one could exceed the clock's range.
const MAX_LINGER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug)]
pub(super) struct KeyBatcher<T> {
    /// Maximum number of records in a batch, at least 1.
    max_records: usize,
    /// Linger time of a first record.
    linger: Duration,
    /// Lanes that have records or are taken.
    lanes: HashMap<LaneId, KeyBuffer<T>, RandomState>,
    /// Ready lanes, first ready first.
    ready: VecDeque<LaneId>,
    /// Lingering lanes by their deadline.
    lingering: BTreeMap<LingerDeadline, LaneId>,
    /// Number of deadlines so far; breaks ties in order of arrival.
    lingered: u64,
}

/// End of a linger time, and its number.
type LingerDeadline = (Instant, u64);

#[derive(Debug)]
struct KeyBuffer<T> {
    records: VecDeque<BufferedRecord<T>>,
    state: KeyBufferState,
}

#[derive(Debug)]
enum KeyBufferState {
    /// Ready at this deadline, or when a batch is full.
    Lingering(LingerDeadline),
    /// In the queue of ready lanes.
    Ready,
    /// Owned by a thread.
    Taken,
}

/// A record that waits in its lane.
#[derive(Debug)]
pub(super) struct BufferedRecord<T> {
    pub(super) item: T,
    /// Time of arrival. `None` if it has waited for a batch already.
    since: Option<Instant>,
    /// Whether it is a batch of its own.
    alone: bool,
}

impl<T> BufferedRecord<T> {
    /// A record that has waited already and may share a batch.
    pub(super) fn again(item: T) -> Self {
        BufferedRecord { item, since: None, alone: false }
    }

    /// A record that has waited already and must be handled alone.
    pub(super) fn alone(item: T) -> Self {
        BufferedRecord { item, since: None, alone: true }
    }
}

impl<T> KeyBatcher<T> {
    pub(super) fn new(max_records: usize, linger: Duration) -> Self {
        KeyBatcher {
            max_records: max_records.max(1),
            linger: linger.min(MAX_LINGER),
            lanes: HashMap::default(),
            ready: VecDeque::new(),
            lingering: BTreeMap::new(),
            lingered: 0,
        }
    }

    /// Adds a record at the end of its lane.
    pub(super) fn push(&mut self, lane: LaneId, item: T, now: Instant) {
        // No other record will join the lane of a single record.
        let is_single = matches!(lane, LaneId::Record { .. } | LaneId::Single { .. });
        let since = (!is_single).then_some(now);
        let record = BufferedRecord { item, since, alone: false };
        match self.lanes.entry(lane.clone()) {
            Entry::Occupied(mut buffer) => buffer.get_mut().records.push_back(record),
            Entry::Vacant(place) => {
                // Not owned by a thread: `release` below sorts it in.
                place.insert(KeyBuffer {
                    records: VecDeque::from([record]),
                    state: KeyBufferState::Taken,
                });
                return self.release(&lane, now);
            }
        }
        self.make_ready_if_full(&lane);
    }

    fn make_ready_if_full(&mut self, lane: &LaneId) {
        let Some(buffer) = self.lanes.get_mut(lane) else { return };
        if let KeyBufferState::Lingering(due) = buffer.state
            && buffer.records.len() >= self.max_records
        {
            buffer.state = KeyBufferState::Ready;
            self.lingering.remove(&due);
            self.ready.push_back(lane.clone());
        }
    }

    /// Puts records in front of a taken lane, in their order.
    pub(super) fn put_back(
        &mut self,
        lane: &LaneId,
        items: impl DoubleEndedIterator<Item = BufferedRecord<T>>,
    ) {
        let buffer = self.lanes.get_mut(lane).expect("a taken lane has a buffer");
        debug_assert!(
            matches!(buffer.state, KeyBufferState::Taken),
            "only a taken lane gets records back"
        );
        items.rev().for_each(|item| buffer.records.push_front(item));
    }

    /// Gives a taken lane back, so that its next batch may be taken.
    pub(super) fn release(&mut self, lane: &LaneId, now: Instant) {
        // The lane is gone if all of its records were taken.
        let Some(buffer) = self.lanes.get_mut(lane) else { return };
        debug_assert!(
            matches!(buffer.state, KeyBufferState::Taken),
            "only a taken lane is released"
        );
        let Some(first) = buffer.records.front() else {
            self.lanes.remove(lane);
            return;
        };
        let due = first.since.map_or(now, |since| since + self.linger);
        if due <= now || first.alone || buffer.records.len() >= self.max_records {
            return self.make_ready(lane);
        }
        self.lingered += 1;
        buffer.state = KeyBufferState::Lingering((due, self.lingered));
        self.lingering.insert((due, self.lingered), lane.clone());
    }

    fn make_ready(&mut self, lane: &LaneId) {
        if let Some(buffer) = self.lanes.get_mut(lane) {
            buffer.state = KeyBufferState::Ready;
            self.ready.push_back(lane.clone());
        }
    }

    /// Takes the next ready batch and its lane.
    pub(super) fn take(&mut self, now: Instant) -> Option<(LaneId, Vec<T>)> {
        while let Some(first) = self.lingering.first_entry()
            && first.key().0 <= now
        {
            let lane = first.remove();
            self.make_ready(&lane);
        }
        let lane = self.ready.pop_front()?;
        let buffer = self.lanes.get_mut(&lane).expect("a ready lane has a buffer");
        buffer.state = KeyBufferState::Taken;
        let batch = buffer.take(self.max_records);
        Some((lane, batch))
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// Returns the next deadline of a lingering lane.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lingering.first_key_value().map(|((due, _), _)| *due)
    }
}

impl<T> KeyBuffer<T> {
    fn take(&mut self, max_records: usize) -> Vec<T> {
        let first_alone = self.records.iter().position(|record| record.alone);
        let count = match first_alone {
            Some(0) => 1,
            Some(index) => index.min(max_records),
            None => self.records.len().min(max_records),
        };
        self.records.drain(..count).map(|record| record.item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_millis(10);

    fn lane(number: usize) -> LaneId {
        LaneId::Partition { slot: number }
    }

    fn batcher() -> (KeyBatcher<u32>, Instant) {
        (KeyBatcher::new(3, LINGER), Instant::now())
    }

    #[test]
    fn a_batch_is_ready_when_it_is_whole_or_its_first_has_waited() {
        let (mut batcher, now) = batcher();
        batcher.push(lane(1), 1, now);
        batcher.push(lane(1), 2, now + LINGER / 2);
        assert_eq!(batcher.next_due(), Some(now + LINGER));
        assert!(batcher.take(now + LINGER / 2).is_none());
        assert_eq!(batcher.take(now + LINGER), Some((lane(1), vec![1, 2])));
        (3..=6).for_each(|number| batcher.push(lane(2), number, now));
        assert_eq!(batcher.take(now), Some((lane(2), vec![3, 4, 5])));
        assert!(batcher.take(now + LINGER).is_none(), "the rest waits until the lane is released");
    }

    #[test]
    fn records_that_arrive_while_the_lane_is_taken_linger_meanwhile() {
        let (mut batcher, now) = batcher();
        batcher.push(lane(1), 1, now);
        batcher.take(now + LINGER).unwrap();
        batcher.push(lane(1), 2, now + LINGER);
        batcher.release(&lane(1), now + LINGER * 2);
        assert_eq!(batcher.take(now + LINGER * 2), Some((lane(1), vec![2])));
        batcher.release(&lane(1), now + LINGER * 2);
        assert!(
            batcher.lanes.is_empty() && batcher.lingering.is_empty() && batcher.ready.is_empty()
        );
    }

    #[test]
    fn records_put_back_come_first_at_once_and_alone_if_so_marked() {
        let (mut batcher, now) = batcher();
        (1..=3).for_each(|number| batcher.push(lane(1), number, now));
        let (lane, batch) = batcher.take(now).unwrap();
        batcher.push(lane.clone(), 4, now);
        let back = batch.into_iter().map(|number| match number {
            2 => BufferedRecord::alone(number),
            _ => BufferedRecord::again(number),
        });
        batcher.put_back(&lane, back);
        let mut next = || {
            batcher.release(&lane, now);
            batcher.take(now).map(|(_, batch)| batch)
        };
        assert_eq!(next(), Some(vec![1]));
        assert_eq!(next(), Some(vec![2]));
        assert_eq!(next(), Some(vec![3, 4]));
        assert_eq!(next(), None);
    }

    #[test]
    fn lanes_take_turns_and_a_single_record_lane_does_not_linger() {
        let (mut batcher, now) = batcher();
        (0..6).for_each(|number| batcher.push(lane(1), number, now));
        (0..3).for_each(|number| batcher.push(lane(2), number, now));
        batcher.push(LaneId::Single { number: 1 }, 9, now);
        let (first, _) = batcher.take(now).unwrap();
        batcher.release(&first, now);
        let order: Vec<_> =
            std::iter::from_fn(|| batcher.take(now)).map(|(lane, _)| lane).collect();
        assert_eq!(order, [lane(2), LaneId::Single { number: 1 }, lane(1)]);
    }
}
