//! Ways of a [`LeaseRunner`] to the API of leases: at the owner of the store over a connection, or of this server itself without one.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Request, header};
use bytes::Bytes;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;

use super::auth::Caller;
use super::forwarded::{NODE, WORKER};
use super::owner_client::OwnerClient;
use crate::handle::BoxFuture;
use crate::lease_runner::{LeaseRunner, LeaseTransport, TransportError};
use crate::node::{Node, Owner};
use crate::outgoing_http;

/// Returns the maximum time for the answer of another node: a claim waits for 20 seconds, and a heartbeat that is late is sent again
/// before the lease ends.
fn timeout(path: &str) -> Duration {
    Duration::from_secs(match path {
        "/v1/leases" => 40,
        "/v1/leases/heartbeat" => 3,
        _ => 20,
    })
}

/// Way to this server's own routes.
#[derive(Debug)]
pub(super) struct OwnRoutes {
    pub(super) routes: Router,
    /// Name of this server among the workers.
    pub(super) name: String,
}

impl LeaseTransport for OwnRoutes {
    fn worker(&self) -> String {
        self.name.clone()
    }

    fn post(
        &self,
        path: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<Result<(u16, Bytes), TransportError>> {
        let request = Request::post(path)
            .header(header::CONTENT_TYPE, "application/json")
            .extension(Caller::node())
            .body(Body::from(body))
            .expect("the request is valid");
        let routes = self.routes.clone();
        Box::pin(async move {
            let Ok(answer) = TowerToHyperService::new(routes).call(request).await;
            let status = answer.status().as_u16();
            let body = to_bytes(answer.into_body(), usize::MAX).await;
            body.map(|body| (status, body)).map_err(|error| TransportError(error.to_string()))
        })
    }
}

/// Way to the owner of the store.
struct ToOwner {
    owner: Owner,
    client: reqwest::Client,
    name: String,
}

impl LeaseTransport for ToOwner {
    fn worker(&self) -> String {
        self.name.clone()
    }

    fn post(
        &self,
        path: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<Result<(u16, Bytes), TransportError>> {
        let request = self
            .client
            .post(format!("{}{path}", self.owner.address))
            .timeout(timeout(path))
            .header(header::CONTENT_TYPE, "application/json")
            .header(NODE, self.owner.secret.as_str())
            .header(WORKER, HeaderValue::from_static("1"))
            .body(body);
        Box::pin(async move {
            let failed = |error| TransportError(outgoing_http::text_of(error));
            let answer = request.send().await.map_err(failed)?;
            let status = answer.status().as_u16();
            answer.bytes().await.map(|body| (status, body)).map_err(failed)
        })
    }
}

/// Pauses a runner while its node is drained, until it is dropped.
pub(super) async fn pause(node: Node, runner: LeaseRunner) {
    loop {
        node.wait_for_drained(true).await;
        runner.set_paused(true);
        node.wait_for_drained(false).await;
        runner.set_paused(false);
    }
}

/// Connects a runner with the owner of the store, until it is dropped.
pub(super) async fn follow(node: Node, runner: LeaseRunner) {
    let client = OwnerClient::default();
    let mut owner = node.owner();
    let name = node.address().to_string();
    loop {
        let current = owner.borrow_and_update().clone();
        let transport = current.and_then(|owner| match client.at(&owner.address) {
            Ok(client) => {
                let way: Arc<dyn LeaseTransport> =
                    Arc::new(ToOwner { owner, client, name: name.clone() });
                Some(way)
            }
            Err(why) => {
                tracing::warn!("jobs of the owner of the store do not run here: {why}");
                None
            }
        });
        runner.connect(transport);
        // The sender lives as long as the node.
        if owner.changed().await.is_err() {
            return;
        }
    }
}
