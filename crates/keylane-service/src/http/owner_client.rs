//! HTTP client of a node for the owner of the store: it accepts the owner's certificate only.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use reqwest::{Client, ClientBuilder};

use super::pinned_certificate;
use crate::node::NodeAddress;
use crate::outgoing_http;

/// Maximum time to connect to the owner.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// Maximum time for which the owner's machine may acknowledge nothing. A request to it then fails. A request that waits for a
/// claim sends nothing, so the connection is probed as well.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(5);

/// Time without traffic after which a connection is probed, and between probes.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Client for the last owner.
#[derive(Debug, Default)]
pub(super) struct OwnerClient(Mutex<Option<(NodeAddress, Client)>>);

impl OwnerClient {
    /// Returns the client for an owner. A client belongs to one address, because it accepts one certificate.
    ///
    /// # Errors
    /// If the system cannot provide one, with the reason.
    pub(super) fn at(&self, address: &NodeAddress) -> Result<Client, String> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, client)) = &*known
            && of == address
        {
            return Ok(client.clone());
        }
        let tls = pinned_certificate::client_config(address.certificate);
        let client = with_timeouts(outgoing_http::client())
            .no_proxy()
            .http1_only()
            .tls_backend_preconfigured(tls)
            .build()
            .map_err(outgoing_http::text_of)?;
        *known = Some((address.clone(), client.clone()));
        Ok(client)
    }
}

fn with_timeouts(client: ClientBuilder) -> ClientBuilder {
    let probes = SILENCE_TIMEOUT.as_secs() / PROBE_INTERVAL.as_secs();
    let client = client
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_keepalive(PROBE_INTERVAL)
        .tcp_keepalive_interval(PROBE_INTERVAL)
        .tcp_keepalive_retries(probes as u32);
    #[cfg(target_os = "linux")]
    let client = client.tcp_user_timeout(SILENCE_TIMEOUT);
    client
}
