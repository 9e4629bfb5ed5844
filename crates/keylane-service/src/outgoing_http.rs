//! What outgoing HTTP requests have in common: their client, and the texts of their failures.

use std::time::Duration;

use reqwest::header::{HeaderMap, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Response, Url, redirect};

/// Returns a client that follows no redirect: a redirected POST can turn into a GET without the body, or go to an address
/// that was not checked.
pub(crate) fn client() -> ClientBuilder {
    // An error means that a provider is installed already, which is fine.
    let _ = rustls::crypto::ring::default_provider().install_default();
    ClientBuilder::new()
        .connect_timeout(Duration::from_secs(10))
        .redirect(redirect::Policy::none())
        .user_agent(concat!("keylane/", env!("CARGO_PKG_VERSION")))
}

/// Builds a client for one address. A machine without the certificates of authorities, such as a minimal container, can send to
/// `http://` all the same.
///
/// # Errors
/// If the system cannot provide one.
pub(crate) fn client_for(
    url: &Url,
    set: impl Fn(ClientBuilder) -> ClientBuilder,
) -> Result<Client, reqwest::Error> {
    let built = set(client()).build();
    match url.scheme() {
        "http" => built.or_else(|_| set(client()).tls_certs_only([]).build()),
        _ => built,
    }
}

/// Returns the text of an error with its causes, without the URL, which may have a password.
pub(crate) fn text_of(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Returns a text with the status of a response, and the first bytes of its body. No more is read, so that a long or
/// truncated body cannot change the result.
pub(crate) async fn quote(mut response: Response, most: usize) -> String {
    let status = response.status();
    let mut body = Vec::new();
    while body.len() < most
        && let Ok(Some(part)) = response.chunk().await
    {
        body.extend(part);
    }
    let quoted = String::from_utf8_lossy(&body[..body.len().min(most)]);
    match quoted.trim() {
        "" => format!("the response was {status}"),
        text => format!("the response was {status}: {}", text.escape_debug()),
    }
}

/// Returns the delay before a repeated request that a response asks for in seconds.
pub(crate) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}
