//! Answers of a server whose service is starting: it is alive and not ready.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};

use super::body_timeout;
use super::problem::ApiError;
use super::server_routes::livez;
use super::settings::HttpSettings;
use crate::wire::{Health, HealthCheck};

pub(super) fn router(settings: Arc<HttpSettings>) -> Router {
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .fallback(async || refusal())
        .layer(from_fn_with_state(settings, body_timeout::bound))
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
    (StatusCode::SERVICE_UNAVAILABLE, Json(health)).into_response()
}
