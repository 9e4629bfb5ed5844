//! Stream of events for one client: initial events, then events as they happen, with comments that
//! keep the connection alive.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::connection_limits::StreamPermit;
use crate::engine::{
    Core, EventFollower, FeedReader, FollowedItem, FollowerText, JobFeed, event, sse_text,
};
use crate::wire::{Event, EventKind};

/// Optional parts of a stream: the summary once a second, and the timeline of attempts.
#[derive(Debug)]
pub(super) struct EventStreamOptions {
    summary: bool,
    timeline: bool,
    ticks: Interval,
    ticked: u32,
    /// Next position in the timeline.
    next: u64,
}

pub(super) fn told(core: &Core, followed: FollowedItem) -> Bytes {
    match followed {
        FollowedItem::Event(happened) => happened.text().clone(),
        FollowedItem::Reset(id) => reset(core, id),
    }
}

pub(super) fn reset(core: &Core, id: String) -> Bytes {
    sse_text(&event(id, EventKind::Reset, core.clock.now()))
}

/// Source of a stream's events.
pub(super) enum EventSource {
    All {
        follower: EventFollower,
        /// Boxed, because most streams have none.
        live: Option<Box<EventStreamOptions>>,
    },
    Job {
        /// Subscription to the job's changes, released on drop.
        _feed: JobFeed,
        reader: FeedReader,
    },
}

/// Stream of events for one client.
pub(super) struct EventStream {
    pub(super) core: Arc<Core>,
    pub(super) closing: CancellationToken,
    pub(super) source: EventSource,
    /// EventStream to send first, in reverse order.
    pub(super) first: Vec<Bytes>,
    pub(super) pings: Interval,
    /// Permit of the stream, released on drop.
    pub(super) _place: StreamPermit,
}

impl fmt::Debug for EventStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStream").finish_non_exhaustive()
    }
}

impl EventStream {
    /// Takes the next of the initial events.
    pub(super) fn take_first(&mut self) -> Option<Bytes> {
        let first = self.first.pop();
        self.first.shrink_to_fit();
        first
    }

    /// Returns the next event, or `None` when the server stops or the token is revoked. Cancel
    /// safe: no event is lost.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        if let Some(first) = self.take_first() {
            return Some(first);
        }
        let EventStream { core, closing, source, pings, .. } = self;
        tokio::select! {
            text = source.next(core) => Some(text),
            _ = pings.tick() => Some(Bytes::from_static(b":\n\n")),
            () = closing.cancelled() => None,
        }
    }
}

impl EventSource {
    async fn next(&mut self, core: &Arc<Core>) -> Bytes {
        match self {
            EventSource::Job { reader, .. } => told(core, reader.next().await),
            EventSource::All { follower, live: None } => all_told(core, follower.next().await),
            EventSource::All { follower, live: Some(live) } => {
                let said = tokio::select! {
                    said = follower.next() => Some(said),
                    _ = live.ticks.tick() => None,
                };
                match said {
                    Some(said) => all_told(core, said),
                    None => live.show(core, &follower.place()),
                }
            }
        }
    }
}

fn all_told(core: &Core, said: FollowerText) -> Bytes {
    match said {
        FollowerText::Text(text) => text,
        FollowerText::Reset(id) => reset(core, id),
    }
}

impl EventStreamOptions {
    pub(super) fn new(summary: bool, timeline: bool) -> Self {
        let mut ticks = interval(Duration::from_millis(500));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        EventStreamOptions { summary, timeline, ticks, ticked: 0, next: 0 }
    }

    fn show(&mut self, core: &Core, place: &str) -> Bytes {
        let now = core.clock.now();
        let is_second = self.ticked.is_multiple_of(2);
        self.ticked = self.ticked.wrapping_add(1);
        let mut text = Vec::new();
        if self.summary && is_second {
            let summary = Some(Box::new(core.query.summary()));
            let plain = event(place.to_owned(), EventKind::Summary, now);
            text.extend_from_slice(&sse_text(&Event { summary, ..plain }));
        }
        if self.timeline {
            let timeline = core.query.timeline_after(self.next);
            self.next = timeline.next;
            let plain = event(place.to_owned(), EventKind::Timeline, now);
            let timeline = Some(Box::new(timeline));
            text.extend_from_slice(&sse_text(&Event { timeline, ..plain }));
        }
        text.into()
    }
}
