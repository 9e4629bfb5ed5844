//! Sends webhooks over HTTP.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, Response, StatusCode, Url};

use super::addresses::{AllowedNetworks, FilteredResolver, refusal};
use crate::outgoing_http;

/// Maximum length of a URL, in bytes.
pub(crate) const MAX_URL_BYTES: usize = 2048;

/// Timeout of a request, with its response.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Maximum number of bytes of a response that an error quotes.
const QUOTED: usize = 200;

/// Request of a delivery.
#[derive(Clone, Debug)]
pub(crate) struct WebhookRequest {
    pub(crate) url: String,
    /// Id of the delivery, the same for all its attempts.
    pub(crate) id: String,
    /// Time of this attempt, in seconds since 1970.
    pub(crate) timestamp_s: u64,
    pub(crate) signature: String,
    pub(crate) body: String,
}

/// Attempt that has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SendFailure {
    pub(crate) error: String,
    /// Whether another attempt may succeed.
    pub(crate) may_pass: bool,
    /// Delay that the receiver asked for.
    pub(crate) after: Option<Duration>,
}

impl SendFailure {
    fn passing(error: String) -> Self {
        SendFailure { error, may_pass: true, after: None }
    }
}

/// Sends webhooks.
pub(crate) trait WebhookSender: fmt::Debug + Send + Sync {
    /// Sends a request. The receiver has accepted it on success. Cancel safe: the request may be sent or not.
    fn send(&self, request: WebhookRequest) -> BoxFuture<'static, Result<(), SendFailure>>;
}

/// Returns the address of a webhook, or the reason why it is none.
pub(crate) fn check_address(text: &str) -> Result<Url, String> {
    if text.len() > MAX_URL_BYTES {
        return Err(format!("it has {} bytes, and {MAX_URL_BYTES} are the most", text.len()));
    }
    let url = Url::parse(text).map_err(|error| format!("it is no URL: {error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        other => Err(format!("its scheme is `{other}`, and must be `http` or `https`")),
    }
}

/// Sends webhooks over HTTP, to allowed addresses only.
#[derive(Debug)]
pub(super) struct HttpSender {
    client: Client,
    allowed: AllowedNetworks,
}

impl HttpSender {
    pub(super) fn new(allowed: AllowedNetworks) -> Result<Self, reqwest::Error> {
        let client = outgoing_http::client()
            .timeout(TIMEOUT)
            .dns_resolver(Arc::new(FilteredResolver(allowed.clone())))
            // A proxy would resolve the name itself.
            .no_proxy()
            .build()?;
        Ok(HttpSender { client, allowed })
    }

    /// Returns an error for a host that is an address, which is not resolved, if no webhook goes there.
    fn check_host(&self, url: &Url) -> Result<(), SendFailure> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
        match host.parse::<IpAddr>() {
            Ok(address) if !self.allowed.allows(address) => {
                Err(SendFailure::passing(refusal(address)))
            }
            _ => Ok(()),
        }
    }
}

impl WebhookSender for HttpSender {
    fn send(&self, request: WebhookRequest) -> BoxFuture<'static, Result<(), SendFailure>> {
        let WebhookRequest { url, id, timestamp_s, signature, body } = request;
        let checked = check_address(&url).map_err(SendFailure::passing);
        let checked = checked.and_then(|url| self.check_host(&url).map(|()| url));
        let client = self.client.clone();
        Box::pin(async move {
            let request = client
                .post(checked?)
                .header(CONTENT_TYPE, "application/json")
                .header("webhook-id", id)
                .header("webhook-timestamp", timestamp_s)
                .header("webhook-signature", signature)
                .body(body);
            match request.send().await {
                Ok(response) => outcome_of(response).await,
                Err(error) => {
                    let error = format!("no response: {}", outgoing_http::text_of(error));
                    Err(SendFailure::passing(error))
                }
            }
        })
    }
}

/// Every 2xx status is success. 410 says that the receiver wants no more of it.
async fn outcome_of(response: Response) -> Result<(), SendFailure> {
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    let after = outgoing_http::retry_after(response.headers());
    let error = outgoing_http::quote(response, QUOTED).await;
    Err(SendFailure { error, may_pass: status != StatusCode::GONE, after })
}
