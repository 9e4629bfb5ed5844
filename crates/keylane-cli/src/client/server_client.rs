//! Requests to a server: one client, one address and one token, without redirects.

use std::net::IpAddr;
use std::time::Duration;

use anyhow::Context;
use http_body_util::BodyExt;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Method, RequestBuilder, Response, StatusCode, Url, redirect};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::error::{ErrorResponse, RequestError};
use super::options::ServerArgs;
use super::tls_errors;
use crate::http_client;

/// Timeout of a connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);

/// Timeout of a response that the server gives at once, after a write to its disk.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Maximum size of a response, in bytes: a page of a thousand results of a megabyte each fits.
const MAX_ANSWER_BYTES: usize = 2 << 30;

/// A server, and how it is asked.
#[derive(Debug)]
pub(super) struct ServerClient {
    client: reqwest::Client,
    base: Url,
}

/// Body and headers of a response.
#[derive(Debug)]
pub(super) struct ServerResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Vec<u8>,
}

impl ServerResponse {
    /// Parses the body.
    pub(super) fn read<T: DeserializeOwned>(&self) -> anyhow::Result<T> {
        serde_json::from_slice(&self.body).context(
            "the response is not valid; check that this is a Keylane server of the same version as this command",
        )
    }
}

impl ServerClient {
    pub(super) fn new(args: &ServerArgs) -> anyhow::Result<Self> {
        let base = args.address()?;
        let mut headers = HeaderMap::new();
        if let Some(token) = args.token()? {
            headers.insert(AUTHORIZATION, token);
        }
        let client = http_client::client_for(&base, |client| {
            let client = client
                .connect_timeout(CONNECT_WITHIN)
                // An upload may take hours: only a peer that is gone ends it.
                .tcp_keepalive(Duration::from_secs(30))
                .default_headers(headers.clone())
                // The token is for this server.
                .redirect(redirect::Policy::none())
                .user_agent(concat!("keylane/", env!("CARGO_PKG_VERSION")));
            // A server on this machine is never behind a proxy.
            if is_loopback(&base) { client.no_proxy() } else { client }
        })?;
        Ok(ServerClient { client, base })
    }

    /// URL of a path, each word of which is one segment.
    pub(super) fn url(&self, words: &[&str]) -> anyhow::Result<Url> {
        let mut url = self.base.clone();
        url.path_segments_mut()
            .ok()
            .context("the server's address has no path")?
            .pop_if_empty()
            .extend(words);
        // URL parsing removes `.` and `..`, and the rest would name another resource.
        let vanishes = words.iter().any(|word| matches!(*word, "" | "." | ".."));
        anyhow::ensure!(!vanishes, "a name in a request must not be empty, `.` or `..`");
        Ok(url)
    }

    pub(super) fn request(&self, method: Method, url: Url) -> RequestBuilder {
        self.client.request(method, url)
    }

    /// Asks for something that is there at once.
    pub(super) async fn get(
        &self,
        words: &[&str],
        query: &[(&str, &str)],
    ) -> anyhow::Result<ServerResponse> {
        let mut url = self.url(words)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        self.answer(self.request(Method::GET, url).timeout(ANSWER_WITHIN)).await
    }

    /// Requests and parses a resource.
    pub(super) async fn read<T: DeserializeOwned>(
        &self,
        words: &[&str],
        query: &[(&str, &str)],
    ) -> anyhow::Result<T> {
        self.get(words, query).await?.read()
    }

    /// Sends a command to the server.
    pub(super) async fn post(
        &self,
        words: &[&str],
        body: &impl Serialize,
    ) -> anyhow::Result<ServerResponse> {
        let request = self.request(Method::POST, self.url(words)?).timeout(ANSWER_WITHIN);
        let json = HeaderValue::from_static("application/json");
        self.answer(request.header(CONTENT_TYPE, json).body(serde_json::to_vec(body)?)).await
    }

    /// Sends a request, and takes its answer; a refusal is an error.
    pub(super) async fn answer(&self, request: RequestBuilder) -> anyhow::Result<ServerResponse> {
        let response = self.send(request).await?;
        let (status, headers) = (response.status(), response.headers().clone());
        let body = http_body_util::Limited::new(reqwest::Body::from(response), MAX_ANSWER_BYTES);
        let body = body.collect().await.map_err(|error| self.broken(&*error))?;
        Ok(ServerResponse { status, headers, body: body.to_bytes().into() })
    }

    /// Sends a request; the answer's body is yet to come.
    pub(super) async fn send(&self, request: RequestBuilder) -> anyhow::Result<Response> {
        let response = request.send().await.map_err(|error| self.broken(&error))?;
        let status = response.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(response);
        }
        let own = response.url().path().strip_prefix(self.base.path().trim_end_matches('/'));
        let path = own.unwrap_or_default().to_owned();
        let retry_after = response.headers().get(RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()?.parse().ok());
        // A refusal counts even if its body cannot be read.
        let body = response.bytes().await.unwrap_or_default();
        Err(RequestError::Refused(ErrorResponse::new(status, &body, retry_after, &path)).into())
    }

    /// The server is not there, or not any more.
    pub(super) fn broken(&self, error: &(dyn std::error::Error + 'static)) -> RequestError {
        let server = self.base.origin().ascii_serialization();
        // The innermost cause helps most; the outer ones only mention a failure.
        let mut cause = error;
        while let Some(inner) = cause.source() {
            if let Some(why) = tls_errors::explained(inner) {
                return RequestError::Untrusted { server, why };
            }
            cause = inner;
        }
        let why = cause.to_string();
        match error.downcast_ref::<reqwest::Error>().is_some_and(reqwest::Error::is_connect) {
            true => RequestError::NotConnected { server, why },
            false => RequestError::Unreachable { server, why },
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// Runs a command of this module to its end, on this thread.
pub(super) fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(work)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(base: &str) -> ServerClient {
        let _ = rustls::crypto::ring::default_provider().install_default();
        ServerClient { client: reqwest::Client::new(), base: Url::parse(base).unwrap() }
    }

    #[test]
    fn words_are_parts_of_the_path_whatever_is_in_them() {
        let server = server("http://localhost:7420/base");
        let url = |words: &[&str]| server.url(words).map(String::from);
        assert_eq!(
            url(&["v1", "keys", "a/b?c#d %é", "pause"]).unwrap(),
            "http://localhost:7420/base/v1/keys/a%2Fb%3Fc%23d%20%25%C3%A9/pause"
        );
        for word in ["", ".", ".."] {
            assert!(url(&["v1", "keys", word]).is_err(), "{word:?}");
        }
    }

    #[test]
    fn what_is_on_this_machine_is_known() {
        for base in ["http://localhost/", "http://127.0.0.1:7420/", "http://[::1]:1/"] {
            assert!(is_loopback(&Url::parse(base).unwrap()), "{base}");
        }
        assert!(!is_loopback(&Url::parse("http://10.0.0.1/").unwrap()));
    }
}
