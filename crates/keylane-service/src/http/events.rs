//! `/v1/events` and `/v1/jobs/{id}/events`: server-sent events as they happen, without a queue per
//! client.
//!
//! A stream has no queue. Its connection requests the next event when it has room, so a slow reader
//! delays its own stream only. Events missed meanwhile are in the ring buffer; if they have left
//! it, the client receives a reset and must query again. A stream takes its connection over from
//! the HTTP library: see `takeover.rs`.

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
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::app_state::AppState;
use super::blocking::blocking;
use super::connection_limits::{self, StreamPermit};
use super::event_stream::{EventSource, EventStream, EventStreamOptions, told};
use super::extract::{Reader, query};
use super::job_path::JobPath;
use super::problem::ApiError;
use super::takeover::{self, TakeoverBody};
use crate::engine::{Core, FollowedItem, JobFeed, event, sse_text};
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
    let place = connection_limits::follow_events(
        &parts.extensions,
        &state.event_streams,
        state.settings.max_event_streams,
    )?;
    let end = state.admitted.end_of(&caller);
    // Subscribed before the answer: a client that has it misses no later event.
    let (follower, reset) = state.core.events.follow(after(&parts, asked.after).as_deref());
    let first = reset.map(|reset| told(&state.core, reset));
    let live = (summary || timeline).then(|| Box::new(EventStreamOptions::new(summary, timeline)));
    let source = EventSource::All { follower, live };
    Ok(answer(&state, &parts, (place, end), source, first.into_iter().collect()))
}

async fn of_job(
    Shared(state): Shared<AppState>,
    Reader(caller): Reader,
    JobPath(id): JobPath,
    parts: Parts,
) -> Result<Response, ApiError> {
    let asked: EventsQuery = query(&parts)?;
    let place = connection_limits::follow_events(
        &parts.extensions,
        &state.event_streams,
        state.settings.max_event_streams,
    )?;
    let end = state.admitted.end_of(&caller);
    let mut feed = JobFeed::new(&state.core.events);
    let (from, is_lost) = state.core.events.place_after(after(&parts, asked.after).as_deref());
    feed.add(id.number(), from);
    // The client receives the current job, and then its changes.
    let job = blocking(&state.core, move |core| core.query.job(id)).await?;
    let id = state.core.events.id_before(from);
    let mut first = Vec::new();
    if is_lost {
        first.push(told(&state.core, FollowedItem::Reset(id.clone())));
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
    let events = EventStream { core, closing, source, first, pings, _place: place };
    let slot = takeover::slot(parts);
    let ends_connection = slot.is_some();
    let body = match slot {
        Some(slot) => Body::from_stream(TakeoverBody::new(slot, events)),
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
