//! Ready queue of a shard: tasks that wait only for a worker, in the order in which they became ready
//! or in the order of their submission.

use std::cmp::Ordering;
use std::collections::{BTreeSet, VecDeque};

use slab::Slab;

/// Ready queue of one shard.
#[derive(Debug)]
pub(crate) enum ReadyQueue<T> {
    /// In the order in which the tasks became ready.
    Fifo(VecDeque<T>),
    /// In the order of submission. The set does not have the tasks themselves, because it moves its
    /// entries, and tasks can be large.
    Sorted { places: BTreeSet<ReadyPlace>, tasks: Slab<T> },
}

/// Place of a task in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadyPlace {
    /// Sequence number of the task.
    seq: u32,
    /// Slot in the table of tasks.
    slot: u32,
}

impl Ord for ReadyPlace {
    fn cmp(&self, other: &Self) -> Ordering {
        // Numbers wrap around. Those of unfinished tasks are nearer to each other than that, so this
        // is a total order of the tasks of a queue.
        let distance = self.seq.wrapping_sub(other.seq).cast_signed();
        distance.cmp(&0).then(self.slot.cmp(&other.slot))
    }
}

impl PartialOrd for ReadyPlace {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> ReadyQueue<T> {
    /// Creates a queue in the order in which tasks become ready.
    pub(crate) fn fifo() -> Self {
        ReadyQueue::Fifo(VecDeque::new())
    }

    /// Creates a queue in the order of submission.
    pub(crate) fn sorted() -> Self {
        ReadyQueue::Sorted { places: BTreeSet::new(), tasks: Slab::new() }
    }

    /// Returns whether the order is that of submission.
    #[inline]
    pub(crate) fn is_sorted(&self) -> bool {
        matches!(self, ReadyQueue::Sorted { .. })
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        match self {
            ReadyQueue::Fifo(tasks) => tasks.len(),
            ReadyQueue::Sorted { tasks, .. } => tasks.len(),
        }
    }

    /// Returns the task whose turn is next.
    pub(crate) fn front(&self) -> Option<&T> {
        match self {
            ReadyQueue::Fifo(tasks) => tasks.front(),
            ReadyQueue::Sorted { places, tasks } => {
                places.first().map(|place| &tasks[place.slot as usize])
            }
        }
    }

    /// Adds a task with this number in the order of submission.
    #[inline]
    pub(crate) fn push(&mut self, seq: u32, task: T) {
        match self {
            ReadyQueue::Fifo(tasks) => tasks.push_back(task),
            ReadyQueue::Sorted { places, tasks } => {
                let slot = u32::try_from(tasks.insert(task)).expect("a shard has fewer tasks");
                places.insert(ReadyPlace { seq, slot });
            }
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        match self {
            ReadyQueue::Fifo(tasks) => tasks.pop_front(),
            ReadyQueue::Sorted { places, tasks } => {
                let place = places.pop_first()?;
                Some(tasks.remove(place.slot as usize))
            }
        }
    }

    /// Iterates over the tasks, the next one first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        let (fifo, sorted) = match self {
            ReadyQueue::Fifo(tasks) => (Some(tasks), None),
            ReadyQueue::Sorted { places, tasks } => (None, Some((places, tasks))),
        };
        let sorted = sorted.into_iter();
        let sorted =
            sorted.flat_map(|(places, tasks)| places.iter().map(|it| &tasks[it.slot as usize]));
        fifo.into_iter().flatten().chain(sorted)
    }

    /// Removes all tasks, and returns them in their order.
    pub(crate) fn take_all(&mut self) -> VecDeque<T> {
        match self {
            ReadyQueue::Fifo(tasks) => std::mem::take(tasks),
            ReadyQueue::Sorted { .. } => std::iter::from_fn(|| self.pop()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sorted_queue_has_the_order_of_submission_also_where_numbers_wrap_around() {
        let mut queue = ReadyQueue::sorted();
        for seq in [1, u32::MAX, 7, u32::MAX - 3, 0] {
            queue.push(seq, seq);
        }
        let order = [u32::MAX - 3, u32::MAX, 0, 1, 7];
        assert_eq!(queue.iter().copied().collect::<Vec<_>>(), order);
        assert_eq!(queue.front().copied(), Some(u32::MAX - 3));
        assert_eq!(queue.pop(), Some(u32::MAX - 3));
        assert_eq!(queue.take_all(), &order[1..]);
        assert!(queue.is_empty() && queue.is_sorted());
    }

    #[test]
    fn another_queue_has_the_order_in_which_tasks_became_ready() {
        let mut queue = ReadyQueue::fifo();
        for seq in [3, 1, 2] {
            queue.push(seq, seq);
        }
        assert_eq!(queue.iter().copied().collect::<Vec<_>>(), [3, 1, 2]);
        assert_eq!(queue.pop(), Some(3));
        assert_eq!(queue.take_all(), [1, 2]);
        assert!(queue.is_empty());
    }
}
