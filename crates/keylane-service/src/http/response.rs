//! Headers and status codes that several routes share.

use axum::Json;
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::wire::{Job, KeyState, KeyView};

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");
pub(super) const PREFERENCE_APPLIED: HeaderName = HeaderName::from_static("preference-applied");

/// Marks the answer to a repeated request.
pub(super) fn put_replayed(response: &mut Response) {
    response.headers_mut().insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
}

/// Answers 202 while the change is in progress, and 200 when it is complete.
pub(super) fn steered(job: &Job) -> Response {
    let status = if job.state.is_final() { StatusCode::OK } else { StatusCode::ACCEPTED };
    let mut response = (status, Json(job)).into_response();
    put_tag(&mut response, job);
    response
}

fn tag(job: &Job) -> String {
    format!("W/\"{}\"", job.version)
}

/// Returns whether the version of the job is among these tags.
pub(super) fn has_tag(tags: &str, job: &Job) -> bool {
    let own = tag(job);
    tags.split(',').any(|tag| tag.trim() == own || tag.trim() == "*")
}

/// Sets the version of the job as the `ETag`.
pub(super) fn put_tag(response: &mut Response, job: &Job) {
    let tag = HeaderValue::from_str(&tag(job)).expect("a number is plain text");
    response.headers_mut().insert(header::ETAG, tag);
}

/// Returns the view of a key, empty if the key has no state left.
pub(super) fn key_or_empty(view: Option<KeyView>, key: String) -> KeyView {
    let nothing = KeyView { key, state: KeyState::Open, length: 0, head: None, paused_since: None };
    view.unwrap_or(nothing)
}
