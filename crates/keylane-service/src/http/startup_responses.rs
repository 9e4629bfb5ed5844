//! Answers of a server whose service is starting: it is alive and not ready.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use super::problem::ApiError;
use super::server_routes::livez;
use crate::wire::{Health, HealthCheck};

pub(super) fn router() -> Router {
    Router::new()
        .route("/livez", get(async || to_be_closed(livez().await)))
        .route("/readyz", get(readyz))
        .fallback(async || to_be_closed(refusal()))
}

fn refusal() -> ApiError {
    let detail = "the service is starting; `GET /readyz` says when it has started";
    ApiError { retry_after: Some(1), ..ApiError::new("unavailable", detail) }
}

async fn readyz() -> Response {
    let detail =
        "the service is starting: it reads its store, and ends what an earlier server left";
    let check = HealthCheck { name: "started".into(), ok: false, detail: Some(detail.into()) };
    let health = Health { status: "unavailable".into(), checks: vec![check] };
    to_be_closed((StatusCode::SERVICE_UNAVAILABLE, Json(health)))
}

/// Lets the connection end with this answer: the next one of the client has the routes of the
/// service, once it has started.
fn to_be_closed(answer: impl IntoResponse) -> Response {
    let mut answer = answer.into_response();
    answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    answer
}
