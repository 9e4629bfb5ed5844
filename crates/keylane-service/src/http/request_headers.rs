//! Headers of requests: idempotency key, trace context, and the preferred wait.

use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};

use super::auth::Caller;
use super::problem::ApiError;
use crate::TraceContext;
use crate::engine::MAX_CLAIM_WAIT;

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Returns the scope of the idempotency key, and the key, if there is one.
pub(super) fn scope_of(
    headers: &HeaderMap,
    caller: &Caller,
) -> Result<Option<(String, String)>, ApiError> {
    let Some(key) = headers.get(IDEMPOTENCY_KEY) else { return Ok(None) };
    let key = idempotency_key(key.as_bytes(), "Idempotency-Key")?;
    Ok(Some((caller.name.clone(), key)))
}

/// Returns the client's trace context. An invalid one is ignored, as W3C Trace Context requires; so
/// are several `traceparent` headers, which are ambiguous. `tracestate` may span several headers.
pub(super) fn trace_of(headers: &HeaderMap) -> Option<TraceContext> {
    let mut parents = headers.get_all(TRACEPARENT).iter();
    let (Some(parent), None) = (parents.next(), parents.next()) else { return None };
    let states: Result<Vec<_>, _> =
        headers.get_all(TRACESTATE).iter().map(HeaderValue::to_str).collect();
    TraceContext::parse(parent.to_str().ok()?, &states.unwrap_or_default().join(","))
}

/// Validates an idempotency key. `place` names it in the error.
pub(super) fn idempotency_key(bytes: &[u8], place: &str) -> Result<String, ApiError> {
    const MAX_BYTES: usize = 255;
    let is_printable = |byte: &u8| matches!(byte, b' '..=b'~');
    match std::str::from_utf8(bytes) {
        Ok(key) if (1..=MAX_BYTES).contains(&key.len()) && bytes.iter().all(is_printable) => {
            Ok(key.to_owned())
        }
        _ => {
            let why = format!("must have 1 to {MAX_BYTES} printable ASCII characters");
            Err(ApiError::new("invalid", format!("{place}: {why}")).at(place, why))
        }
    }
}

/// Returns the wait that the client prefers (RFC 7240), bounded by the server's maximum.
pub(super) fn wait_of(headers: &HeaderMap) -> Option<Duration> {
    let preferences = headers.get_all(PREFER).iter().filter_map(|value| value.to_str().ok());
    let words = preferences.flat_map(|value| value.split([',', ';']));
    let wait = words.filter_map(|word| word.trim().strip_prefix("wait=")?.parse().ok()).next()?;
    Some(Duration::from_secs(wait).min(MAX_CLAIM_WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preference_is_found_among_others() {
        let wait = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(PREFER, HeaderValue::from_static(value));
            wait_of(&headers).map(|wait| wait.as_secs())
        };
        assert_eq!(wait("respond-async, wait=10"), Some(10));
        assert_eq!(wait("wait=100000"), Some(60));
        assert_eq!(wait("wait=soon"), None);
        assert_eq!(wait("return=minimal"), None);
    }
}
