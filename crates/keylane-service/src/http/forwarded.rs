//! Requests that another node has sent to the owner of the store: forwarded ones, whose client is not the node, and those of its own
//! [`LeaseRunner`](crate::LeaseRunner).

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderName};

use super::auth::Caller;
use super::connection_limits::SharedConnectionPermit;
use crate::node::Node;

/// Header with the secret of the owner.
pub(super) const NODE: HeaderName = HeaderName::from_static("keylane-node");

/// Header of a request that the node sends itself, to lease jobs.
pub(super) const WORKER: HeaderName = HeaderName::from_static("keylane-node-worker");

/// Header with the address of the client.
pub(super) const CLIENT: HeaderName = HeaderName::from_static("keylane-client");

/// Removes the headers of nodes: a client that sends them is no node.
pub(super) fn remove_from(headers: &mut HeaderMap) {
    for name in [NODE, WORKER, CLIENT] {
        headers.remove(name);
    }
}

/// Gives a request that another node has sent the address of its client, and removes the headers of nodes from every request. A request
/// with another secret is one of its sender.
pub(super) fn accept(request: &mut Request, node: Option<&Node>) {
    let headers = request.headers_mut();
    let (secret, client) = (headers.remove(NODE), headers.remove(CLIENT));
    let is_worker = headers.remove(WORKER).is_some();
    let Some((secret, node)) = secret.zip(node) else { return };
    if !node.secret().is(secret.as_bytes()) {
        return;
    }
    let extensions = request.extensions_mut();
    // The node has the connections of many clients, which it counts itself.
    if let Some(permit) = extensions.get::<SharedConnectionPermit>() {
        permit.0.forget_client();
    }
    if is_worker {
        extensions.insert(Caller::node());
    }
    let client = client.and_then(|client| client.to_str().ok()?.parse::<IpAddr>().ok());
    if let Some(client) = client {
        extensions.insert(ConnectInfo(SocketAddr::new(client, 0)));
    }
}
