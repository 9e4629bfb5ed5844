//! Followers of single jobs: each has a queue, to which the distributor adds the events of its jobs
//! only.
//!
//! A follower is woken by events of its jobs, and other events cost it nothing.

use std::sync::Arc;

use super::hub::EventHub;
use super::queues::{FeedQueue, QueueItem};
use super::ring_event::FollowedItem;
use crate::JobNumber;

/// Follower of a set of jobs.
#[derive(Debug)]
pub(crate) struct JobFeed {
    events: Arc<EventHub>,
    number: u64,
    queue: Arc<FeedQueue>,
    jobs: Vec<JobNumber>,
}

impl JobFeed {
    /// Creates a feed without jobs.
    pub(crate) fn new(events: &Arc<EventHub>) -> Self {
        let number = events.feeds.open();
        JobFeed { events: Arc::clone(events), number, queue: Arc::default(), jobs: Vec::new() }
    }

    /// Follows one more job, from event `from` on. Known events are queued at once.
    pub(crate) fn add(&mut self, job: JobNumber, from: u64) {
        if self.jobs.contains(&job) {
            return;
        }
        self.jobs.push(job);
        let known = || self.events.of_job(job, from);
        self.events.feeds.follow(job, self.number, &self.queue, known);
    }

    pub(crate) fn has(&self, job: JobNumber) -> bool {
        self.jobs.contains(&job)
    }

    /// Stops following a job. Its queued events are not sent.
    pub(crate) fn remove(&mut self, job: JobNumber) {
        self.jobs.retain(|other| *other != job);
        self.events.feeds.leave(job, self.number);
        self.queue.remove(job);
    }

    /// Returns the reading end of the feed, for one task.
    pub(crate) fn reader(&self) -> FeedReader {
        FeedReader { events: Arc::clone(&self.events), queue: Arc::clone(&self.queue) }
    }
}

impl Drop for JobFeed {
    fn drop(&mut self) {
        self.jobs.iter().for_each(|job| self.events.feeds.leave(*job, self.number));
        self.events.feeds.close();
    }
}

/// Reading end of a feed.
#[derive(Debug)]
pub(crate) struct FeedReader {
    events: Arc<EventHub>,
    queue: Arc<FeedQueue>,
}

impl FeedReader {
    /// Waits for the next event. Cancel safe: no event is lost if the future is dropped.
    pub(crate) async fn next(&self) -> FollowedItem {
        loop {
            if let Some(next) = self.try_next() {
                return next;
            }
            self.queue.added.notified().await;
        }
    }

    /// Returns the next event, if there is one.
    pub(crate) fn try_next(&self) -> Option<FollowedItem> {
        Some(match self.queue.take()? {
            QueueItem::Event(event) => FollowedItem::Event(event),
            QueueItem::Lost(from) => FollowedItem::Reset(self.events.id_before(from)),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tokio_util::sync::CancellationToken;

    use super::super::queues::MAX_WAITING;
    use super::super::ring_event::event;
    use super::*;
    use crate::JobId;
    use crate::wire::{Event, EventKind, Job, Timestamp};

    fn id(job: u64) -> JobId {
        JobId::new(JobNumber(job), 0, 0)
    }

    fn publish(events: &EventHub, job: u64) {
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

    fn said(followed: Option<FollowedItem>) -> String {
        match followed {
            Some(FollowedItem::Event(event)) => event.id.clone(),
            Some(FollowedItem::Reset(id)) => format!("reset {id}"),
            None => "nothing".into(),
        }
    }

    /// Regression: each follower of one job processed the events of all jobs.
    #[tokio::test]
    async fn a_follower_gets_the_events_of_its_jobs_and_is_woken_by_no_other() {
        let events = Arc::new(EventHub::new(7));
        tokio::spawn(Arc::clone(&events).distribute(CancellationToken::new()));
        let mut feed = JobFeed::new(&events);
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
        assert!(events.feeds.is_empty());
        assert_eq!(events.feeds.count(), 0);
    }

    #[test]
    fn a_follower_that_is_too_slow_is_told_once_and_goes_on() {
        let events = Arc::new(EventHub::new(7));
        let mut feed = JobFeed::new(&events);
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
