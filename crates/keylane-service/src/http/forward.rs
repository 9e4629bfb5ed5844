//! Requests to a node that does not own the store are forwarded to the owner.
//!
//! The owner checks the token, the host name and everything else as if the client had sent the request to it. A forwarded
//! request has two headers more: the secret that the owner has written to the database, by which the owner knows that another
//! node has sent it, and the address of the client (`forwarded.rs`).
//!
//! A request is sent at most once. If the owner changes before its answer is complete, the request gets 503, and a body that
//! was being sent ends with an error: the former owner may be suspended, and never answer.

use std::io;
use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use futures_util::{StreamExt, TryFutureExt, stream};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::sync::watch::Receiver;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::body_timeout;
use super::extract::peer;
use super::forwarded::{self, CLIENT, NODE};
use super::owner_client::OwnerClient;
use super::problem::ApiError;
use super::server_routes::livez;
use super::settings::HttpSettings;
use crate::node::{Node, Owner};
use crate::outgoing_http;
use crate::wire::{Health, HealthCheck};

/// Headers that are about one connection (RFC 9110, section 7.6.1).
const OF_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Forwards the requests of a node.
#[derive(Debug)]
struct Forwarder {
    node: Node,
    client: OwnerClient,
    /// Tracker of the upgraded connections.
    upgraded: TaskTracker,
    /// Cancelled when event streams and upgraded connections are to end.
    closing: CancellationToken,
}

/// Returns the routes of a node that waits for the store. `upgraded` tracks its WebSockets, and `closing` ends these and event streams.
pub(super) fn router(
    node: Node,
    settings: Arc<HttpSettings>,
    upgraded: TaskTracker,
    closing: CancellationToken,
) -> Router {
    let forwarder = Forwarder { node, client: OwnerClient::default(), upgraded, closing };
    Router::new()
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .fallback(forward)
        // A refusal must not end the connection of a client that is still sending its request.
        .layer(from_fn_with_state(settings, body_timeout::bound))
        .with_state(Arc::new(forwarder))
}

/// Metrics of a node that waits: those of the jobs are at the owner.
async fn metrics() -> Response {
    let text = "# HELP keylane_owner Whether this server owns the store: 1, or 0 while it waits.\n\
                # TYPE keylane_owner gauge\nkeylane_owner 0\n";
    let plain = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    ([(header::CONTENT_TYPE, plain)], text).into_response()
}

/// Answers as the owner does. Without one, a load balancer should send requests elsewhere.
async fn readyz(State(forwarder): State<Arc<Forwarder>>, request: Request) -> Response {
    match forwarder.answer(request).await {
        Ok(answer) => answer,
        Err(refusal) => {
            let check =
                HealthCheck { name: "owner".into(), ok: false, detail: Some(refusal.detail) };
            let health = Health { status: "unavailable".into(), checks: vec![check] };
            (StatusCode::SERVICE_UNAVAILABLE, Json(health)).into_response()
        }
    }
}

async fn forward(State(forwarder): State<Arc<Forwarder>>, request: Request) -> Response {
    forwarder.answer(request).await.unwrap_or_else(IntoResponse::into_response)
}

impl Forwarder {
    async fn answer(&self, request: Request) -> Result<Response, ApiError> {
        if request.headers().contains_key(NODE) {
            // Of a node that has not seen yet that this one is no owner any more, or not one yet.
            return Err(unavailable("the owner of the store has changed; send the request again"));
        }
        let owner = self.node.owner();
        let Some(target) = owner.borrow().clone() else {
            return Err(unavailable(
                "no server owns the store yet; one of those that wait takes it over within seconds",
            ));
        };
        tokio::select! {
            biased;
            answer = self.send(&target, request, replaced(owner.clone(), target.epoch)) => answer,
            () = replaced(owner, target.epoch) => Err(unknown_outcome()),
        }
    }

    async fn send(
        &self,
        target: &Owner,
        mut request: Request,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Response, ApiError> {
        let client = self.client.at(&target.address).map_err(|why| unavailable(&why))?;
        let upgrade = request.headers().get(header::UPGRADE).cloned();
        let upgrading = upgrade.is_some().then(|| hyper::upgrade::on(&mut request));
        let client_address = peer(request.extensions());
        let (parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut headers = without_connection(parts.headers);
        headers.remove(header::EXPECT);
        forwarded::remove_from(&mut headers);
        if let Some(upgrade) = upgrade {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(header::UPGRADE, upgrade);
        }
        let value = |text: &str| {
            HeaderValue::from_str(text).map_err(|_| unavailable("the owner has a wrong secret"))
        };
        headers.insert(NODE, value(target.secret.as_str())?);
        if let Some(address) = client_address {
            headers.insert(CLIENT, value(&address.to_string())?);
        }
        let mut sending =
            client.request(parts.method, format!("{}{path}", target.address)).headers(headers);
        if !body.is_end_stream() {
            sending = sending.body(reqwest::Body::wrap_stream(body.into_data_stream()));
        }
        let answer = sending.send().await.map_err(failure)?;
        match (answer.status(), upgrading) {
            (StatusCode::SWITCHING_PROTOCOLS, Some(upgrading)) => {
                Ok(self.upgraded(answer, upgrading, end))
            }
            _ => Ok(answered(answer, end, self.closing.clone())),
        }
    }

    /// Connects the client with the owner, after that has accepted an upgrade.
    fn upgraded(
        &self,
        answer: reqwest::Response,
        upgrading: OnUpgrade,
        end: impl Future<Output = ()> + Send + 'static,
    ) -> Response {
        let mut headers = without_connection(answer.headers().clone());
        for name in [header::CONNECTION, header::UPGRADE] {
            if let Some(value) = answer.headers().get(&name) {
                headers.insert(name, value.clone());
            }
        }
        let closing = self.closing.clone();
        self.upgraded.spawn(async move {
            let both = upgrading.map_err(drop);
            let (Ok(client), Ok(mut owner)) = tokio::join!(both, answer.upgrade()) else { return };
            let mut client = TokioIo::new(client);
            tokio::select! {
                _ = tokio::io::copy_bidirectional(&mut client, &mut owner) => {}
                () = end => {}
                () = closing.cancelled() => {}
            }
        });
        (StatusCode::SWITCHING_PROTOCOLS, headers).into_response()
    }
}

/// Returns the answer of the owner with its body as it comes.
fn answered(
    answer: reqwest::Response,
    end: impl Future<Output = ()> + Send + 'static,
    closing: CancellationToken,
) -> Response {
    let (status, headers) = (answer.status(), without_connection(answer.headers().clone()));
    let parts = answer.bytes_stream().map(|part| part.map_err(io::Error::other));
    let state = Some((Box::pin(parts), Box::pin(end)));
    // Only that has no end of its own.
    let is_event_stream = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
    let body = stream::unfold(state, move |state| {
        let closing = closing.clone();
        async move {
            let (mut parts, mut end) = state?;
            tokio::select! {
                biased;
                () = closing.cancelled(), if is_event_stream => None,
                part = parts.next() => Some((part?, Some((parts, end)))),
                // With an error, because a body that only stopped could look complete.
                () = &mut end => Some((Err(io::Error::other("the owner has changed")), None)),
            }
        }
    });
    let mut response = Response::new(Body::from_stream(body));
    (*response.status_mut(), *response.headers_mut()) = (status, headers);
    response
}

/// Waits until the owner of this epoch is none any more. A new certificate of the same one replaces nothing.
async fn replaced(mut owner: Receiver<Option<Owner>>, epoch: i64) {
    let is_other = |owner: &Option<Owner>| owner.as_ref().is_none_or(|owner| owner.epoch != epoch);
    // The sender lives as long as the node.
    if owner.wait_for(is_other).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// Removes the headers that are about one connection, and those that `Connection` names.
fn without_connection(mut headers: HeaderMap) -> HeaderMap {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named.into_iter().chain(OF_CONNECTION) {
        headers.remove(name);
    }
    headers
}

fn failure(error: reqwest::Error) -> ApiError {
    match error.is_connect() {
        true => unavailable(&format!(
            "the owner of the store cannot be reached: {}; another server takes over within seconds if it has ended",
            outgoing_http::text_of(error)
        )),
        false => unknown_outcome(),
    }
}

fn unknown_outcome() -> ApiError {
    unavailable(
        "the owner of the store did not answer: it has ended, or the network to it is lost. It may have executed the request; \
         with an idempotency key it can be sent again",
    )
}

fn unavailable(detail: &str) -> ApiError {
    ApiError { retry_after: Some(1), ..ApiError::new("unavailable", detail) }
}
