//! What happened lately, for those who follow it: a ring of events that all followers read at their own pace.
//!
//! A follower of everything has no queue of its own, so a slow one costs no memory and holds no other up. One that is so
//! slow that the ring has gone on without it is told to look at everything anew. The ring is bounded by the number of
//! events and by their bytes, and the oldest go first. Followers of single jobs are in `feeds.rs`.
//!
//! # Protocol
//!
//! 1. **To publish costs the same whatever is followed**, for it is done with the books locked, often on the writer's
//!    thread: the event goes into the ring, and the distributor is woken.
//! 2. **The distributor**, one task, does what depends on followers. It gives each event to the feeds of its job, and
//!    tells the followers of everything, which stand in [`GROUPS`] groups, how far the ring goes. With many followers it
//!    tells one group after the other, spread over up to [`MAX_DELAY`], so that other work comes in between.
//! 3. **An event is written as text once**, when the first follower sends it, and a group's events since the last time
//!    are put together once. A follower that has had all before takes these bytes as they are.
//!
//! Nothing is missed: the distributor looks at the end of the ring after it was woken, each publication wakes it after
//! it has changed the ring, and it sleeps only when all groups have been told of the end.

use std::collections::VecDeque;
use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::feeds::Feeds;
use crate::wire::{Event, EventKind, Job};
use crate::{JobId, JobNumber};

/// Events that are kept: at some hundred a second, for those who were away for half a minute.
const KEPT: usize = 10_000;

/// Bytes that they take together, about: several times what so many take that have no result. The end of a job has
/// what its fan-in has made, which may be many megabytes. The newest is kept however large it is, for those who follow.
const KEPT_BYTES: usize = 32 * 1024 * 1024;

/// Groups of followers that are told one after the other.
const GROUPS: usize = 16;

/// Longest time in which all groups are told.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// Time that each follower adds to the round in which all are told, up to [`MAX_DELAY`]. To wake a follower and to write
/// to its connection takes some 20 µs of a processor, so that followers take less than a tenth of one until the rounds
/// have their full length, at a thousand followers.
const EACH: Duration = Duration::from_micros(250);

/// Bytes and events that a follower is given at a time.
const BATCH_BYTES: usize = 256 * 1024;
const BATCH: usize = 1024;

/// Where all events are published.
#[derive(Debug)]
pub(crate) struct Events {
    /// The number of the server's start, so that an id of an earlier one is known as such.
    boot: u64,
    ring: Mutex<Ring>,
    /// Wakes the distributor.
    published: Notify,
    groups: Vec<Group>,
    /// The group of the next follower.
    next_group: AtomicUsize,
    pub(super) feeds: Feeds,
}

/// Followers of everything that are told at the same time.
#[derive(Debug)]
struct Group {
    /// One past the last event that they were told of.
    told: watch::Sender<u64>,
    /// What they were told of last, as text.
    last: Mutex<Batch>,
}

/// Events from one place of the ring to another, as text.
#[derive(Clone, Debug, Default)]
struct Batch {
    from: u64,
    to: u64,
    text: Bytes,
}

#[derive(Debug, Default)]
struct Ring {
    /// The number of the first event that is kept.
    first: u64,
    events: VecDeque<Arc<Happened>>,
    /// What they take together: the sum of [`bytes_of`] each.
    bytes: usize,
}

/// An event, and its text once it was sent.
#[derive(Debug)]
pub(crate) struct Happened {
    event: Event,
    /// Its number in the ring.
    pub(super) number: u64,
    /// The number of its job.
    pub(super) of: Option<JobNumber>,
    text: OnceLock<Bytes>,
}

impl Deref for Happened {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl Happened {
    fn new(event: Event, number: u64) -> Self {
        let of = event.job.as_ref().and_then(|job| JobId::parse(&job.id)).map(|id| id.number());
        Happened { event, number, of, text: OnceLock::new() }
    }

    /// As it is sent by server-sent events.
    pub(crate) fn text(&self) -> &Bytes {
        self.text.get_or_init(|| sse_text(&self.event))
    }

    /// About how many bytes it takes.
    pub(super) fn bytes(&self) -> usize {
        bytes_of(&self.event)
    }
}

/// An event as server-sent events have it. Line ends in what a step has returned are white space of its JSON.
pub(crate) fn sse_text(event: &Event) -> Bytes {
    let data = serde_json::to_string(event).expect("an event can be written as JSON");
    let mut text = format!("id: {}\nevent: {}\n", event.id, event.event.as_str());
    for line in data.split(['\n', '\r']) {
        text.push_str("data: ");
        text.push_str(line);
        text.push('\n');
    }
    text.push('\n');
    text.into()
}

impl Ring {
    /// The number of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Keeps one more, and gives back those that go for it: to be dropped without the lock.
    fn push(&mut self, event: Arc<Happened>) -> Vec<Arc<Happened>> {
        self.bytes += event.bytes();
        self.events.push_back(event);
        let mut gone = Vec::new();
        while self.events.len() > KEPT || (self.bytes > KEPT_BYTES && self.events.len() > 1) {
            let oldest = self.events.pop_front().expect("there is more than one");
            self.bytes -= oldest.bytes();
            self.first += 1;
            gone.push(oldest);
        }
        gone
    }

    /// Events from a place on, up to another, at most a batch; `None` if some of them are gone.
    fn range(&self, from: u64, to: u64) -> Option<Vec<Arc<Happened>>> {
        let skipped = usize::try_from(from.checked_sub(self.first)?).ok()?;
        let most = usize::try_from(to.saturating_sub(from)).unwrap_or(BATCH).min(BATCH);
        let mut bytes = 0;
        let fits = |event: &&Arc<Happened>| {
            let is_first = bytes == 0;
            bytes += event.bytes();
            is_first || bytes <= BATCH_BYTES
        };
        let events = self.events.iter().skip(skipped).take(most).take_while(fits);
        Some(events.cloned().collect())
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

/// A place among the events, from which a follower of everything reads on.
#[derive(Debug)]
pub(crate) struct Follower {
    events: Arc<Events>,
    at: u64,
    group: usize,
    told: watch::Receiver<u64>,
}

/// What a follower gets.
#[derive(Clone, Debug)]
pub(crate) enum Followed {
    /// The next event.
    Event(Arc<Happened>),
    /// Events are missing here: what was known must be asked for again. The id is where it goes on.
    Reset(String),
}

/// What a follower of everything sends next.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// Some events, in order, as text.
    Text(Bytes),
    /// As [`Followed::Reset`].
    Reset(String),
}

impl Events {
    pub(crate) fn new(boot: u64) -> Self {
        let group = || Group { told: watch::channel(0).0, last: Mutex::default() };
        Events {
            boot,
            ring: Mutex::default(),
            published: Notify::new(),
            groups: (0..GROUPS).map(|_| group()).collect(),
            next_group: AtomicUsize::new(0),
            feeds: Feeds::default(),
        }
    }

    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.boot)
    }

    /// The id of the event before a place.
    pub(crate) fn id_before(&self, place: u64) -> String {
        // None yet: what comes after it is the first.
        self.id(place.checked_sub(1).unwrap_or(u64::MAX))
    }

    /// The number of the next event.
    pub(crate) fn end(&self) -> u64 {
        self.ring().end()
    }

    /// Whether something follows a job, or everything.
    pub(super) fn is_followed(&self, job: JobNumber) -> bool {
        self.groups.iter().any(|group| group.told.receiver_count() > 0) || self.feeds.has(job)
    }

    /// Publishes what is made of its id.
    pub(crate) fn publish(&self, event: impl FnOnce(String) -> Event) {
        let mut ring = self.ring();
        let number = ring.end();
        let gone = ring.push(Arc::new(Happened::new(event(self.id(number)), number)));
        drop(ring);
        drop(gone);
        self.published.notify_one();
    }

    /// Tells followers of what is published, until the service stops. One task does it.
    pub(crate) async fn distribute(self: Arc<Self>, stopped: CancellationToken) {
        let mut fed = 0;
        loop {
            tokio::select! {
                () = self.published.notified() => {}
                () = stopped.cancelled() => return,
            }
            let mut behind = true;
            while behind {
                behind = false;
                for group in &self.groups {
                    fed = self.feed(fed);
                    let followers = self.groups.iter().map(|group| group.told.receiver_count());
                    let followers = followers.sum::<usize>() + self.feeds.count();
                    behind |= self.tell(group);
                    let each = u32::try_from(followers).unwrap_or(u32::MAX);
                    let delay = EACH.saturating_mul(each).min(MAX_DELAY) / GROUPS as u32;
                    // What takes less would only be rounded up.
                    if delay >= Duration::from_millis(1) {
                        tokio::time::sleep(delay).await;
                    }
                }
                behind |= self.end() > fed;
            }
        }
    }

    /// Gives the feeds what has come since a place. Returns the place behind that.
    fn feed(&self, from: u64) -> u64 {
        let mut at = from;
        loop {
            let (events, first, end) = {
                let ring = self.ring();
                (ring.range(at, u64::MAX), ring.first, ring.end())
            };
            match events {
                Some(events) if events.is_empty() => return end,
                Some(events) => {
                    at += events.len() as u64;
                    events.iter().for_each(|event| self.feeds.give(event, first));
                }
                // More was published than is kept, before it was distributed.
                None => {
                    at = first;
                    self.feeds.lose_all(first);
                }
            }
        }
    }

    /// Tells a group how far the ring goes. Whether that was news.
    fn tell(&self, group: &Group) -> bool {
        let from = *group.told.borrow();
        let (events, end) = {
            let ring = self.ring();
            (ring.range(from, u64::MAX), ring.end())
        };
        if from == end {
            return false;
        }
        if group.told.receiver_count() > 0
            && let Some(events) = events
        {
            let batch = Batch { from, to: from + events.len() as u64, text: joined(&events) };
            *group.last.lock().unwrap_or_else(PoisonError::into_inner) = batch;
        }
        group.told.send_replace(end);
        true
    }

    /// Follows everything from now on; or from after the event of this id, if it is still known.
    pub(crate) fn follow(self: &Arc<Self>, after: Option<&str>) -> (Follower, Option<Followed>) {
        let group = self.next_group.fetch_add(1, Relaxed) % GROUPS;
        let told = self.groups[group].told.subscribe();
        let (at, lost) = self.place_after(after);
        let follower = Follower { events: Arc::clone(self), at, group, told };
        let reset = lost.then(|| Followed::Reset(follower.place()));
        (follower, reset)
    }

    /// The place after the event of this id, or the end; and whether events between are no longer known.
    pub(crate) fn place_after(&self, after: Option<&str>) -> (u64, bool) {
        let (first, end) = {
            let ring = self.ring();
            (ring.first, ring.end())
        };
        match after.map(|id| self.after(id)) {
            None => (end, false),
            Some(Some(at)) if (first..=end).contains(&at) => (at, false),
            Some(_) => (end, true),
        }
    }

    /// The events of a job from a place on, as far as they are known, and the end.
    pub(super) fn of_job(&self, job: JobNumber, from: u64) -> (Vec<Arc<Happened>>, u64) {
        let ring = self.ring();
        let skipped = usize::try_from(from.saturating_sub(ring.first)).unwrap_or(usize::MAX);
        let events = ring.events.iter().skip(skipped).filter(|event| event.of == Some(job));
        (events.cloned().collect(), ring.end())
    }

    /// The number after the one in an id of this start of the server.
    fn after(&self, id: &str) -> Option<u64> {
        let (boot, number) = id.split_once('-')?;
        let boot: u64 = boot.parse().ok()?;
        let number: u64 = number.parse().ok()?;
        (boot == self.boot).then(|| number.checked_add(1)).flatten()
    }
}

fn joined(events: &[Arc<Happened>]) -> Bytes {
    if let [one] = events {
        return one.text().clone();
    }
    let mut text = Vec::with_capacity(events.iter().map(|event| event.text().len()).sum());
    events.iter().for_each(|event| text.extend_from_slice(event.text()));
    text.into()
}

impl Follower {
    /// The id of the last event that it has had.
    pub(crate) fn place(&self) -> String {
        self.events.id_before(self.at)
    }

    /// The next events, when there are some. Dropped while it waits, it loses nothing.
    pub(crate) async fn next(&mut self) -> Said {
        loop {
            let told = *self.told.borrow_and_update();
            if let Some(said) = self.next_up_to(told) {
                return said;
            }
            if self.told.changed().await.is_err() {
                unreachable!("the events have their senders, and the follower has the events");
            }
        }
    }

    fn next_up_to(&mut self, told: u64) -> Option<Said> {
        if self.at >= told {
            return None;
        }
        let last = self.events.groups[self.group].last.lock();
        let last = last.unwrap_or_else(PoisonError::into_inner).clone();
        if last.from == self.at && last.to > last.from {
            self.at = last.to;
            return Some(Said::Text(last.text));
        }
        let ring = self.events.ring();
        let Some(events) = ring.range(self.at, told) else {
            self.at = ring.end();
            drop(ring);
            return Some(Said::Reset(self.place()));
        };
        drop(ring);
        self.at += events.len() as u64;
        Some(Said::Text(joined(&events)))
    }

    /// The next event, if there is one, whether the distributor has told of it or not.
    #[cfg(test)]
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
        let kept = ring.events.iter().map(|event| event.bytes()).sum::<usize>();
        assert_eq!((ring.events.len(), ring.bytes), (1, kept));
    }

    fn text(said: &Said) -> String {
        match said {
            Said::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            Said::Reset(id) => format!("reset {id}"),
        }
    }

    #[tokio::test]
    async fn who_waits_is_told() {
        let events = Arc::new(Events::new(7));
        tokio::spawn(Arc::clone(&events).distribute(CancellationToken::new()));
        let (mut follower, _) = events.follow(None);
        let waiting = tokio::spawn(async move { follower.next().await });
        publish(&events);
        let said = text(&waiting.await.unwrap());
        assert!(said.starts_with("id: 7-0\nevent: key_changed\ndata: {"), "{said}");
        assert!(said.ends_with("}\n\n"), "{said}");
    }

    /// Each follower had each event written anew, and was woken by each.
    #[tokio::test]
    async fn all_followers_of_a_group_send_the_same_bytes() {
        let events = Arc::new(Events::new(7));
        let mut followers: Vec<_> = (0..GROUPS * 2).map(|_| events.follow(None).0).collect();
        (0..5).for_each(|_| publish(&events));
        events.groups.iter().for_each(|group| assert!(events.tell(group)));
        let mut texts = Vec::new();
        for follower in &mut followers {
            let Said::Text(text) = follower.next().await else { panic!("nothing is missing") };
            assert_eq!(text.windows(4).filter(|four| four == b"id: ").count(), 5);
            texts.push(text);
        }
        let (one, other) = texts.split_at(GROUPS);
        assert!(one.iter().zip(other).all(|(one, other)| one.as_ptr() == other.as_ptr()));
    }

    #[tokio::test]
    async fn a_slow_follower_goes_on_where_it_was_or_is_told_that_it_cannot() {
        let events = Arc::new(Events::new(7));
        let (mut slow, _) = events.follow(None);
        for _ in 0..3 {
            publish(&events);
            events.groups.iter().for_each(|group| assert!(events.tell(group)));
        }
        let said = text(&slow.next().await);
        assert_eq!(said.matches("id: ").count(), 3, "{said}");
        for _ in 0..=KEPT {
            publish(&events);
        }
        events.groups.iter().for_each(|group| assert!(events.tell(group)));
        assert_eq!(text(&slow.next().await), format!("reset 7-{}", KEPT + 3));
    }

    /// A carriage return in what a fan-in has made would end a line of the event.
    #[test]
    fn line_ends_in_a_result_do_not_break_an_event() {
        let key = Some("a".into());
        let event = Event { key, ..event("1-1".into(), EventKind::KeyChanged, Timestamp(0)) };
        let text = String::from_utf8(sse_text(&event).to_vec()).unwrap();
        assert!(
            !text.contains('\r') && text.lines().all(|line| line.is_empty() || line.contains(": "))
        );
    }
}
