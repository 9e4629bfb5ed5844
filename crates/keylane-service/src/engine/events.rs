//! What happened lately, for those who follow it: a ring of events that everybody reads at their own pace.
//!
//! Nobody has a queue of their own, so nobody's slowness costs memory or holds others up. Who is so slow
//! that the ring has gone on without them is told to look at everything anew. It is bounded by the number of
//! events and by their bytes, and the oldest go first.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

use crate::wire::{Event, EventKind, Job};

/// How many events are kept: at some hundred a second, for those who were away for half a minute.
const KEPT: usize = 10_000;

/// How many bytes they take together, about: several times what so many take that have no result. The end of a job has
/// what its fan-in has made, which may be many megabytes. The newest is kept however large it is, for those who follow.
const KEPT_BYTES: usize = 32 * 1024 * 1024;

/// Where all events are published.
#[derive(Debug)]
pub(crate) struct Events {
    /// The number of the server's start, so that an id of an earlier one is known as such.
    boot: u64,
    ring: Mutex<Ring>,
    /// The number of the next event: who waits for one waits for this to change.
    next: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Ring {
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Arc<Event>>,
    /// What they take together: the sum of [`bytes_of`] each.
    bytes: usize,
}

impl Ring {
    /// The number of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Keeps one more, and gives back those that go for it: to be dropped without the lock.
    fn push(&mut self, event: Arc<Event>) -> Vec<Arc<Event>> {
        self.bytes += bytes_of(&event);
        self.events.push_back(event);
        let mut gone = Vec::new();
        while self.events.len() > KEPT || (self.bytes > KEPT_BYTES && self.events.len() > 1) {
            let oldest = self.events.pop_front().expect("there is more than one");
            self.bytes -= bytes_of(&oldest);
            self.first += 1;
            gone.push(oldest);
        }
        gone
    }
}

/// About how many bytes an event takes: itself, and whatever of it may be long.
fn bytes_of(event: &Event) -> usize {
    let texts = [&event.key, &event.schedule, &event.error];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    size_of::<Event>() + event.id.len() + texts + event.job.as_deref().map_or(0, bytes_of_job)
}

fn bytes_of_job(job: &Job) -> usize {
    let texts = [&job.client_id, &job.name, &job.traceparent, &job.tracestate, &job.error];
    let texts: usize = texts.into_iter().flatten().map(String::len).sum();
    let labels: usize = job.labels.iter().map(|(name, value)| name.len() + value.len()).sum();
    let result = job.result.as_ref().map_or(0, |result| result.get().len());
    size_of::<Job>() + job.id.len() + job.kind.len() + texts + labels + result
}

/// A place among the events, from which somebody reads on.
#[derive(Debug)]
pub(crate) struct Follower {
    events: Arc<Events>,
    at: u64,
    changed: watch::Receiver<u64>,
}

/// What a follower gets.
#[derive(Clone, Debug)]
pub(crate) enum Followed {
    /// The next event.
    Event(Arc<Event>),
    /// Events are missing here: what was known must be asked for again. The id is where it goes on.
    Reset(String),
}

impl Events {
    pub(crate) fn new(boot: u64) -> Self {
        Events { boot, ring: Mutex::default(), next: watch::channel(0).0 }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.boot)
    }

    /// Publishes what is made of its id.
    pub(crate) fn publish(&self, event: impl FnOnce(String) -> Event) {
        let mut ring = self.ring();
        let number = ring.end();
        let gone = ring.push(Arc::new(event(self.id(number))));
        drop(ring);
        drop(gone);
        // Published by several at once, a lower number must not hide a higher one.
        self.next.send_if_modified(|next| {
            let is_news = *next < number + 1;
            *next = (*next).max(number + 1);
            is_news
        });
    }

    /// Follows from now on; or from after the event of this id, if it is still known.
    pub(crate) fn follow(self: &Arc<Self>, after: Option<&str>) -> (Follower, Option<Followed>) {
        let changed = self.next.subscribe();
        let (first, end) = {
            let ring = self.ring();
            (ring.first, ring.end())
        };
        let wanted = after.map(|id| self.after(id));
        let (at, lost) = match wanted {
            None => (end, false),
            Some(Some(at)) if (first..=end).contains(&at) => (at, false),
            Some(_) => (end, true),
        };
        let follower = Follower { events: Arc::clone(self), at, changed };
        let reset = lost.then(|| Followed::Reset(follower.place()));
        (follower, reset)
    }

    /// The number after the one in an id of this start of the server.
    fn after(&self, id: &str) -> Option<u64> {
        let (boot, number) = id.split_once('-')?;
        let boot: u64 = boot.parse().ok()?;
        let number: u64 = number.parse().ok()?;
        (boot == self.boot).then(|| number.checked_add(1)).flatten()
    }
}

impl Follower {
    /// The id of the last event that it has had.
    pub(crate) fn place(&self) -> String {
        match self.at.checked_sub(1) {
            Some(last) => self.events.id(last),
            // None yet: what comes after it is the first.
            None => self.events.id(u64::MAX),
        }
    }

    /// The next event, when there is one. Dropped while it waits, it loses nothing.
    pub(crate) async fn next(&mut self) -> Followed {
        loop {
            if let Some(followed) = self.try_next() {
                return followed;
            }
            let at = self.at;
            if self.changed.wait_for(|next| *next > at).await.is_err() {
                unreachable!("the events have their sender, and the follower has the events");
            }
        }
    }

    /// The next event, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<Followed> {
        let ring = self.events.ring();
        if self.at < ring.first {
            self.at = ring.end();
            drop(ring);
            return Some(Followed::Reset(self.place()));
        }
        let event = ring.events.get(usize::try_from(self.at - ring.first).ok()?)?;
        let event = Arc::clone(event);
        drop(ring);
        self.at += 1;
        Some(Followed::Event(event))
    }
}

/// An event about nothing yet.
pub(crate) fn event(id: String, event: EventKind, at: crate::wire::Timestamp) -> Event {
    Event {
        id,
        event,
        at,
        job: None,
        number: None,
        key: None,
        schedule: None,
        error: None,
        summary: None,
        timeline: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::*;
    use crate::wire::Timestamp;

    fn publish(events: &Events) {
        events.publish(|id| event(id, EventKind::KeyChanged, Timestamp(0)));
    }

    fn id(followed: Option<Followed>) -> String {
        match followed {
            Some(Followed::Event(event)) => event.id.clone(),
            Some(Followed::Reset(id)) => format!("reset {id}"),
            None => "nothing".into(),
        }
    }

    #[test]
    fn followers_get_everything_in_order_from_where_they_begin() {
        let events = Arc::new(Events::new(7));
        publish(&events);
        let (mut follower, reset) = events.follow(None);
        assert!(reset.is_none() && follower.try_next().is_none());
        publish(&events);
        publish(&events);
        assert_eq!(id(follower.try_next()), "7-1");
        assert_eq!(id(follower.try_next()), "7-2");
        assert_eq!(id(follower.try_next()), "nothing");
        let (mut again, reset) = events.follow(Some("7-0"));
        assert!(reset.is_none());
        assert_eq!(id(again.try_next()), "7-1");
    }

    #[test]
    fn who_asks_for_what_is_gone_or_unknown_is_told_to_begin_anew() {
        let events = Arc::new(Events::new(7));
        for _ in 0..KEPT + 5 {
            publish(&events);
        }
        for unknown in ["7-3", "6-10004", "7-99999", "nonsense", "", "7-18446744073709551615"] {
            let (mut follower, reset) = events.follow(Some(unknown));
            assert_eq!(id(reset), "reset 7-10004", "{unknown}");
            assert_eq!(id(follower.try_next()), "nothing");
        }
        let (mut follower, reset) = events.follow(Some("7-4"));
        assert!(reset.is_none());
        assert_eq!(id(follower.try_next()), "7-5");
    }

    #[test]
    fn who_is_too_slow_is_told_once_and_goes_on() {
        let events = Arc::new(Events::new(7));
        let (mut follower, _) = events.follow(None);
        for _ in 0..=KEPT {
            publish(&events);
        }
        assert_eq!(id(follower.try_next()), "reset 7-10000");
        assert_eq!(id(follower.try_next()), "nothing");
        publish(&events);
        assert_eq!(id(follower.try_next()), "7-10001");
    }

    /// The end of a job whose fan-in has made so many bytes.
    fn publish_result(events: &Events, bytes: usize) {
        let counts = json!({"total": 1, "waiting": 0, "ready": 0, "running": 0, "backing_off": 0,
            "succeeded": 1, "failed": 0, "cancelled": 0});
        let job: Job = serde_json::from_value(json!({
            "id": "job_1", "kind": "work", "labels": {}, "state": "succeeded", "weight": 1, "counts": counts,
            "progress": 1.0, "created_at": "2026-05-04T10:10:00.000Z", "version": 1,
        }))
        .unwrap();
        let result = RawValue::from_string(format!("\"{}\"", "x".repeat(bytes))).unwrap();
        let job = Some(Box::new(Job { result: Some(result), ..job }));
        events.publish(|id| Event { job, ..event(id, EventKind::JobEnded, Timestamp(0)) });
    }

    /// Only their number was bounded: ten thousand ends of jobs with 16 MiB of results each were kept.
    #[test]
    fn what_is_kept_is_bounded_by_its_bytes_as_well() {
        let events = Arc::new(Events::new(7));
        publish(&events);
        for _ in 0..4 {
            publish_result(&events, 10 << 20);
        }
        assert!(events.ring().bytes <= KEPT_BYTES);
        let (_, reset) = events.follow(Some("7-0"));
        assert_eq!(id(reset), "reset 7-4", "the one behind it has gone");
        let (mut follower, reset) = events.follow(Some("7-1"));
        assert!(reset.is_none());
        assert_eq!(id(follower.try_next()), "7-2");
        // One that is larger than all of it is there, and alone.
        publish_result(&events, KEPT_BYTES + 1);
        assert_eq!(id(follower.try_next()), "reset 7-5");
        let (mut follower, reset) = events.follow(Some("7-4"));
        assert!(reset.is_none());
        assert_eq!(id(follower.try_next()), "7-5");
        // With it goes all that it took.
        publish(&events);
        let ring = events.ring();
        let kept = ring.events.iter().map(|event| bytes_of(event)).sum::<usize>();
        assert_eq!((ring.events.len(), ring.bytes), (1, kept));
    }

    #[tokio::test]
    async fn who_waits_is_told() {
        let events = Arc::new(Events::new(7));
        let (mut follower, _) = events.follow(None);
        let waiting = tokio::spawn(async move { id(Some(follower.next().await)) });
        publish(&events);
        assert_eq!(waiting.await.unwrap(), "7-0");
    }
}
