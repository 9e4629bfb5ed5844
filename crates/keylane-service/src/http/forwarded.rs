//! Requests that another node has forwarded to the owner of the store: their client is not the node.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request};
use axum::http::HeaderName;

use super::connection_limits::SharedConnectionPermit;
use crate::node::Node;

/// Header with the secret of the owner.
pub(super) const NODE: HeaderName = HeaderName::from_static("keylane-node");

/// Header with the address of the client.
pub(super) const CLIENT: HeaderName = HeaderName::from_static("keylane-client");

/// Gives a request that another node has sent the address of its client, and removes the headers of nodes from every request. A request
/// with another secret is one of its sender.
pub(super) fn accept(request: &mut Request, node: Option<&Node>) {
    let headers = request.headers_mut();
    let (secret, client) = (headers.remove(NODE), headers.remove(CLIENT));
    let Some((secret, node)) = secret.zip(node) else { return };
    if !node.secret().is(secret.as_bytes()) {
        return;
    }
    let extensions = request.extensions_mut();
    // The node has the connections of many clients, which it counts itself.
    if let Some(permit) = extensions.get::<SharedConnectionPermit>() {
        permit.0.forget_client();
    }
    let client = client.and_then(|client| client.to_str().ok()?.parse::<IpAddr>().ok());
    if let Some(client) = client {
        extensions.insert(ConnectInfo(SocketAddr::new(client, 0)));
    }
}
