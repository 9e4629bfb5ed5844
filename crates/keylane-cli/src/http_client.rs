//! HTTP clients of the commands.

use anyhow::Context;
use reqwest::{Client, ClientBuilder, Url};

/// Builds a client for one address. A machine without the certificates of authorities, such as a minimal container, can ask
/// `http://` all the same.
pub(crate) fn client_for(
    url: &Url,
    set: impl Fn(ClientBuilder) -> ClientBuilder,
) -> anyhow::Result<Client> {
    // An error means that a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let built = set(Client::builder()).build();
    let built = match url.scheme() {
        "http" => built.or_else(|_| set(Client::builder()).tls_certs_only([]).build()),
        _ => built,
    };
    built.context(
        "cannot prepare for HTTPS; install the certificates of authorities (package ca-certificates), or name their file in SSL_CERT_FILE",
    )
}
