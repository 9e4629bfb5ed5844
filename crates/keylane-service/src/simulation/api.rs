//! Requests to the service through its routes, without a network.

use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode, header};
use hyper::service::Service as _;
use hyper_util::service::TowerToHyperService;
use serde_json::Value;
use tokio::time::sleep;

use keylane_testkit::Random;

/// Client of the service.
#[derive(Clone)]
pub(super) struct Api(pub(super) Router);

impl Api {
    /// Sends a request and returns the answer. Both take some milliseconds on the way. `name` is the
    /// idempotency key.
    pub(super) async fn send(
        &self,
        random: &mut Random,
        (method, path): (&str, &str),
        name: Option<&str>,
        body: Option<Value>,
    ) -> (StatusCode, Value) {
        sleep(Duration::from_millis(random.within(0..10))).await;
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::HOST, "localhost");
        if method == "PATCH" {
            request = request.header(header::IF_MATCH, "*");
        }
        if let Some(name) = name {
            request = request.header("idempotency-key", name);
        }
        let body = match body {
            Some(body) => {
                request = request.header(header::CONTENT_TYPE, "application/json");
                Body::from(body.to_string())
            }
            None => Body::empty(),
        };
        let request = request.body(body).unwrap();
        let answer = TowerToHyperService::new(self.0.clone()).call(request).await.unwrap();
        let status = answer.status();
        let bytes = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
        sleep(Duration::from_millis(random.within(0..10))).await;
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Follows all events after one, and returns the stream. Returns `None` if it is refused.
    pub(super) async fn follow(&self, after: Option<(u64, u64)>) -> Option<Body> {
        let mut request = Request::builder().uri("/v1/events").header(header::HOST, "localhost");
        if let Some((boot, number)) = after {
            request = request.header("last-event-id", format!("{boot}-{number}"));
        }
        let request = request.body(Body::empty()).unwrap();
        let answer = TowerToHyperService::new(self.0.clone()).call(request).await.unwrap();
        answer.status().is_success().then(|| answer.into_body())
    }
}
