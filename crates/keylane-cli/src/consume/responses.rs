//! Responses of the endpoints of `--listen`.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use serde::Serialize;

/// Returns a response of plain text.
pub(super) fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    of_type(status, "text/plain; charset=utf-8", body)
}

/// Returns a successful response of JSON.
pub(super) fn json(body: &impl Serialize) -> Response<Full<Bytes>> {
    let body = serde_json::to_string(body).expect("numbers and text are JSON");
    of_type(StatusCode::OK, "application/json", body)
}

fn of_type(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
