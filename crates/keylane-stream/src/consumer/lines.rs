//! Which records of a lane are handled together next: a plain state machine, which is told the time, and
//! knows neither locks nor threads.
//!
//! A lane with records is *lingering*, *ready* or *taken*. One that gets its first record lingers: it waits for
//! company. It is ready as soon as it has a whole batch, or its first record has waited long enough. Whoever
//! [takes](Lines::take) a batch has the lane, and nothing of it is given to anybody else, until it
//! [lets go](Lines::let_go) of it; meanwhile records that come stand behind, and what was not handled is
//! [put back](Lines::put_back) in front. So batches of a lane are handled one after another, each begins where
//! the one before ended, and the records of a lane keep their order.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;

use super::order::Lane;

/// The longest wait for company: longer ones end at no time that a clock can tell.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 60 * 60);

#[derive(Debug)]
pub(super) struct Lines<T> {
    /// How many records a batch has at most.
    most: usize,
    /// How long a first record waits for others.
    linger: Duration,
    /// The lanes that have records, or are taken.
    lanes: HashMap<Lane, Line<T>, RandomState>,
    /// Those that are ready, the longest so first.
    ready: VecDeque<Lane>,
    /// Those that linger, by when that ends.
    lingering: BTreeMap<Due, Lane>,
    /// How many have begun to linger: of two with the same end the first is the first.
    lingered: u64,
}

/// The end of a wait, and its number.
type Due = (Instant, u64);

#[derive(Debug)]
struct Line<T> {
    waiting: VecDeque<Waiting<T>>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Ready when that comes, or a batch is whole.
    Lingering(Due),
    /// Taken when its turn comes.
    Ready,
    /// Lingering, ready, or gone when it is let go of.
    Taken,
}

/// A record that waits.
#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) item: T,
    /// When it came; none if it has waited enough.
    since: Option<Instant>,
    /// It is a batch of its own.
    alone: bool,
}

impl<T> Waiting<T> {
    /// It has waited, and goes into a batch again.
    pub(super) fn again(item: T) -> Self {
        Waiting { item, since: None, alone: false }
    }

    /// It has waited, and is to be taken alone.
    pub(super) fn alone(item: T) -> Self {
        Waiting { item, since: None, alone: true }
    }
}

impl<T> Lines<T> {
    pub(super) fn new(most: usize, linger: Duration) -> Self {
        Lines {
            most: most.max(1),
            linger: linger.min(LONGEST),
            lanes: HashMap::default(),
            ready: VecDeque::new(),
            lingering: BTreeMap::new(),
            lingered: 0,
        }
    }

    /// Puts a record behind the others of its lane.
    pub(super) fn enter(&mut self, lane: Lane, item: T, now: Instant) {
        // Nobody else will ever come to a lane that is a record's own.
        let since = (!matches!(lane, Lane::Free { .. })).then_some(now);
        let waiting = Waiting { item, since, alone: false };
        match self.lanes.entry(lane.clone()) {
            Entry::Occupied(mut line) => line.get_mut().waiting.push_back(waiting),
            Entry::Vacant(place) => {
                // Nobody has it; it is sorted in below.
                place.insert(Line { waiting: VecDeque::from([waiting]), state: State::Taken });
                return self.let_go(&lane, now);
            }
        }
        self.ready_if_whole(&lane);
    }

    fn ready_if_whole(&mut self, lane: &Lane) {
        let Some(line) = self.lanes.get_mut(lane) else { return };
        if let State::Lingering(due) = line.state
            && line.waiting.len() >= self.most
        {
            line.state = State::Ready;
            self.lingering.remove(&due);
            self.ready.push_back(lane.clone());
        }
    }

    /// Puts records in front of a lane that is taken, in their order.
    pub(super) fn put_back(
        &mut self,
        lane: &Lane,
        items: impl DoubleEndedIterator<Item = Waiting<T>>,
    ) {
        let line = self.lanes.get_mut(lane).expect("a lane that is taken is there");
        debug_assert!(matches!(line.state, State::Taken), "records come back to who has them");
        items.rev().for_each(|item| line.waiting.push_front(item));
    }

    /// Gives a lane back that was taken: what is first there may be taken by others.
    pub(super) fn let_go(&mut self, lane: &Lane, now: Instant) {
        // It is gone if all was.
        let Some(line) = self.lanes.get_mut(lane) else { return };
        debug_assert!(matches!(line.state, State::Taken), "only what is taken is let go of");
        let Some(first) = line.waiting.front() else {
            self.lanes.remove(lane);
            return;
        };
        let due = first.since.map_or(now, |since| since + self.linger);
        if due <= now || first.alone || line.waiting.len() >= self.most {
            return self.make_ready(lane);
        }
        self.lingered += 1;
        line.state = State::Lingering((due, self.lingered));
        self.lingering.insert((due, self.lingered), lane.clone());
    }

    fn make_ready(&mut self, lane: &Lane) {
        if let Some(line) = self.lanes.get_mut(lane) {
            line.state = State::Ready;
            self.ready.push_back(lane.clone());
        }
    }

    /// Takes the next batch that is ready, and its lane.
    pub(super) fn take(&mut self, now: Instant) -> Option<(Lane, Vec<T>)> {
        while let Some(first) = self.lingering.first_entry()
            && first.key().0 <= now
        {
            let lane = first.remove();
            self.make_ready(&lane);
        }
        let lane = self.ready.pop_front()?;
        let line = self.lanes.get_mut(&lane).expect("a lane that is ready is there");
        line.state = State::Taken;
        let batch = line.take(self.most);
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

impl<T> Line<T> {
    fn take(&mut self, most: usize) -> Vec<T> {
        let first_alone = self.waiting.iter().position(|waiting| waiting.alone);
        let count = match first_alone {
            Some(0) => 1,
            Some(index) => index.min(most),
            None => self.waiting.len().min(most),
        };
        self.waiting.drain(..count).map(|waiting| waiting.item).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINGER: Duration = Duration::from_millis(10);

    fn lane(number: usize) -> Lane {
        Lane::Partition { slot: number }
    }

    fn lines() -> (Lines<u32>, Instant) {
        (Lines::new(3, LINGER), Instant::now())
    }

    #[test]
    fn a_batch_is_ready_when_it_is_whole_or_its_first_has_waited() {
        let (mut lines, now) = lines();
        lines.enter(lane(1), 1, now);
        lines.enter(lane(1), 2, now + LINGER / 2);
        assert_eq!(lines.next_due(), Some(now + LINGER));
        assert!(lines.take(now + LINGER / 2).is_none());
        assert_eq!(lines.take(now + LINGER), Some((lane(1), vec![1, 2])));
        (3..=6).for_each(|number| lines.enter(lane(2), number, now));
        assert_eq!(lines.take(now), Some((lane(2), vec![3, 4, 5])));
        assert!(lines.take(now + LINGER).is_none(), "what is left waits for who has the lane");
    }

    #[test]
    fn who_came_while_the_lane_was_taken_has_waited_meanwhile() {
        let (mut lines, now) = lines();
        lines.enter(lane(1), 1, now);
        lines.take(now + LINGER).unwrap();
        lines.enter(lane(1), 2, now + LINGER);
        lines.let_go(&lane(1), now + LINGER * 2);
        assert_eq!(lines.take(now + LINGER * 2), Some((lane(1), vec![2])));
        lines.let_go(&lane(1), now + LINGER * 2);
        assert!(lines.lanes.is_empty() && lines.lingering.is_empty() && lines.ready.is_empty());
    }

    #[test]
    fn what_is_put_back_comes_first_and_at_once_and_what_is_to_be_alone_is() {
        let (mut lines, now) = lines();
        (1..=3).for_each(|number| lines.enter(lane(1), number, now));
        let (lane, batch) = lines.take(now).unwrap();
        lines.enter(lane.clone(), 4, now);
        let back = batch.into_iter().map(|number| match number {
            2 => Waiting::alone(number),
            _ => Waiting::again(number),
        });
        lines.put_back(&lane, back);
        let mut next = || {
            lines.let_go(&lane, now);
            lines.take(now).map(|(_, batch)| batch)
        };
        assert_eq!(next(), Some(vec![1]));
        assert_eq!(next(), Some(vec![2]));
        assert_eq!(next(), Some(vec![3, 4]));
        assert_eq!(next(), None);
    }

    #[test]
    fn lanes_take_turns_and_one_that_nobody_else_can_enter_does_not_wait() {
        let (mut lines, now) = lines();
        (0..6).for_each(|number| lines.enter(lane(1), number, now));
        (0..3).for_each(|number| lines.enter(lane(2), number, now));
        lines.enter(Lane::Free { number: 1 }, 9, now);
        let (first, _) = lines.take(now).unwrap();
        lines.let_go(&first, now);
        let order: Vec<_> = std::iter::from_fn(|| lines.take(now)).map(|(lane, _)| lane).collect();
        assert_eq!(order, [lane(2), Lane::Free { number: 1 }, lane(1)]);
    }
}
