//! Inbox of a shard: producers append tasks under one lock, with at most one wake-up for many
//! tasks.

use super::key_markers::KeyMarkers;
use super::segment_queue::FillQueue;
use super::{ClaimMode, InboxEntry, KeyClaim, TaskMeta};
use crate::unwind::{KeyPanic, catch_key_panic};

/// Tasks of a shard that no worker has seen yet, oldest first.
///
/// `repr(C)`: fields that an append touches share one cache line with the lock before them.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Inbox<K, W> {
    /// Whether a producer has notified the workers since the last refill, so that the next one need
    /// not.
    pub(crate) signaled: bool,
    /// Whether an entry does not belong to the pinned lane.
    pub(crate) has_foreign: bool,
    /// Whether the pool is stopped: a task that came in now would never run.
    pub(crate) closed: bool,
    /// Whether a submission needs the slow path, because the inbox is closed or watches a key.
    pub(crate) watched: bool,
    /// Permits of the admission gate that are kept for the next tasks: a producer that finds one
    /// need not go to the gate. Taken back when a submitter waits at the gate.
    pub(crate) spare_permits: u32,
    /// Lamport clock: the highest `seq` assigned here, or brought by a rollup from another inbox. A
    /// task's `seq` is its lower half.
    pub(crate) clock: u64,
    /// Number of entries ever pushed.
    pub(crate) accepted: u64,
    /// Value of `accepted` from which on the wait of the next task is measured. Updated by the
    /// submission that takes the measurement.
    pub(crate) measure_at: u64,
    /// Entries since the last refill, oldest first.
    pub(crate) queue: FillQueue<InboxEntry<K, W>>,
    /// Hash and key of the pinned lane, whose worker must look into the inbox before it leaves the
    /// lane. Its tasks cannot run before that, so they need no wake-up.
    pub(crate) pinned: Option<(u32, K)>,
    /// Keys that the inbox watches.
    pub(super) markers: KeyMarkers<K, W>,
    /// Payloads of panics of keys that have cost no task, until the next refill.
    pub(super) key_panics: Vec<KeyPanic>,
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
            spare_permits: 0,
            closed: false,
            watched: false,
            markers: KeyMarkers::default(),
            key_panics: Vec::new(),
        }
    }
}

impl<K: Eq, W> Inbox<K, W> {
    /// Returns whether the work of any entry satisfies `is_target`.
    pub(crate) fn any(&self, is_target: impl Fn(&W) -> bool) -> bool {
        self.queue.iter().any(|entry| entry.is_for(&is_target))
    }

    /// Returns whether the wait of the next task is to be measured.
    #[inline(always)]
    pub(crate) fn is_due(&self) -> bool {
        self.accepted >= self.measure_at
    }

    /// Advances the clock and returns the next sequence number.
    #[inline]
    pub(crate) fn tick(&mut self) -> u32 {
        self.clock += 1;
        self.clock as u32
    }

    /// Appends a task with one key, and returns whether the caller must notify the workers.
    #[inline(always)]
    pub(crate) fn push_single(
        &mut self,
        hash: u32,
        time: u32,
        KeyClaim { key, mode }: KeyClaim<K>,
        make: impl FnOnce() -> W,
    ) -> bool {
        let is_pinned = mode == ClaimMode::Exclusive
            && match &self.pinned {
                Some((at, pinned)) if *at == hash => match catch_key_panic(|| *pinned == key) {
                    Ok(is_pinned) => is_pinned,
                    // Then the workers are notified, perhaps in vain.
                    Err(payload) => {
                        self.key_panics.push(payload);
                        false
                    }
                },
                _ => false,
            };
        let notify = !self.signaled && !is_pinned;
        let meta = TaskMeta { hash, seq: self.tick(), time };
        self.queue.push_with(|| InboxEntry::Single { meta, mode, key, work: make() });
        // Set after `make`: if `make` unwinds, the caller does not notify, and the flag must not
        // suppress the next notification.
        self.signaled |= notify;
        self.has_foreign |= !is_pinned;
        self.accepted += 1;
        notify
    }

    /// Appends an entry of another kind, and returns whether the caller must notify the workers.
    pub(crate) fn push(&mut self, entry: InboxEntry<K, W>) -> bool {
        let notify = !self.signaled;
        self.signaled = true;
        self.has_foreign = true;
        self.accepted += 1;
        self.queue.push_with(|| entry);
        notify
    }
}
