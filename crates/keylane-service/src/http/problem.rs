//! Errors as answers: the only place that assigns a status code to an error code.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::request_error::RequestError;
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
        "The token's role does not permit this",
        "The token's roles don't allow it, or the request came from another site.",
    ),
    (
        "unknown",
        404,
        "Not found",
        "No item has this identifier, number or key, or the path does not exist.",
    ),
    (
        "method-not-allowed",
        405,
        "Method not allowed",
        "The header `Allow` lists the methods of this path.",
    ),
    (
        "too-slow",
        408,
        "The body did not arrive in time",
        "The client paused too long within the body. Nothing was accepted; send the request again.",
    ),
    (
        "conflict",
        409,
        "Conflict with the present state",
        "The state of the job, key or schedule does not permit the action. Read its present state, and decide again.",
    ),
    (
        "lease-lost",
        409,
        "The lease has ended",
        "The lease expired or was ended before, or its job was cancelled. Stop working on the subtask: another worker may have it.",
    ),
    ("gone", 410, "Removed", "The item was purged, or is older than the retention."),
    (
        "stale",
        412,
        "Changed meanwhile",
        "`If-Match` names another version. Read it again, and decide again.",
    ),
    (
        "too-large",
        413,
        "Too large",
        "The body, or a part of it, exceeds a size limit of this server. Submit large jobs as NDJSON.",
    ),
    (
        "unsupported-media-type",
        415,
        "Unsupported media type",
        "Send `application/json`, or `application/x-ndjson` for a job with many subtasks.",
    ),
    (
        "invalid",
        422,
        "The request is invalid",
        "A field breaks a rule. `errors` names each field and its rule.",
    ),
    (
        "other-request",
        422,
        "The idempotency key belongs to another request",
        "The key was sent with another request before. A new request needs a new key.",
    ),
    (
        "upgrade-required",
        426,
        "Unsupported protocol version",
        "`Sec-WebSocket-Version` of the answer names the version.",
    ),
    (
        "precondition-required",
        428,
        "A version is needed",
        "Send `If-Match` with the `ETag` of the job as last read.",
    ),
    (
        "backlog-full",
        429,
        "The backlog is full",
        "The maximum number of subtasks or bytes is waiting. Try again after `Retry-After` seconds.",
    ),
    (
        "too-many-requests",
        429,
        "Too many connections",
        "The server has its maximum number of connections. Try again after `Retry-After` seconds.",
    ),
    (
        "internal",
        500,
        "Internal error",
        "The server's log has the cause under `instance`. Please report it.",
    ),
    (
        "damaged",
        500,
        "Damaged data",
        "The checksum of the stored item is wrong. Nothing else is affected. A damaged job can be removed with `DELETE`; `keylane store check` names all damage.",
    ),
    (
        "store-failed",
        503,
        "The store has failed",
        "Nothing is accepted until the server is restarted. Acknowledged changes are on the disk.",
    ),
    ("unavailable", 503, "The server cannot do it now", "Try again after `Retry-After` seconds."),
    (
        "disk-full",
        507,
        "The disk is full",
        "Nothing of the request was executed or written. Requests succeed again as soon as there is room.",
    ),
    (
        "not-yet-written",
        507,
        "Not on the disk yet",
        "The disk became full, or the database went away, during the request. The change is in effect, and is written as soon as that is possible; if the server ends before, the change is lost.",
    ),
];

/// Error of a request.
#[derive(Clone, Debug)]
pub(super) struct ApiError {
    pub(super) code: &'static str,
    pub(super) detail: String,
    pub(super) errors: Vec<FieldError>,
    /// Seconds until a retry makes sense.
    pub(super) retry_after: Option<u64>,
}

impl ApiError {
    pub(super) fn new(code: &'static str, detail: impl Into<String>) -> Self {
        ApiError { code, detail: detail.into(), errors: Vec::new(), retry_after: None }
    }

    pub(super) fn at(mut self, pointer: impl Into<String>, detail: impl Into<String>) -> Self {
        self.errors.push(FieldError { pointer: pointer.into(), detail: detail.into() });
        self
    }

    /// Prefixes the field's path with `at`, also where the detail begins with it.
    pub(super) fn within(mut self, at: &str) -> Self {
        match self.errors.first() {
            Some(error) if error.pointer.is_empty() => {
                self.detail.insert_str(0, &format!("{at}: "))
            }
            Some(error) if self.detail.starts_with(&error.pointer) => self.detail.insert_str(0, at),
            _ => {}
        }
        for error in &mut self.errors {
            error.pointer.insert_str(0, at);
        }
        self
    }

    /// Error for an unknown path, subtask or other item.
    pub(super) fn unknown(what: impl std::fmt::Display) -> Self {
        ApiError::new("unknown", format!("there is no {what}"))
    }
}

impl From<RequestError> for ApiError {
    fn from(refused: RequestError) -> Self {
        let text = refused.to_string();
        match refused {
            RequestError::Unknown { .. } => ApiError::new("unknown", text),
            RequestError::Gone { .. } => ApiError::new("gone", text),
            RequestError::Invalid(places) => {
                let refusal = ApiError::new("invalid", text);
                places.into_iter().fold(refusal, |refusal, (at, why)| refusal.at(at, why))
            }
            RequestError::Conflict(_) => ApiError::new("conflict", text),
            RequestError::OtherRequest => ApiError::new("other-request", text),
            RequestError::Stale { .. } => ApiError::new("stale", text),
            RequestError::LeaseLost => ApiError::new("lease-lost", text),
            RequestError::TooLarge(_) => ApiError::new("too-large", text),
            RequestError::Backlog { after, .. } => {
                let retry_after = Some(after.as_secs().max(1));
                ApiError { retry_after, ..ApiError::new("backlog-full", text) }
            }
            RequestError::Busy(_) => {
                ApiError { retry_after: Some(60), ..ApiError::new("unavailable", text) }
            }
            RequestError::StoreUnavailable(_) => {
                ApiError { retry_after: Some(1), ..ApiError::new("unavailable", text) }
            }
            RequestError::BackupFailed(_) => ApiError::new("internal", text),
            RequestError::Draining => {
                ApiError { retry_after: Some(5), ..ApiError::new("unavailable", text) }
            }
            RequestError::StoreFull => {
                ApiError { retry_after: Some(5), ..ApiError::new("disk-full", text) }
            }
            RequestError::NotYetWritten => {
                ApiError { retry_after: Some(5), ..ApiError::new("not-yet-written", text) }
            }
            RequestError::Damaged(_) => ApiError::new("damaged", text),
            RequestError::StoreFailed(_) => ApiError::new("store-failed", text),
        }
    }
}

impl ApiError {
    pub(super) fn status(&self) -> StatusCode {
        let known = CODES.iter().find(|(code, ..)| *code == self.code);
        let status = known.and_then(|(_, status, ..)| StatusCode::from_u16(*status).ok());
        status.expect("every refusal has one of the codes")
    }
}

impl ApiError {
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

impl IntoResponse for ApiError {
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
            RequestError::Unknown { what: "job".into() },
            RequestError::Gone { what: "job".into() },
            RequestError::Invalid(vec![("/kind".into(), "there is no such kind".into())]),
            RequestError::Conflict("it is over".into()),
            RequestError::OtherRequest,
            RequestError::Stale { version: 3 },
            RequestError::LeaseLost,
            RequestError::TooLarge("it has 5 bytes".into()),
            RequestError::Backlog {
                what: "5 subtasks wait".into(),
                after: std::time::Duration::ZERO,
            },
            RequestError::Draining,
            RequestError::Busy("another backup is being made".into()),
            RequestError::BackupFailed("no such folder".into()),
            RequestError::StoreFull,
            RequestError::StoreUnavailable("it does not answer".into()),
            RequestError::NotYetWritten,
            RequestError::Damaged("the row of job 7".into()),
            RequestError::StoreFailed("no".into()),
        ];
        for reason in refused {
            let refusal = ApiError::from(reason.clone());
            assert!(refusal.status().as_u16() >= 400, "{reason:?}");
            assert!(!refusal.detail.is_empty());
        }
    }

    #[test]
    fn the_detail_names_the_field_within_its_list() {
        let detail = |pointer: &str| {
            let invalid = RequestError::Invalid(vec![(pointer.to_owned(), "no".to_owned())]);
            ApiError::from(invalid).within("/jobs/3").detail
        };
        assert_eq!(
            (detail("/weight"), detail("")),
            ("/jobs/3/weight: no".into(), "/jobs/3: no".into())
        );
        let other = ApiError::new("invalid", "it has no text").at("/text", "missing");
        assert_eq!(other.within("/jobs/3").detail, "it has no text");
    }

    #[test]
    fn codes_are_there_once() {
        let mut codes: Vec<_> = CODES.iter().map(|(code, ..)| code).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), CODES.len());
    }
}
