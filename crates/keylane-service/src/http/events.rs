//! `/v1/events` and `/v1/jobs/{id}/events`: what happens, as it happens, by server-sent events.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::extract::State as Shared;
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue};
use axum::response::sse::{Event as Sse, KeepAlive, Sse as Stream};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use serde::Deserialize;
use tokio::time::{MissedTickBehavior, interval};

use super::State;
use super::extract::{Reader, query};
use super::jobs::OfJob;
use super::outbox::{Outbox, Unsent, outbox};
use super::problem::Refusal;
use crate::JobId;
use crate::engine::{Core, Followed, Follower, event};
use crate::wire::{Event, EventKind};

pub(super) fn router() -> Router<State> {
    Router::new().route("/v1/events", get(all)).route("/v1/jobs/{id}/events", get(of_job))
}

/// How often a comment shows that the connection is alive.
const PING: Duration = Duration::from_secs(15);

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Proxies that gather answers would hold events back.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventsQuery {
    /// `summary` and `timeline`, with commas between.
    include: Option<String>,
    /// As the header `Last-Event-ID`.
    after: Option<String>,
}

/// What somebody follows.
#[derive(Clone, Copy, Debug, Default)]
struct Following {
    job: Option<JobId>,
    summary: bool,
    timeline: bool,
}

async fn all(Shared(state): Shared<State>, _: Reader, parts: Parts) -> Result<Response, Refusal> {
    let asked: EventsQuery = query(&parts)?;
    let mut following = Following::default();
    for word in
        asked.include.as_deref().unwrap_or_default().split(',').filter(|word| !word.is_empty())
    {
        match word {
            "summary" => following.summary = true,
            "timeline" => following.timeline = true,
            other => {
                let why = format!("there is `summary` and `timeline`, and no `{other}`");
                return Err(Refusal::new("invalid", format!("include: {why}")).at("?include", why));
            }
        }
    }
    Ok(stream(&state, following, after(&parts, asked.after).as_deref()))
}

async fn of_job(
    Shared(state): Shared<State>,
    _: Reader,
    OfJob(id): OfJob,
    parts: Parts,
) -> Result<Response, Refusal> {
    let asked: EventsQuery = query(&parts)?;
    let core = std::sync::Arc::clone(&state.core);
    let known = tokio::task::spawn_blocking(move || core.job(id)).await;
    known.map_err(|_| Refusal::new("internal", "something went wrong in the server"))??;
    let following = Following { job: Some(id), ..Following::default() };
    Ok(stream(&state, following, after(&parts, asked.after).as_deref()))
}

fn after(parts: &Parts, asked: Option<String>) -> Option<String> {
    let header = parts.headers.get(LAST_EVENT_ID).and_then(|id| id.to_str().ok());
    header.map(str::to_owned).or(asked)
}

fn stream(state: &State, following: Following, after: Option<&str>) -> Response {
    // When it is full nothing more is read for the client. What it misses then is still in the ring, or it is told to
    // ask again.
    let (to, from) = outbox();
    let closing = state.closing.clone();
    let core = std::sync::Arc::clone(&state.core);
    // Before anybody is answered: who has the answer misses nothing from then on.
    let followed = core.events.follow(after);
    state.streams.spawn(async move {
        tokio::select! {
            () = feed(&core, following, followed, &to) => {}
            () = closing.cancelled() => {}
        }
    });
    let events = futures_util::stream::unfold(from, |mut from: Unsent<Sse>| async move {
        from.recv().await.map(|(event, _)| (Ok::<_, Infallible>(event), from))
    });
    let keep_alive = KeepAlive::new().interval(PING);
    let mut response = Stream::new(events).keep_alive(keep_alive).into_response();
    response.headers_mut().insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    response
}

/// Sends events until the client is gone.
async fn feed(
    core: &std::sync::Arc<Core>,
    following: Following,
    (mut follower, reset): (Follower, Option<Followed>),
    to: &Outbox<Sse>,
) {
    let first = Sse::default().retry(Duration::from_secs(2)).comment("keylane");
    if to.send(first, 0).await.is_err() {
        return;
    }
    if let Some(Followed::Reset(id)) = reset
        && send(to, &event(id, EventKind::Reset, core.clock.now())).await.is_none()
    {
        return;
    }
    // A follower of one job is told how that is, and then what changes.
    if let Some(job) = following.job
        && !send_job(core, job, &follower, to).await
    {
        return;
    }
    let mut live = Live::new(following);
    loop {
        let sent = tokio::select! {
            followed = follower.next() => live.forward(core, followed, to).await,
            () = live.tick() => live.show(core, &follower, to).await,
            () = to.closed() => None,
        };
        if sent.is_none() {
            return;
        }
    }
}

async fn send_job(
    core: &std::sync::Arc<Core>,
    id: JobId,
    follower: &Follower,
    to: &Outbox<Sse>,
) -> bool {
    let Ok(job) = core.job(id) else { return true };
    let kind = if job.state.is_final() { EventKind::JobEnded } else { EventKind::JobChanged };
    let event =
        Event { job: Some(Box::new(job)), ..event(follower.place(), kind, core.clock.now()) };
    send(to, &event).await.is_some()
}

/// What is sent besides what happened: the numbers, and what ran.
#[derive(Debug)]
struct Live {
    following: Following,
    ticks: tokio::time::Interval,
    ticked: u32,
    timeline: u64,
}

impl Live {
    fn new(following: Following) -> Self {
        let mut ticks = interval(Duration::from_millis(500));
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Live { following, ticks, ticked: 0, timeline: 0 }
    }

    async fn tick(&mut self) {
        if !self.following.summary && !self.following.timeline {
            return std::future::pending().await;
        }
        self.ticks.tick().await;
    }

    /// The numbers once a second, and what ran twice.
    async fn show(
        &mut self,
        core: &std::sync::Arc<Core>,
        follower: &Follower,
        to: &Outbox<Sse>,
    ) -> Option<()> {
        let now = core.clock.now();
        let is_second = self.ticked.is_multiple_of(2);
        self.ticked = self.ticked.wrapping_add(1);
        if self.following.summary && is_second {
            let summary = Some(Box::new(core.summary()));
            let plain = event(follower.place(), EventKind::Summary, now);
            send(to, &Event { summary, ..plain }).await?;
        }
        if self.following.timeline {
            let timeline = core.timeline_after(self.timeline);
            self.timeline = timeline.next;
            let plain = event(follower.place(), EventKind::Timeline, now);
            send(to, &Event { timeline: Some(Box::new(timeline)), ..plain }).await?;
        }
        Some(())
    }

    async fn forward(
        &self,
        core: &std::sync::Arc<Core>,
        followed: Followed,
        to: &Outbox<Sse>,
    ) -> Option<()> {
        match followed {
            Followed::Event(happened) if self.wants(&happened) => send(to, &happened).await,
            Followed::Event(_) => Some(()),
            Followed::Reset(id) => send(to, &event(id, EventKind::Reset, core.clock.now())).await,
        }
    }

    fn wants(&self, event: &Event) -> bool {
        let Some(wanted) = self.following.job else { return true };
        event.job.as_ref().is_some_and(|job| JobId::parse(&job.id) == Some(wanted))
    }
}

/// None if the client is gone.
async fn send(to: &Outbox<Sse>, event: &Event) -> Option<()> {
    let data = serde_json::to_string(event).expect("an event can be written as JSON");
    let bytes = data.len();
    let sse = Sse::default().id(&event.id).event(event.event.as_str()).data(data);
    to.send(sse, bytes).await.ok()
}
