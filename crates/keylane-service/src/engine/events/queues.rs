//! Queues of the followers of single jobs.
//!
//! Queued events are shared with the ring and with other followers. Queued events that have left
//! the ring are bounded; a follower that is too slow gets a reset and must read its jobs again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::ring_event::RingEvent;
use crate::JobNumber;

/// Maximum number of queued events per follower once the first of them has left the ring: until
/// then they take no extra memory.
pub(super) const MAX_WAITING: usize = 1024;

/// Approximate maximum size of these events, in bytes, unless there is only one.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Followers by job.
#[derive(Debug, Default)]
pub(super) struct JobFeeds {
    /// Followers by job and by the number of their feed. Locked before a queue, never after.
    by_job: Mutex<HashMap<JobNumber, BTreeMap<u64, FeedEntry>>>,
    /// Number of the next feed.
    numbers: AtomicU64,
    /// Number of feeds.
    count: AtomicUsize,
}

/// A feed in the list of a job's followers.
#[derive(Debug)]
struct FeedEntry {
    queue: Arc<FeedQueue>,
    /// First event number that the feed gets. It has had earlier events, or did not request them.
    from: u64,
}

/// Queue of a follower.
#[derive(Debug, Default)]
pub(super) struct FeedQueue {
    waiting: Mutex<QueuedEvents>,
    /// Notified when an event was added.
    pub(super) added: Notify,
}

/// Next item of a queue.
pub(super) enum QueueItem {
    Event(Arc<RingEvent>),
    /// Events are missing. The queue continues from this position.
    Lost(u64),
}

#[derive(Debug, Default)]
struct QueuedEvents {
    events: VecDeque<Arc<RingEvent>>,
    bytes: usize,
    /// Position to continue from, if events are missing.
    lost: Option<u64>,
}

impl FeedQueue {
    fn waiting(&self) -> MutexGuard<'_, QueuedEvents> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event. The ring has the events from `first` on.
    fn put(&self, event: &Arc<RingEvent>, first: u64) {
        let mut waiting = self.waiting();
        waiting.bytes += event.bytes();
        waiting.events.push_back(Arc::clone(event));
        let is_in_ring = waiting.events.front().is_some_and(|event| event.number >= first);
        let is_alone = waiting.events.len() == 1;
        let is_much = waiting.events.len() > MAX_WAITING || waiting.bytes > MAX_WAITING_BYTES;
        if is_much && !is_in_ring && !is_alone {
            waiting.events = VecDeque::new();
            (waiting.bytes, waiting.lost) = (0, Some(event.number + 1));
        }
        drop(waiting);
        self.added.notify_one();
    }

    /// Removes the events of a job.
    pub(super) fn remove(&self, job: JobNumber) {
        let mut waiting = self.waiting();
        waiting.events.retain(|event| event.of != Some(job));
        waiting.bytes = waiting.events.iter().map(|event| event.bytes()).sum();
    }

    /// Removes and returns the next item, if there is one.
    pub(super) fn take(&self) -> Option<QueueItem> {
        let mut waiting = self.waiting();
        if let Some(lost) = waiting.lost.take() {
            return Some(QueueItem::Lost(lost));
        }
        let event = waiting.events.pop_front()?;
        waiting.bytes -= event.bytes();
        Some(QueueItem::Event(event))
    }
}

impl JobFeeds {
    fn by_job(&self) -> MutexGuard<'_, HashMap<JobNumber, BTreeMap<u64, FeedEntry>>> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a feed without jobs. Returns its number.
    pub(super) fn open(&self) -> u64 {
        self.count.fetch_add(1, Relaxed);
        self.numbers.fetch_add(1, Relaxed)
    }

    /// Removes a feed, which has left its jobs.
    pub(super) fn close(&self) {
        self.count.fetch_sub(1, Relaxed);
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn has(&self, job: JobNumber) -> bool {
        self.by_job().contains_key(&job)
    }

    /// Adds a job to a feed. `known` returns the known events of the job and the end of the ring.
    pub(super) fn follow(
        &self,
        job: JobNumber,
        feed: u64,
        queue: &Arc<FeedQueue>,
        known: impl FnOnce() -> (Vec<Arc<RingEvent>>, u64),
    ) {
        // The distributor cannot add an event while this lock is held, so none is missed or queued
        // twice.
        let mut by_job = self.by_job();
        let (known, end) = known();
        known.iter().for_each(|event| queue.put(event, 0));
        let place = FeedEntry { queue: Arc::clone(queue), from: end };
        by_job.entry(job).or_default().insert(feed, place);
    }

    /// Removes a job from a feed.
    pub(super) fn leave(&self, job: JobNumber, feed: u64) {
        let mut by_job = self.by_job();
        if let Some(places) = by_job.get_mut(&job) {
            places.remove(&feed);
            if places.is_empty() {
                by_job.remove(&job);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_job().is_empty()
    }

    /// Adds an event to the queues of its job's followers. The ring has the events from `first` on.
    pub(super) fn give(&self, event: &Arc<RingEvent>, first: u64) {
        let Some(job) = event.of else { return };
        let by_job = self.by_job();
        let places = by_job.get(&job).into_iter().flat_map(BTreeMap::values);
        places
            .filter(|place| place.from <= event.number)
            .for_each(|place| place.queue.put(event, first));
    }

    /// Resets all feeds: events left the ring before they were distributed.
    pub(super) fn lose_all(&self, goes_on_at: u64) {
        for place in self.by_job().values().flat_map(BTreeMap::values) {
            place.queue.waiting().lost = Some(goes_on_at);
            place.queue.added.notify_one();
        }
    }
}
