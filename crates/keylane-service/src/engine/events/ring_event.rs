//! Events of the ring, and their text.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::wire::{Event, EventKind, Job, Timestamp};
use crate::{JobId, JobNumber};

/// An event in the ring, with its text once it was first sent.
#[derive(Debug)]
pub(crate) struct RingEvent {
    event: Event,
    /// Number of the event in the ring.
    pub(super) number: u64,
    /// Number of its job.
    pub(super) of: Option<JobNumber>,
    text: OnceLock<Bytes>,
}

impl Deref for RingEvent {
    type Target = Event;

    fn deref(&self) -> &Event {
        &self.event
    }
}

impl RingEvent {
    pub(super) fn new(event: Event, number: u64) -> Self {
        let of = event.job.as_ref().and_then(|job| JobId::parse(&job.id)).map(|id| id.number());
        RingEvent { event, number, of, text: OnceLock::new() }
    }

    /// Returns the event as server-sent event text.
    pub(crate) fn text(&self) -> &Bytes {
        self.text.get_or_init(|| sse_text(&self.event))
    }

    /// Returns the approximate size of the event in bytes.
    pub(super) fn bytes(&self) -> usize {
        bytes_of(&self.event)
    }
}

/// Serializes an event in the format of server-sent events. A line end inside a step's result, where
/// it is white space of the JSON, starts another `data:` line.
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

/// Next item for a follower.
#[derive(Clone, Debug)]
pub(crate) enum FollowedItem {
    /// The next event.
    Event(Arc<RingEvent>),
    /// Events are missing here: the client must read the current state again. The id is the
    /// position from which the follower continues.
    Reset(String),
}

/// Returns an event without content.
pub(crate) fn event(id: String, event: EventKind, at: Timestamp) -> Event {
    Event {
        id,
        event,
        at,
        job: None,
        number: None,
        superseded_by: None,
        key: None,
        schedule: None,
        error: None,
        summary: None,
        timeline: None,
    }
}

/// Returns the approximate size of an event in bytes: the struct and its fields of unbounded
/// length.
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
