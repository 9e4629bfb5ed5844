//! `/v1/events` and `/v1/jobs/{id}/events`: server-sent events as they happen, without a queue per
//! client.
//!
//! A stream has no queue. Its connection requests the next event when it has room, so a slow reader
//! delays its own stream only. Events missed meanwhile are in the ring buffer; if they have left
//! it, the client receives a reset and must query again. A stream takes its connection over from
//! the HTTP library: see `takeover.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State as Shared;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, header};
use axum::response::Response;
use axum::routing::get;
use serde::Deserialize;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, interval_at};
use tokio_util::sync::CancellationToken;

use super::AppState;
use super::extract::{Reader, query};
use super::jobs::OfJob;
use super::places::{self, StreamPermit};
use super::problem::ApiError;
use super::takeover::{self, FirstPart};
use crate::engine::{
    Core, Feed, Followed, Follower, FollowerText, Reader as FeedReader, event, sse_text,
};
use crate::wire::{Event, EventKind, Job};

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/events", get(all)).route("/v1/jobs/{id}/events", get(of_job))
}

/// Interval of the comments that keep the connection alive.
const PING: Duration = Duration::from_secs(15);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells proxies not to buffer, which would delay events.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// `summary` and `timeline`, separated by commas.
    include: Option<String>,
    /// Last received event, as in the header `Last-Event-ID`.
    after: Option<String>,
}

/// Optional parts of a stream: the summary once a second, and the timeline of attempts.
#[derive(Debug)]
struct LiveParts {
    summary: bool,
    timeline: bool,
    ticks: Interval,
    ticked: u32,
    /// Next position in the timeline.
    next: u64,
}

async fn all(
    Shared(state): Shared<AppState>,
    Reader(caller): Reader,
    parts: Parts,
) -> Result<Response, ApiError> {
    let asked: EventsQuery = query(&parts)?;
    let (mut summary, mut timeline) = (false, false);
    for word in
        asked.include.as_deref().unwrap_or_default().split(',').filter(|word| !word.is_empty())
    {
        match word {
            "summary" => summary = true,
            "timeline" => timeline = true,
            other => {
                let why = format!("unknown value `{other}`; use `summary` or `timeline`");
                return Err(ApiError::new("invalid", format!("include: {why}")).at("?include", why));
            }
        }
    }
    let place = places::follow_events(&parts, &state)?;
    let end = state.admitted.end_of(&caller);
    // Subscribed before the answer: a client that has it misses no later event.
    let (follower, reset) = state.core.events.follow(after(&parts, asked.after).as_deref());
    let first = reset.map(|reset| told(&state.core, reset));
    let live = (summary || timeline).then(|| Box::new(LiveParts::new(summary, timeline)));
    let source = EventSource::All { follower, live };
    Ok(answer(&state, &parts, (place, end), source, first.into_iter().collect()))
}

async fn of_job(
    Shared(state): Shared<AppState>,
    Reader(caller): Reader,
    OfJob(id): OfJob,
    parts: Parts,
) -> Result<Response, ApiError> {
    let asked: EventsQuery = query(&parts)?;
    let place = places::follow_events(&parts, &state)?;
    let end = state.admitted.end_of(&caller);
    let mut feed = Feed::new(&state.core.events);
    let (from, is_lost) = state.core.events.place_after(after(&parts, asked.after).as_deref());
    feed.add(id.number(), from);
    // The client receives the current job, and then its changes.
    let core = Arc::clone(&state.core);
    let job = tokio::task::spawn_blocking(move || core.job(id)).await;
    let job =
        job.map_err(|_| ApiError::new("internal", "something went wrong in the server"))??;
    let id = state.core.events.id_before(from);
    let mut first = Vec::new();
    if is_lost {
        first.push(told(&state.core, Followed::Reset(id.clone())));
    }
    first.push(of_now(&state.core, id, job));
    let reader = feed.reader();
    Ok(answer(&state, &parts, (place, end), EventSource::Job { _feed: feed, reader }, first))
}

fn after(parts: &Parts, asked: Option<String>) -> Option<String> {
    let header = parts.headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    header.map(str::to_owned).or(asked)
}

/// Encodes the current job as an event.
fn of_now(core: &Core, id: String, job: Job) -> Bytes {
    let kind = if job.state.is_final() { EventKind::JobEnded } else { EventKind::JobChanged };
    sse_text(&Event { job: Some(Box::new(job)), ..event(id, kind, core.clock.now()) })
}

fn told(core: &Core, followed: Followed) -> Bytes {
    match followed {
        Followed::Event(happened) => happened.text().clone(),
        Followed::Reset(id) => reset(core, id),
    }
}

fn reset(core: &Core, id: String) -> Bytes {
    sse_text(&event(id, EventKind::Reset, core.clock.now()))
}

/// Source of a stream's events.
enum EventSource {
    All {
        follower: Follower,
        /// Boxed, because most streams have none.
        live: Option<Box<LiveParts>>,
    },
    Job {
        /// Subscription to the job's changes, released on drop.
        _feed: Feed,
        reader: FeedReader,
    },
}

/// Stream of events.
pub(super) struct Events {
    core: Arc<Core>,
    closing: CancellationToken,
    source: EventSource,
    /// Events to send first, in reverse order.
    first: Vec<Bytes>,
    pings: Interval,
    /// Permit of the stream, released on drop.
    _place: StreamPermit,
}

fn answer(
    state: &AppState,
    parts: &Parts,
    (place, closing): (StreamPermit, CancellationToken),
    source: EventSource,
    mut first: Vec<Bytes>,
) -> Response {
    first.insert(0, Bytes::from_static(b"retry: 2000\n: keylane\n\n"));
    first.reverse();
    let mut pings = interval_at(Instant::now() + PING, PING);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let core = Arc::clone(&state.core);
    let events = Events { core, closing, source, first, pings, _place: place };
    let slot = takeover::slot(parts);
    let ends_connection = slot.is_some();
    let body = match slot {
        Some(slot) => Body::from_stream(FirstPart::new(slot, events)),
        None => Body::from_stream(futures_util::stream::unfold(events, |mut events| async move {
            events.next().await.map(|text| (Ok::<_, std::convert::Infallible>(text), events))
        })),
    };
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    if ends_connection {
        // Otherwise a client may send its next request on a connection that is about to end.
        headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
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
        let Events { core, closing, source, pings, .. } = self;
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

impl LiveParts {
    fn new(summary: bool, timeline: bool) -> Self {
        let mut ticks = interval(Duration::from_millis(500));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        LiveParts { summary, timeline, ticks, ticked: 0, next: 0 }
    }

    fn show(&mut self, core: &Core, place: &str) -> Bytes {
        let now = core.clock.now();
        let is_second = self.ticked.is_multiple_of(2);
        self.ticked = self.ticked.wrapping_add(1);
        let mut text = Vec::new();
        if self.summary && is_second {
            let summary = Some(Box::new(core.summary()));
            let plain = event(place.to_owned(), EventKind::Summary, now);
            text.extend_from_slice(&sse_text(&Event { summary, ..plain }));
        }
        if self.timeline {
            let timeline = core.timeline_after(self.next);
            self.next = timeline.next;
            let plain = event(place.to_owned(), EventKind::Timeline, now);
            let timeline = Some(Box::new(timeline));
            text.extend_from_slice(&sse_text(&Event { timeline, ..plain }));
        }
        text.into()
    }
}
