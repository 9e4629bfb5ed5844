//! Ready queue of a shard: tasks that wait only for a worker, in the order in which they became ready
//! or in the order of their submission.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use slab::Slab;

use super::*;

/// Ready queue of one shard.
#[derive(Debug)]
pub(super) enum ReadyQueue<K, W> {
    /// In the order in which the tasks became ready.
    Fifo(VecDeque<ReadyTask<K, W>>),
    /// In the order of submission. The set does not have the tasks themselves, because it moves its
    /// entries, and tasks can be large.
    Sorted { places: BTreeSet<ReadyPlace>, tasks: Slab<ReadyTask<K, W>> },
}

/// Place of a task in the order of submission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ReadyPlace {
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

impl<K, W> ReadyQueue<K, W> {
    /// Creates a queue in the order in which tasks become ready.
    pub(super) fn fifo() -> Self {
        ReadyQueue::Fifo(VecDeque::new())
    }

    /// Creates a queue in the order of submission.
    pub(super) fn sorted() -> Self {
        ReadyQueue::Sorted { places: BTreeSet::new(), tasks: Slab::new() }
    }

    /// Returns whether the order is that of submission.
    #[inline]
    pub(super) fn is_sorted(&self) -> bool {
        matches!(self, ReadyQueue::Sorted { .. })
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        match self {
            ReadyQueue::Fifo(tasks) => tasks.len(),
            ReadyQueue::Sorted { tasks, .. } => tasks.len(),
        }
    }

    /// Returns the task whose turn is next.
    pub(super) fn front(&self) -> Option<&ReadyTask<K, W>> {
        match self {
            ReadyQueue::Fifo(tasks) => tasks.front(),
            ReadyQueue::Sorted { places, tasks } => {
                places.first().map(|place| &tasks[place.slot as usize])
            }
        }
    }

    #[inline]
    pub(super) fn push(&mut self, task: ReadyTask<K, W>) {
        match self {
            ReadyQueue::Fifo(tasks) => tasks.push_back(task),
            ReadyQueue::Sorted { places, tasks } => {
                let seq = task.meta.seq;
                let slot = u32::try_from(tasks.insert(task)).expect("a shard has fewer tasks");
                places.insert(ReadyPlace { seq, slot });
            }
        }
    }

    #[inline]
    pub(super) fn pop(&mut self) -> Option<ReadyTask<K, W>> {
        match self {
            ReadyQueue::Fifo(tasks) => tasks.pop_front(),
            ReadyQueue::Sorted { places, tasks } => {
                let place = places.pop_first()?;
                Some(tasks.remove(place.slot as usize))
            }
        }
    }

    /// Iterates over the tasks, the next one first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &ReadyTask<K, W>> {
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
    pub(super) fn take_all(&mut self) -> VecDeque<ReadyTask<K, W>> {
        match self {
            ReadyQueue::Fifo(tasks) => std::mem::take(tasks),
            ReadyQueue::Sorted { .. } => std::iter::from_fn(|| self.pop()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(seq: u32) -> ReadyTask<(), u32> {
        let meta = TaskMeta { seq, ..TaskMeta::default() };
        ReadyTask { work: seq, key: None, meta, held: HeldLanes::Free }
    }

    fn works<'q>(tasks: impl Iterator<Item = &'q ReadyTask<(), u32>>) -> Vec<u32> {
        tasks.map(|task| task.work).collect()
    }

    #[test]
    fn a_sorted_queue_has_the_order_of_submission_also_where_numbers_wrap_around() {
        let mut queue = ReadyQueue::sorted();
        for seq in [1, u32::MAX, 7, u32::MAX - 3, 0] {
            queue.push(task(seq));
        }
        let order = [u32::MAX - 3, u32::MAX, 0, 1, 7];
        assert_eq!(works(queue.iter()), order);
        assert_eq!(queue.front().map(|task| task.work), Some(u32::MAX - 3));
        assert_eq!(queue.pop().map(|task| task.work), Some(u32::MAX - 3));
        assert_eq!(works(queue.take_all().iter()), order[1..]);
        assert!(queue.is_empty() && queue.is_sorted());
    }

    #[test]
    fn another_queue_has_the_order_in_which_tasks_became_ready() {
        let mut queue = ReadyQueue::fifo();
        [3, 1, 2].map(|seq| queue.push(task(seq)));
        assert_eq!(works(queue.iter()), [3, 1, 2]);
        assert_eq!(queue.pop().map(|task| task.work), Some(3));
        assert_eq!((works(queue.take_all().iter()), queue.len()), (vec![1, 2], 0));
    }
}
