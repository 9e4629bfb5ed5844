//! Errors as answers: the only place that assigns a status code to an error code.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::refused::Refused;
use crate::wire::{FieldError, Problem};

/// All error codes, each with its status, title and page.
pub(super) const CODES: &[(&str, u16, &str, &str)] = &[
    (
        "bad-syntax",
        400,
        "The request cannot be read",
        "The body is not the JSON, or NDJSON, that it says it is. `errors` names the place.",
    ),
    (
        "unauthorized",
        401,
        "A token is needed",
        "Send `Authorization: Bearer` and a token of this server.",
    ),
    (
        "forbidden",
        403,
        "The token is not for that",
        "The token's roles don't allow it, or the request came from another site.",
    ),
    (
        "unknown",
        404,
        "There is no such thing",
        "Nothing has that id, number or key, or there is no such path.",
    ),
    ("method-not-allowed", 405, "Not with this method", "`Allow` says which methods there are."),
    (
        "too-slow",
        408,
        "The rest did not come",
        "Nothing more of the body came for too long. Nothing of it was accepted; send it again.",
    ),
    (
        "conflict",
        409,
        "It does not go with how things are",
        "The job is over, or is not, or what is asked for is already so otherwise. Look at it, and ask again.",
    ),
    (
        "lease-lost",
        409,
        "The lease has ended",
        "The subtask's time was up, its job was cancelled, or the server was started again. Stop working on it: another worker may have it.",
    ),
    ("gone", 410, "It was removed", "It was there, and was purged or is older than what is kept."),
    (
        "stale",
        412,
        "It has changed meanwhile",
        "`If-Match` names another version. Read it again, and decide again.",
    ),
    (
        "too-large",
        413,
        "It is too large",
        "The body, or a part of it, has more bytes than this server takes. Large jobs go in as NDJSON.",
    ),
    (
        "unsupported-media-type",
        415,
        "Not in this format",
        "Send `application/json`, or `application/x-ndjson` for a job with many subtasks.",
    ),
    (
        "invalid",
        422,
        "It makes no sense",
        "It can be read, and something in it is wrong. `errors` names each place.",
    ),
    (
        "other-request",
        422,
        "The idempotency key is taken",
        "It was sent with another body before. A new request needs a new key.",
    ),
    (
        "upgrade-required",
        426,
        "Another version of the protocol is needed",
        "`Sec-WebSocket-Version` of the answer names the version.",
    ),
    (
        "precondition-required",
        428,
        "A version is needed",
        "Send `If-Match` with the `ETag` of the job that was looked at.",
    ),
    (
        "backlog-full",
        429,
        "Too much waits",
        "As many subtasks or bytes wait as may. Try again after `Retry-After` seconds.",
    ),
    (
        "too-many-requests",
        429,
        "Too many connections",
        "There are as many as this server takes. Try again after `Retry-After` seconds.",
    ),
    (
        "internal",
        500,
        "A mistake of the server",
        "It is in the server's log under `instance`. Please report it.",
    ),
    (
        "damaged",
        500,
        "The store's data of this is damaged",
        "What was asked for is not what was written. Nothing else is affected. A damaged job can be removed with `DELETE`; `keylane store check` names all damage.",
    ),
    (
        "store-failed",
        503,
        "The store has failed",
        "Nothing more is accepted until the server has been started again. What was acknowledged is on the disk.",
    ),
    (
        "unavailable",
        503,
        "The server is starting or stopping",
        "Try again after `Retry-After` seconds.",
    ),
    (
        "disk-full",
        507,
        "The disk is full",
        "Nothing of the request was done or written. It works again as soon as there is room.",
    ),
    (
        "not-yet-written",
        507,
        "It is not on the disk yet",
        "The disk has become full at this moment. It was done, and is written as soon as there is room; if the server ends before that, it was not done.",
    ),
];

/// Error of a request.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) detail: String,
    pub(super) errors: Vec<FieldError>,
    /// Seconds until a retry makes sense.
    pub(super) retry_after: Option<u64>,
}

impl Refusal {
    pub(super) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        Refusal { code, detail: detail.into(), errors: Vec::new(), retry_after: None }
    }

    pub(super) fn at(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldError { pointer: pointer.into(), detail: detail.into() });
        self
    }

    /// Prefixes the field's path with `at`.
    pub(super) fn within(mut self, at: &str) -> Self {
        for error in &mut self.errors {
            error.pointer.insert_str(0, at);
        }
        self
    }

    /// Error for an unknown path, subtask or other item.
    pub(super) fn unknown(what: impl std::fmt::Display) -> Self {
        Refusal::new("unknown", format!("there is no {what}"))
    }
}

impl From<Refused> for Refusal {
    fn from(refused: Refused) -> Self {
        let text = refused.to_string();
        match refused {
            Refused::Unknown { .. } => Refusal::new("unknown", text),
            Refused::Gone { .. } => Refusal::new("gone", text),
            Refused::Invalid(places) => {
                let refusal = Refusal::new("invalid", text);
                places.into_iter().fold(refusal, |refusal, (at, why)| refusal.at(at, why))
            }
            Refused::Conflict(_) => Refusal::new("conflict", text),
            Refused::OtherRequest => Refusal::new("other-request", text),
            Refused::Stale { .. } => Refusal::new("stale", text),
            Refused::LeaseLost => Refusal::new("lease-lost", text),
            Refused::TooLarge(_) => Refusal::new("too-large", text),
            Refused::Backlog { after, .. } => {
                let retry_after = Some(after.as_secs().max(1));
                Refusal { retry_after, ..Refusal::new("backlog-full", text) }
            }
            Refused::Draining => {
                Refusal { retry_after: Some(5), ..Refusal::new("unavailable", text) }
            }
            Refused::StoreFull => {
                Refusal { retry_after: Some(5), ..Refusal::new("disk-full", text) }
            }
            Refused::NotYetWritten => {
                Refusal { retry_after: Some(5), ..Refusal::new("not-yet-written", text) }
            }
            Refused::Damaged(_) => Refusal::new("damaged", text),
            Refused::StoreFailed(_) => Refusal::new("store-failed", text),
        }
    }
}

impl Refusal {
    pub(super) fn status(&self) -> StatusCode {
        let known = CODES.iter().find(|(code, ..)| *code == self.code);
        let status = known.and_then(|(_, status, ..)| StatusCode::from_u16(*status).ok());
        status.expect("every refusal has one of the codes")
    }
}

impl Refusal {
    pub(super) fn into_problem(self) -> Problem {
        let title = CODES.iter().find(|(code, ..)| *code == self.code).map_or("", |known| known.2);
        Problem {
            kind: format!("/problems/{}", self.code),
            title: title.to_owned(),
            status: self.status().as_u16(),
            detail: self.detail,
            // Filled in by the layer that numbers requests.
            instance: String::new(),
            code: self.code.to_owned(),
            errors: self.errors,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.status();
        let retry_after = self.retry_after;
        let problem = self.into_problem();
        let mut response = (status, Json(&problem)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        if let Some(seconds) = retry_after {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response.extensions_mut().insert(problem);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_a_code_with_a_page() {
        let refused = [
            Refused::Unknown { what: "job".into() },
            Refused::Gone { what: "job".into() },
            Refused::Invalid(vec![("/kind".into(), "there is no such kind".into())]),
            Refused::Conflict("it is over".into()),
            Refused::OtherRequest,
            Refused::Stale { version: 3 },
            Refused::LeaseLost,
            Refused::TooLarge("it has 5 bytes".into()),
            Refused::Backlog { what: "5 subtasks wait".into(), after: std::time::Duration::ZERO },
            Refused::Draining,
            Refused::StoreFull,
            Refused::NotYetWritten,
            Refused::Damaged("the row of job 7".into()),
            Refused::StoreFailed("no".into()),
        ];
        for reason in refused {
            let refusal = Refusal::from(reason.clone());
            assert!(refusal.status().as_u16() >= 400, "{reason:?}");
            assert!(!refusal.detail.is_empty());
        }
    }

    #[test]
    fn codes_are_there_once() {
        let mut codes: Vec<_> = CODES.iter().map(|(code, ..)| code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), CODES.len());
    }
}
