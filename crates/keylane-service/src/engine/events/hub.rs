//! Recent events of all jobs, kept in a bounded ring that every follower reads at its own pace.
//!
//! A follower of all events has no queue of its own, so a slow follower costs no memory and delays
//! no other. A follower that the ring has overtaken gets a reset and must read the current state
//! again. The ring is bounded by the number of events and by their bytes; the oldest events are
//! removed first. Followers of single jobs are in `feed.rs`.
//!
//! # Protocol
//!
//! 1. **The cost of a publication does not depend on the number of followers**, because it happens
//!    under the lock of the engine state, often on the writer's thread: the event enters the ring,
//!    and the distributor is woken.
//! 2. **The distributor**, one task, does the work per follower. It passes each event to the feeds
//!    of its job, and reports the end of the ring to the followers of all events, in [`GROUPS`]
//!    groups. With many followers it notifies one group after another, spread over at most
//!    [`MAX_DELAY`], so that other work runs in between.
//! 3. **An event is serialized once**, when the first follower sends it, and the events of a group
//!    since its last notification are joined once. A follower that has sent all earlier events
//!    reuses these bytes.
//!
//! No event is missed: the distributor reads the end of the ring after each wake-up, each
//! publication wakes it after changing the ring, and it sleeps only when every group has been
//! notified of the end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use super::queues::JobFeeds;
use super::ring_event::{FollowedItem, RingEvent};
use crate::JobNumber;
use crate::engine::timer::sleep;
use crate::wire::Event;

/// Maximum number of events in the ring: at a few hundred events per second, enough for a
/// disconnection of half a minute.
const MAX_EVENTS: usize = 10_000;

/// Approximate maximum size of the ring, in bytes: several times the size of [`MAX_EVENTS`] events
/// without a result. The event for the end of a job contains the result of its fan-in, which may
/// have many megabytes. The newest event is kept whatever its size, for the current followers.
const MAX_EVENT_BYTES: usize = 32 * 1024 * 1024;

/// Number of groups of followers. Groups are notified one after another.
const GROUPS: usize = 16;

/// Maximum duration of a round that notifies all groups.
const MAX_DELAY: Duration = Duration::from_millis(250);

/// Duration that each follower adds to a notification round, up to [`MAX_DELAY`]. Waking a follower
/// and writing to its connection takes about 20 µs of CPU time, so followers use less than a tenth
/// of a core until rounds reach their full length, at a thousand followers.
const EACH: Duration = Duration::from_micros(250);

/// Maximum size in bytes, and maximum number of events, that a follower gets at a time.
const BATCH_BYTES: usize = 256 * 1024;
const BATCH: usize = 1024;

/// Hub to which all events are published.
#[derive(Debug)]
pub(crate) struct EventHub {
    /// Number of the server's start. It distinguishes the ids of an earlier start.
    boot: u64,
    ring: Mutex<EventRing>,
    /// Wakes the distributor.
    published: Notify,
    groups: Vec<FollowerGroup>,
    /// Group of the next follower.
    next_group: AtomicUsize,
    pub(super) feeds: JobFeeds,
}

/// Followers of all events that are notified together.
#[derive(Debug)]
struct FollowerGroup {
    /// End of the published events: one past the last event that the group was notified of.
    notified_end: watch::Sender<u64>,
    /// Events of the last notification, as text.
    last: Mutex<EventBatch>,
}

/// Range of the ring, as text.
#[derive(Clone, Debug, Default)]
struct EventBatch {
    from: u64,
    to: u64,
    text: Bytes,
}

#[derive(Debug, Default)]
struct EventRing {
    /// Number of the oldest event in the ring.
    first: u64,
    events: VecDeque<Arc<RingEvent>>,
    /// Total size of the events: the sum of [`RingEvent::bytes`] over all of them.
    bytes: usize,
}

impl EventRing {
    /// Returns the number of the next event.
    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Adds an event, and returns the events that it displaced, so that the caller drops them
    /// without the lock.
    fn push(&mut self, event: Arc<RingEvent>) -> Vec<Arc<RingEvent>> {
        self.bytes += event.bytes();
        self.events.push_back(event);
        let mut gone = Vec::new();
        while self.events.len() > MAX_EVENTS
            || (self.bytes > MAX_EVENT_BYTES && self.events.len() > 1)
        {
            let oldest = self.events.pop_front().expect("the ring has more than one event");
            self.bytes -= oldest.bytes();
            self.first += 1;
            gone.push(oldest);
        }
        gone
    }

    /// Returns the events from `from` up to `to`, at most one batch; `None` if some of them were
    /// removed.
    fn range(&self, from: u64, to: u64) -> Option<Vec<Arc<RingEvent>>> {
        let skipped = usize::try_from(from.checked_sub(self.first)?).ok()?;
        let most = usize::try_from(to.saturating_sub(from)).unwrap_or(BATCH).min(BATCH);
        let mut bytes = 0;
        let fits = |event: &&Arc<RingEvent>| {
            let is_first = bytes == 0;
            bytes += event.bytes();
            is_first || bytes <= BATCH_BYTES
        };
        let events = self.events.iter().skip(skipped).take(most).take_while(fits);
        Some(events.cloned().collect())
    }
}

/// A reader of all events, with its position in the ring.
#[derive(Debug)]
pub(crate) struct EventFollower {
    events: Arc<EventHub>,
    at: u64,
    group: usize,
    notified_end: watch::Receiver<u64>,
}

/// Next text that a follower of all events sends.
#[derive(Clone, Debug)]
pub(crate) enum FollowerText {
    /// One or more events, in order, as text.
    Text(Bytes),
    /// Events are missing, see [`FollowedItem::Reset`].
    Reset(String),
}

impl EventHub {
    pub(crate) fn new(boot: u64) -> Self {
        let group = || FollowerGroup { notified_end: watch::channel(0).0, last: Mutex::default() };
        EventHub {
            boot,
            ring: Mutex::default(),
            published: Notify::new(),
            groups: (0..GROUPS).map(|_| group()).collect(),
            next_group: AtomicUsize::new(0),
            feeds: JobFeeds::default(),
        }
    }

    fn ring(&self) -> MutexGuard<'_, EventRing> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn id(&self, number: u64) -> String {
        format!("{}-{number}", self.boot)
    }

    /// Returns the id of the event before position `place`.
    pub(crate) fn id_before(&self, place: u64) -> String {
        // There is no earlier event, so this id must be the one before number 0.
        self.id(place.checked_sub(1).unwrap_or(u64::MAX))
    }

    /// Returns the number of the next event.
    pub(crate) fn end(&self) -> u64 {
        self.ring().end()
    }

    /// Returns true if a follower of this job or of all events exists.
    pub(in crate::engine) fn is_followed(&self, job: JobNumber) -> bool {
        self.groups.iter().any(|group| group.notified_end.receiver_count() > 0)
            || self.feeds.has(job)
    }

    /// Publishes the event that `event` builds from its id.
    pub(crate) fn publish(&self, event: impl FnOnce(String) -> Event) {
        let mut ring = self.ring();
        let number = ring.end();
        let gone = ring.push(Arc::new(RingEvent::new(event(self.id(number)), number)));
        drop(ring);
        drop(gone);
        self.published.notify_one();
    }

    /// Notifies followers of published events until the service stops. Run by exactly one task.
    pub(crate) async fn distribute(self: Arc<Self>, stopped: CancellationToken) {
        let mut fed = 0;
        loop {
            tokio::select! {
                biased;
                () = stopped.cancelled() => return,
                () = self.published.notified() => {}
            }
            let mut behind = true;
            while behind {
                behind = false;
                for group in &self.groups {
                    fed = self.feed(fed);
                    let followers =
                        self.groups.iter().map(|group| group.notified_end.receiver_count());
                    let followers = followers.sum::<usize>() + self.feeds.count();
                    behind |= self.notify(group);
                    let each = u32::try_from(followers).unwrap_or(u32::MAX);
                    let delay = EACH.saturating_mul(each).min(MAX_DELAY) / GROUPS as u32;
                    // A shorter delay would only be rounded up by the timer.
                    if delay >= Duration::from_millis(1) {
                        sleep(delay).await;
                    }
                }
                behind |= self.end() > fed;
            }
        }
    }

    /// Passes the events from `from` on to the feeds. Returns the position behind the last one.
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
                // The ring removed events before they were distributed: publication was faster.
                None => {
                    at = first;
                    self.feeds.lose_all(first);
                }
            }
        }
    }

    /// Notifies a group of the end of the ring. Returns true if the end was new to it.
    fn notify(&self, group: &FollowerGroup) -> bool {
        let from = *group.notified_end.borrow();
        let (events, end) = {
            let ring = self.ring();
            (ring.range(from, u64::MAX), ring.end())
        };
        if from == end {
            return false;
        }
        if group.notified_end.receiver_count() > 0
            && let Some(events) = events
        {
            let batch = EventBatch { from, to: from + events.len() as u64, text: joined(&events) };
            *group.last.lock().unwrap_or_else(PoisonError::into_inner) = batch;
        }
        group.notified_end.send_replace(end);
        true
    }

    /// Follows all events from now on, or after the event with id `after` if it is still known.
    pub(crate) fn follow(
        self: &Arc<Self>,
        after: Option<&str>,
    ) -> (EventFollower, Option<FollowedItem>) {
        let group = self.next_group.fetch_add(1, Relaxed) % GROUPS;
        let notified_end = self.groups[group].notified_end.subscribe();
        let (at, lost) = self.place_after(after);
        let follower = EventFollower { events: Arc::clone(self), at, group, notified_end };
        let reset = lost.then(|| FollowedItem::Reset(follower.place()));
        (follower, reset)
    }

    /// Returns the position after the event with id `after`, or the end; and true if events in
    /// between are no longer known.
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

    /// Returns the known events of a job from position `from` on, and the end of the ring.
    pub(super) fn of_job(&self, job: JobNumber, from: u64) -> (Vec<Arc<RingEvent>>, u64) {
        let ring = self.ring();
        let skipped = usize::try_from(from.saturating_sub(ring.first)).unwrap_or(usize::MAX);
        let events = ring.events.iter().skip(skipped).filter(|event| event.of == Some(job));
        (events.cloned().collect(), ring.end())
    }

    /// Returns the number after the one in `id`, if the id is of this start of the server.
    fn after(&self, id: &str) -> Option<u64> {
        let (boot, number) = id.split_once('-')?;
        let boot: u64 = boot.parse().ok()?;
        let number: u64 = number.parse().ok()?;
        (boot == self.boot).then(|| number.checked_add(1)).flatten()
    }
}

fn joined(events: &[Arc<RingEvent>]) -> Bytes {
    if let [one] = events {
        return one.text().clone();
    }
    let mut text = Vec::with_capacity(events.iter().map(|event| event.text().len()).sum());
    events.iter().for_each(|event| text.extend_from_slice(event.text()));
    text.into()
}

impl EventFollower {
    /// Returns the id of the last event that the follower has read.
    pub(crate) fn place(&self) -> String {
        self.events.id_before(self.at)
    }

    /// Waits for the next events. Cancel safe: no event is lost if the future is dropped.
    pub(crate) async fn next(&mut self) -> FollowerText {
        loop {
            let notified_end = *self.notified_end.borrow_and_update();
            if let Some(said) = self.next_up_to(notified_end) {
                return said;
            }
            if self.notified_end.changed().await.is_err() {
                unreachable!("the follower owns the events, which own the senders");
            }
        }
    }

    fn next_up_to(&mut self, notified_end: u64) -> Option<FollowerText> {
        if self.at >= notified_end {
            return None;
        }
        let last = self.events.groups[self.group].last.lock();
        let last = last.unwrap_or_else(PoisonError::into_inner).clone();
        if last.from == self.at && last.to > last.from {
            self.at = last.to;
            return Some(FollowerText::Text(last.text));
        }
        let ring = self.events.ring();
        let Some(events) = ring.range(self.at, notified_end) else {
            self.at = ring.end();
            drop(ring);
            return Some(FollowerText::Reset(self.place()));
        };
        drop(ring);
        self.at += events.len() as u64;
        Some(FollowerText::Text(joined(&events)))
    }

    /// Returns the next event, if there is one, even before the distributor has notified this
    /// follower.
    #[cfg(test)]
    pub(crate) fn try_next(&mut self) -> Option<FollowedItem> {
        let ring = self.events.ring();
        if self.at < ring.first {
            self.at = ring.end();
            drop(ring);
            return Some(FollowedItem::Reset(self.place()));
        }
        let event = ring.events.get(usize::try_from(self.at - ring.first).ok()?)?;
        let event = Arc::clone(event);
        drop(ring);
        self.at += 1;
        Some(FollowedItem::Event(event))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use serde_json::value::RawValue;

    use super::super::ring_event::{event, sse_text};
    use super::*;
    use crate::wire::{EventKind, Job, Timestamp};

    fn publish(events: &EventHub) {
        events.publish(|id| event(id, EventKind::KeyChanged, Timestamp(0)));
    }

    fn id(followed: Option<FollowedItem>) -> String {
        match followed {
            Some(FollowedItem::Event(event)) => event.id.clone(),
            Some(FollowedItem::Reset(id)) => format!("reset {id}"),
            None => "nothing".into(),
        }
    }

    #[test]
    fn followers_get_everything_in_order_from_where_they_begin() {
        let events = Arc::new(EventHub::new(7));
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
        let events = Arc::new(EventHub::new(7));
        for _ in 0..MAX_EVENTS + 5 {
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
        let events = Arc::new(EventHub::new(7));
        let (mut follower, _) = events.follow(None);
        for _ in 0..=MAX_EVENTS {
            publish(&events);
        }
        assert_eq!(id(follower.try_next()), "reset 7-10000");
        assert_eq!(id(follower.try_next()), "nothing");
        publish(&events);
        assert_eq!(id(follower.try_next()), "7-10001");
    }

    /// Publishes the end of a job whose fan-in result has `bytes` bytes.
    fn publish_result(events: &EventHub, bytes: usize) {
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

    /// Regression: with a bound on their number only, ten thousand job ends with results of 16 MiB
    /// each were kept.
    #[test]
    fn what_is_kept_is_bounded_by_its_bytes_as_well() {
        let events = Arc::new(EventHub::new(7));
        publish(&events);
        for _ in 0..4 {
            publish_result(&events, 10 << 20);
        }
        assert!(events.ring().bytes <= MAX_EVENT_BYTES);
        let (_, reset) = events.follow(Some("7-0"));
        assert_eq!(id(reset), "reset 7-4", "the one behind it has gone");
        let (mut follower, reset) = events.follow(Some("7-1"));
        assert!(reset.is_none());
        assert_eq!(id(follower.try_next()), "7-2");
        // An event that is larger than the bound is kept, alone.
        publish_result(&events, MAX_EVENT_BYTES + 1);
        assert_eq!(id(follower.try_next()), "reset 7-5");
        let (mut follower, reset) = events.follow(Some("7-4"));
        assert!(reset.is_none());
        assert_eq!(id(follower.try_next()), "7-5");
        // Its removal releases all of its bytes.
        publish(&events);
        let ring = events.ring();
        let kept = ring.events.iter().map(|event| event.bytes()).sum::<usize>();
        assert_eq!((ring.events.len(), ring.bytes), (1, kept));
    }

    fn text(said: &FollowerText) -> String {
        match said {
            FollowerText::Text(text) => String::from_utf8(text.to_vec()).unwrap(),
            FollowerText::Reset(id) => format!("reset {id}"),
        }
    }

    #[tokio::test]
    async fn who_waits_is_told() {
        let events = Arc::new(EventHub::new(7));
        tokio::spawn(Arc::clone(&events).distribute(CancellationToken::new()));
        let (mut follower, _) = events.follow(None);
        let waiting = tokio::spawn(async move { follower.next().await });
        publish(&events);
        let said = text(&waiting.await.unwrap());
        assert!(said.starts_with("id: 7-0\nevent: key_changed\ndata: {"), "{said}");
        assert!(said.ends_with("}\n\n"), "{said}");
    }

    /// Regression: each follower serialized each event, and was woken by each.
    #[tokio::test]
    async fn all_followers_of_a_group_send_the_same_bytes() {
        let events = Arc::new(EventHub::new(7));
        let mut followers: Vec<_> = (0..GROUPS * 2).map(|_| events.follow(None).0).collect();
        (0..5).for_each(|_| publish(&events));
        events.groups.iter().for_each(|group| assert!(events.notify(group)));
        let mut texts = Vec::new();
        for follower in &mut followers {
            let FollowerText::Text(text) = follower.next().await else {
                panic!("nothing is missing")
            };
            assert_eq!(text.windows(4).filter(|four| four == b"id: ").count(), 5);
            texts.push(text);
        }
        let (one, other) = texts.split_at(GROUPS);
        assert!(one.iter().zip(other).all(|(one, other)| one.as_ptr() == other.as_ptr()));
    }

    #[tokio::test]
    async fn a_slow_follower_goes_on_where_it_was_or_is_told_that_it_cannot() {
        let events = Arc::new(EventHub::new(7));
        let (mut slow, _) = events.follow(None);
        for _ in 0..3 {
            publish(&events);
            events.groups.iter().for_each(|group| assert!(events.notify(group)));
        }
        let said = text(&slow.next().await);
        assert_eq!(said.matches("id: ").count(), 3, "{said}");
        for _ in 0..=MAX_EVENTS {
            publish(&events);
        }
        events.groups.iter().for_each(|group| assert!(events.notify(group)));
        assert_eq!(text(&slow.next().await), format!("reset 7-{}", MAX_EVENTS + 3));
    }

    /// A carriage return in a fan-in result would end a line of the event.
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
