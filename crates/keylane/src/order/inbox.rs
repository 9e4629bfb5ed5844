//! Where producers leave tasks: one lock, one append, and at most one wake-up for many tasks.

use super::Entry;
use super::queue::SegQueue;

/// The tasks of a shard that no worker has looked at yet, oldest first.
#[derive(Debug)]
pub(crate) struct Inbox<K, W> {
    pub(crate) queue: SegQueue<Entry<K, W>>,
    /// A producer has told the workers since a worker last looked, so the next need not.
    pub(crate) signaled: bool,
    /// The lane of a worker that is bound to look here before it leaves that lane. Its tasks can't
    /// run before that worker looks, so they are not worth a wake-up.
    pub(crate) resident: Option<(u32, K)>,
    /// A Lamport clock: the highest `seq` given out here, or that a rollup brought from another
    /// inbox. Labels carry its lower half.
    pub(crate) clock: u64,
    /// Entries that were ever pushed.
    pub(crate) accepted: u64,
    /// The pool is stopped: what would come in now would never run.
    pub(crate) closed: bool,
}

impl<K, W> Default for Inbox<K, W> {
    fn default() -> Self {
        Inbox {
            queue: SegQueue::default(),
            signaled: false,
            resident: None,
            clock: 0,
            accepted: 0,
            closed: false,
        }
    }
}

impl<K: Eq, W> Inbox<K, W> {
    /// Whether the work of any task here is of this kind.
    pub(crate) fn any(&self, is_target: impl Fn(&W) -> bool) -> bool {
        self.queue.iter().any(|entry| entry.is_for(&is_target))
    }

    /// The next place in the order.
    #[inline]
    pub(crate) fn tick(&mut self) -> u32 {
        self.clock += 1;
        self.clock as u32
    }

    /// Appends a task and says whether the workers must be told.
    #[inline]
    pub(crate) fn push(&mut self, entry: Entry<K, W>) -> bool {
        let tell = !self.signaled
            && !matches!(&self.resident, Some((hash, key)) if entry.is_exclusive_on(*hash, key));
        self.queue.push(entry);
        self.accepted += 1;
        self.signaled |= tell;
        tell
    }
}
