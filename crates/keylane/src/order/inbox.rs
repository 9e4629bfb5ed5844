//! Where producers leave tasks: one lock, one append, and at most one wake-up for many tasks.

use super::key_markers::KeyMarkers;
use super::segment_queue::FillQueue;
use super::{InboxEntry, KeyClaim, Mode, TaskMeta};

/// The tasks of a shard that no worker has looked at yet, oldest first.
///
/// Laid out as it is written: with the lock before it, what an append touches is one line.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Inbox<K, W> {
    /// A producer has told the workers since a worker last looked, so the next need not.
    pub(crate) signaled: bool,
    /// Something is here that is not the pinned lane's.
    pub(crate) has_foreign: bool,
    /// The pool is stopped: what would come in now would never run.
    pub(crate) closed: bool,
    /// Whoever comes must look closer: the inbox is closed, or watches a key.
    pub(crate) watched: bool,
    /// Slots that are taken already, for tasks to come: a producer that finds one here needs not go
    /// to the gate. Whoever waits at the gate takes them back.
    pub(crate) room: u32,
    /// A Lamport clock: the highest `seq` given out here, or that a rollup brought from another
    /// inbox. Labels carry its lower half.
    pub(crate) clock: u64,
    /// Entries that were ever pushed.
    pub(crate) accepted: u64,
    /// When so many have been, the wait of the next task is measured. Changed by whoever does so.
    pub(crate) measure_at: u64,
    /// What has come since a worker last took over, oldest first.
    pub(crate) queue: FillQueue<InboxEntry<K, W>>,
    /// The lane of a worker that is bound to look here before it leaves that lane. Its tasks can't
    /// run before that worker looks, so they are not worth a wake-up.
    pub(crate) pinned: Option<(u32, K)>,
    /// The keys that it watches.
    pub(super) markers: KeyMarkers<K, W>,
}

impl<K, W> Default for Inbox<K, W> {
    fn default() -> Self {
        Inbox {
            queue: FillQueue::default(),
            signaled: false,
            pinned: None,
            has_foreign: false,
            clock: 0,
            accepted: 0,
            measure_at: u64::MAX,
            room: 0,
            closed: false,
            watched: false,
            markers: KeyMarkers::default(),
        }
    }
}

impl<K: Eq, W> Inbox<K, W> {
    /// Whether the work of any task here is of this kind.
    pub(crate) fn any(&self, is_target: impl Fn(&W) -> bool) -> bool {
        self.queue.iter().any(|entry| entry.is_for(&is_target))
    }

    /// Whether the wait of the next task is to be measured.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.accepted >= self.measure_at
    }

    /// The next place in the order.
    #[inline]
    pub(crate) fn tick(&mut self) -> u32 {
        self.clock += 1;
        self.clock as u32
    }

    /// Appends a task with one key, and says whether the workers must be told.
    #[inline(always)]
    pub(crate) fn push_single(
        &mut self,
        hash: u32,
        time: u32,
        KeyClaim { key, mode }: KeyClaim<K>,
        make: impl FnOnce() -> W,
    ) -> bool {
        let is_residents = mode == Mode::Exclusive
            && matches!(&self.pinned, Some((at, pinned)) if *at == hash && *pinned == key);
        let tell = !self.signaled && !is_residents;
        let meta = TaskMeta { hash, seq: self.tick(), time };
        self.queue.push_with(|| InboxEntry::Single { meta, mode, key, work: make() });
        // Only now: were `make` to unwind, no call would tell the workers.
        self.signaled |= tell;
        self.has_foreign |= !is_residents;
        self.accepted += 1;
        tell
    }

    /// Appends a task of another kind, and says whether the workers must be told.
    pub(crate) fn push(&mut self, entry: InboxEntry<K, W>) -> bool {
        let tell = !self.signaled;
        self.signaled = true;
        self.has_foreign = true;
        self.accepted += 1;
        self.queue.push_with(|| entry);
        tell
    }
}
