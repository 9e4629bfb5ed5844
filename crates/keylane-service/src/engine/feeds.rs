//! Followers of single jobs: each has a queue, to which the distributor adds the events of its jobs
//! only.
//!
//! A follower is woken by events of its jobs, and other events cost it nothing. Queued events are
//! shared with the ring and with other followers. Queued events that have left the ring are
//! bounded; a follower that is too slow gets a reset and must read its jobs again.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::events::{Events, Followed, RingEvent};
use crate::JobNumber;

/// Maximum number of queued events per follower once the first of them has left the ring: until
/// then they take no extra memory.
const MAX_WAITING: usize = 1024;

/// Approximate maximum size of these events, in bytes, unless there is only one.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// Followers by job.
#[derive(Debug, Default)]
pub(super) struct Feeds {
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
struct FeedQueue {
    waiting: Mutex<QueuedEvents>,
    /// Notified when an event was added.
    added: Notify,
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
}

impl Feeds {
    fn by_job(&self) -> MutexGuard<'_, HashMap<JobNumber, BTreeMap<u64, FeedEntry>>> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn has(&self, job: JobNumber) -> bool {
        self.by_job().contains_key(&job)
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

/// Follower of a set of jobs.
#[derive(Debug)]
pub(crate) struct Feed {
    events: Arc<Events>,
    number: u64,
    queue: Arc<FeedQueue>,
    jobs: Vec<JobNumber>,
}

impl Feed {
    /// Creates a feed without jobs.
    pub(crate) fn new(events: &Arc<Events>) -> Self {
        let number = events.feeds.numbers.fetch_add(1, Relaxed);
        events.feeds.count.fetch_add(1, Relaxed);
        Feed { events: Arc::clone(events), number, queue: Arc::default(), jobs: Vec::new() }
    }

    /// Follows one more job, from event `from` on. Known events are queued at once.
    pub(crate) fn add(&mut self, job: JobNumber, from: u64) {
        if self.jobs.contains(&job) {
            return;
        }
        self.jobs.push(job);
        // The distributor cannot add an event while this lock is held, so none is missed or queued
        // twice.
        let mut by_job = self.events.feeds.by_job();
        let (known, end) = self.events.of_job(job, from);
        known.iter().for_each(|event| self.queue.put(event, 0));
        let place = FeedEntry { queue: Arc::clone(&self.queue), from: end };
        by_job.entry(job).or_default().insert(self.number, place);
    }

    pub(crate) fn has(&self, job: JobNumber) -> bool {
        self.jobs.contains(&job)
    }

    /// Stops following a job. Its queued events are not sent.
    pub(crate) fn remove(&mut self, job: JobNumber) {
        self.jobs.retain(|other| *other != job);
        self.leave(job);
        let mut waiting = self.queue.waiting();
        waiting.events.retain(|event| event.of != Some(job));
        waiting.bytes = waiting.events.iter().map(|event| event.bytes()).sum();
    }

    fn leave(&self, job: JobNumber) {
        let mut by_job = self.events.feeds.by_job();
        if let Some(places) = by_job.get_mut(&job) {
            places.remove(&self.number);
            if places.is_empty() {
                by_job.remove(&job);
            }
        }
    }

    /// Returns the reading end of the feed, for one task.
    pub(crate) fn reader(&self) -> Reader {
        Reader { events: Arc::clone(&self.events), queue: Arc::clone(&self.queue) }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.events.feeds.count.fetch_sub(1, Relaxed);
        self.jobs.iter().for_each(|job| self.leave(*job));
    }
}

/// Reading end of a feed.
#[derive(Debug)]
pub(crate) struct Reader {
    events: Arc<Events>,
    queue: Arc<FeedQueue>,
}

impl Reader {
    /// Waits for the next event. Cancel safe: no event is lost if the future is dropped.
    pub(crate) async fn next(&self) -> Followed {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            self.queue.added.notified().await;
        }
    }

    /// Returns the next event, if there is one.
    pub(crate) fn try_next(&self) -> Option<Followed> {
        let mut waiting = self.queue.waiting();
        if let Some(lost) = waiting.lost.take() {
            return Some(Followed::Reset(self.events.id_before(lost)));
        }
        let event = waiting.events.pop_front()?;
        waiting.bytes -= event.bytes();
        Some(Followed::Event(event))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::JobId;
    use crate::engine::events::event;
    use crate::wire::{Event, EventKind, Job, Timestamp};

    fn id(job: u64) -> JobId {
        JobId::new(JobNumber(job), 0, 0)
    }

    fn publish(events: &Events, job: u64) {
        let counts = json!({"total": 1, "waiting": 0, "ready": 0, "running": 0, "backing_off": 0,
            "succeeded": 1, "failed": 0, "cancelled": 0});
        let job: Job = serde_json::from_value(json!({
            "id": id(job).to_string(), "kind": "work", "labels": {}, "state": "running", "weight": 1,
            "counts": counts, "progress": 1.0, "created_at": "2026-05-04T10:10:00.000Z", "version": 1,
        }))
        .unwrap();
        let job = Some(Box::new(job));
        events.publish(|id| Event { job, ..event(id, EventKind::JobChanged, Timestamp(0)) });
    }

    fn said(followed: Option<Followed>) -> String {
        match followed {
            Some(Followed::Event(event)) => event.id.clone(),
            Some(Followed::Reset(id)) => format!("reset {id}"),
            None => "nothing".into(),
        }
    }

    /// Regression: each follower of one job processed the events of all jobs.
    #[tokio::test]
    async fn a_follower_gets_the_events_of_its_jobs_and_is_woken_by_no_other() {
        let events = Arc::new(Events::new(7));
        tokio::spawn(Arc::clone(&events).distribute(CancellationToken::new()));
        let mut feed = Feed::new(&events);
        let reader = feed.reader();
        publish(&events, 1);
        publish(&events, 1);
        feed.add(JobNumber(1), 1);
        feed.add(JobNumber(2), events.end());
        publish(&events, 3);
        publish(&events, 2);
        publish(&events, 1);
        let mut got = Vec::new();
        for _ in 0..3 {
            got.push(said(Some(reader.next().await)));
        }
        // The event known before the follower was added, once, and the later ones.
        assert_eq!(got, ["7-1", "7-3", "7-4"]);
        feed.remove(JobNumber(2));
        assert!(!events.feeds.has(JobNumber(2)) && events.feeds.has(JobNumber(1)));
        drop(feed);
        assert!(events.feeds.by_job().is_empty());
        assert_eq!(events.feeds.count(), 0);
    }

    #[test]
    fn a_follower_that_is_too_slow_is_told_once_and_goes_on() {
        let events = Arc::new(Events::new(7));
        let mut feed = Feed::new(&events);
        feed.add(JobNumber(1), 0);
        let reader = feed.reader();
        for _ in 0..=MAX_WAITING {
            publish(&events, 1);
        }
        let (all, _) = events.of_job(JobNumber(1), 0);
        all.iter().for_each(|event| events.feeds.give(event, 0));
        assert_eq!(said(reader.try_next()), "7-0", "the ring has them all");
        publish(&events, 1);
        let (next, _) = events.of_job(JobNumber(1), MAX_WAITING as u64 + 1);
        next.iter().for_each(|event| events.feeds.give(event, 2));
        assert_eq!(said(reader.try_next()), format!("reset 7-{}", MAX_WAITING + 1));
        assert_eq!(said(reader.try_next()), "nothing");
        publish(&events, 1);
        let (all, end) = events.of_job(JobNumber(1), MAX_WAITING as u64 + 2);
        all.iter().for_each(|event| events.feeds.give(event, 2));
        assert_eq!(said(reader.try_next()), format!("7-{}", end - 1));
    }
}
