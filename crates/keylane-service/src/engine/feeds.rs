//! Followers of single jobs: each has a queue, into which the distributor puts the events of its jobs and no others.
//!
//! A follower is woken by what it asked for, and costs nothing when something else happens. What waits in its queue is
//! shared with the ring and with other followers; what the ring has let go is bounded, and a follower that is too slow is
//! told to look at its jobs anew.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::events::{Events, Followed, Happened};
use crate::JobNumber;

/// Events that wait for one follower, if the ring has let go of the first of them: before, they cost nothing.
const MAX_WAITING: usize = 1024;

/// Bytes that these take together, about, unless it is one.
const MAX_WAITING_BYTES: usize = 1024 * 1024;

/// The followers of each job.
#[derive(Debug, Default)]
pub(super) struct Feeds {
    /// By job, and by the number of the feed. Locked before a queue, never after.
    by_job: Mutex<HashMap<JobNumber, BTreeMap<u64, Place>>>,
    /// Numbers given to feeds.
    numbers: AtomicU64,
    /// Feeds that there are.
    count: AtomicUsize,
}

/// A feed among the followers of a job.
#[derive(Debug)]
struct Place {
    queue: Arc<Queue>,
    /// It gets events from this number on. It has had those before, or did not ask for them.
    from: u64,
}

/// What waits for a follower.
#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Told when something was put in.
    told: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    events: VecDeque<Arc<Happened>>,
    bytes: usize,
    /// Events are missing: the place where it goes on.
    lost: Option<u64>,
}

impl Queue {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts an event in. The ring has those from `first` on.
    fn put(&self, event: &Arc<Happened>, first: u64) {
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
        self.told.notify_one();
    }
}

impl Feeds {
    fn by_job(&self) -> MutexGuard<'_, HashMap<JobNumber, BTreeMap<u64, Place>>> {
        self.by_job.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    pub(super) fn has(&self, job: JobNumber) -> bool {
        self.by_job().contains_key(&job)
    }

    /// Puts an event into the queues of those who follow its job. The ring has those from `first` on.
    pub(super) fn give(&self, event: &Arc<Happened>, first: u64) {
        let Some(job) = event.of else { return };
        let by_job = self.by_job();
        let places = by_job.get(&job).into_iter().flat_map(BTreeMap::values);
        places
            .filter(|place| place.from <= event.number)
            .for_each(|place| place.queue.put(event, first));
    }

    /// Events were lost before they could be given: everything is to be looked at anew.
    pub(super) fn lose_all(&self, goes_on_at: u64) {
        for place in self.by_job().values().flat_map(BTreeMap::values) {
            place.queue.waiting().lost = Some(goes_on_at);
            place.queue.told.notify_one();
        }
    }
}

/// A follower of some jobs.
#[derive(Debug)]
pub(crate) struct Feed {
    events: Arc<Events>,
    number: u64,
    queue: Arc<Queue>,
    jobs: Vec<JobNumber>,
}

impl Feed {
    /// Of no job yet.
    pub(crate) fn new(events: &Arc<Events>) -> Self {
        let number = events.feeds.numbers.fetch_add(1, Relaxed);
        events.feeds.count.fetch_add(1, Relaxed);
        Feed { events: Arc::clone(events), number, queue: Arc::default(), jobs: Vec::new() }
    }

    /// Follows a job as well, from an event on. Those that are known already come at once.
    pub(crate) fn add(&mut self, job: JobNumber, from: u64) {
        if self.jobs.contains(&job) {
            return;
        }
        self.jobs.push(job);
        // Nothing is given to it while this is locked, so nothing is missed and nothing comes twice.
        let mut by_job = self.events.feeds.by_job();
        let (known, end) = self.events.of_job(job, from);
        known.iter().for_each(|event| self.queue.put(event, 0));
        let place = Place { queue: Arc::clone(&self.queue), from: end };
        by_job.entry(job).or_default().insert(self.number, place);
    }

    pub(crate) fn has(&self, job: JobNumber) -> bool {
        self.jobs.contains(&job)
    }

    /// Follows a job no longer. What of it waits is not sent.
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

    /// Where it is read. One task reads it.
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

/// The end of a feed where events come out.
#[derive(Debug)]
pub(crate) struct Reader {
    events: Arc<Events>,
    queue: Arc<Queue>,
}

impl Reader {
    /// The next event, when there is one. Dropped while it waits, it loses nothing.
    pub(crate) async fn next(&self) -> Followed {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            self.queue.told.notified().await;
        }
    }

    /// The next event, if there is one.
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

    /// Each follower of one job looked at the events of all.
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
        // The one that was known when it began to follow, once; and those that came.
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
