//! Which records of a lane are handled together next: a plain state machine, which is told the time, and
//! knows neither locks nor threads.
//!
//! A lane with records is *lingering*, *ready* or *taken*. One that gets its first record lingers: it waits for
//! company. It is ready as soon as it has a whole batch, or its first record has waited long enough. Whoever
//! [takes](KeyBatcher::take) a batch has the lane, and nothing of it is given to anybody else, until it
//! [lets go](KeyBatcher::release) of it; meanwhile records that come stand behind, and what was not handled is
//! [put back](KeyBatcher::put_back) in front. So batches of a lane are handled one after another, each begins where
//! the one before ended, and the records of a lane keep their order.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use super::ordering::LaneId;

/// The longest wait for company: longer ones end at no time that a clock can tell.
const MAX_LINGER: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug)]
pub(super) struct KeyBatcher<T> {
    /// Completion many records a batch has at max_records.
    max_records: usize,
    /// Completion long a first record waits for others.
    linger: Duration,
    /// The lanes that have records, or are taken.
    lanes: HashMap<LaneId, KeyBuffer<T>, RandomState>,
    /// Those that are ready, the longest so first.
    ready: VecDeque<LaneId>,
    /// Those that linger, by when that ends.
    lingering: BTreeMap<Deadline, LaneId>,
    /// Completion many have begun to linger: of two with the same end the first is the first.
    lingered: u64,
}

/// The end of a wait, and its number.
type Deadline = (Instant, u64);

#[derive(Debug)]
struct KeyBuffer<T> {
    records: VecDeque<BufferedRecord<T>>,
    state: KeyBufferState,
}

#[derive(Debug)]
enum KeyBufferState {
    /// Ready when that comes, or a batch is whole.
    Lingering(Deadline),
    /// Taken when its turn comes.
    Ready,
    /// Lingering, ready, or gone when it is let go of.
    Taken,
}

/// A record that waits.
#[derive(Debug)]
pub(super) struct BufferedRecord<T> {
    pub(super) item: T,
    /// When it came; none if it has waited enough.
    since: Option<Instant>,
    /// It is a batch of its own.
    alone: bool,
}

impl<T> BufferedRecord<T> {
    /// It has waited, and goes into a batch again.
    pub(super) fn again(item: T) -> Self {
        BufferedRecord { item, since: None, alone: false }
    }

    /// It has waited, and is to be taken alone.
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

    /// Puts a record behind the others of its lane.
    pub(super) fn push(&mut self, lane: LaneId, item: T, now: Instant) {
        // Nobody else will ever come to a lane that is a record's own.
        let since = (!matches!(lane, LaneId::Single { .. })).then_some(now);
        let records = BufferedRecord { item, since, alone: false };
        match self.lanes.entry(lane.clone()) {
            Entry::Occupied(mut buffer) => buffer.get_mut().records.push_back(records),
            Entry::Vacant(place) => {
                // Nobody has it; it is sorted in below.
                place.insert(KeyBuffer {
                    records: VecDeque::from([records]),
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

    /// Puts records in front of a lane that is taken, in their order.
    pub(super) fn put_back(
        &mut self,
        lane: &LaneId,
        items: impl DoubleEndedIterator<Item = BufferedRecord<T>>,
    ) {
        let buffer = self.lanes.get_mut(lane).expect("a lane that is taken is there");
        debug_assert!(
            matches!(buffer.state, KeyBufferState::Taken),
            "records come back to who has them"
        );
        items.rev().for_each(|item| buffer.records.push_front(item));
    }

    /// Gives a lane back that was taken: what is first there may be taken by others.
    pub(super) fn release(&mut self, lane: &LaneId, now: Instant) {
        // It is gone if all was.
        let Some(buffer) = self.lanes.get_mut(lane) else { return };
        debug_assert!(
            matches!(buffer.state, KeyBufferState::Taken),
            "only what is taken is let go of"
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

    /// Takes the next batch that is ready, and its lane.
    pub(super) fn take(&mut self, now: Instant) -> Option<(LaneId, Vec<T>)> {
        while let Some(first) = self.lingering.first_entry()
            && first.key().0 <= now
        {
            let lane = first.remove();
            self.make_ready(&lane);
        }
        let lane = self.ready.pop_front()?;
        let buffer = self.lanes.get_mut(&lane).expect("a lane that is ready is there");
        buffer.state = KeyBufferState::Taken;
        let batch = buffer.take(self.max_records);
        Some((lane, batch))
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// When the next lane gets ready by time.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.lingering.first_key_value().map(|((due, _), _)| *due)
    }
}

impl<T> KeyBuffer<T> {
    fn take(&mut self, max_records: usize) -> Vec<T> {
        let first_alone = self.records.iter().position(|records| records.alone);
        let count = match first_alone {
            Some(0) => 1,
            Some(index) => index.min(max_records),
            None => self.records.len().min(max_records),
        };
        self.records.drain(..count).map(|records| records.item).collect()
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
        assert!(batcher.take(now + LINGER).is_none(), "what is left waits for who has the lane");
    }

    #[test]
    fn who_came_while_the_lane_was_taken_has_waited_meanwhile() {
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
    fn what_is_put_back_comes_first_and_at_once_and_what_is_to_be_alone_is() {
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
    fn lanes_take_turns_and_one_that_nobody_else_can_enter_does_not_wait() {
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
