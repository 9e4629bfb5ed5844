//! HTTP handler: posts each attempt to an address.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{StatusCode, Url};

use super::{Attempt, AttemptFailure, AttemptResult, BoxFuture, Handler, as_json};
use crate::outgoing_http;

/// Maximum size of a response, in bytes.
const MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;

/// Default timeout of a request. A peer can vanish without a reset, and a client may miss a reset
/// of a connection that it reuses at that moment.
const PATIENCE: Duration = Duration::from_mins(10);

/// Maximum number of bytes of a response that an error quotes.
const QUOTED: usize = 300;

/// Posts each subtask's payload to an address; the response body is the result.
///
/// The headers `keylane-job`, `keylane-kind`, `keylane-subtask`, `keylane-key`, `keylane-attempt`,
/// `keylane-fence` and `idempotency-key` identify the attempt; `traceparent` and `tracestate` carry
/// the job's trace context, if it has one. A 2xx status is success. 408, 425, 429, 5xx and
/// connection errors are failures that a retry may fix, and `Retry-After` in seconds is respected;
/// every other status is a lasting failure. Without a timeout of the job or kind, a request times
/// out after ten minutes.
#[derive(Clone, Debug)]
pub struct HttpHandler {
    client: reqwest::Client,
    url: Url,
}

/// Address that cannot be used for requests.
#[derive(Debug, thiserror::Error)]
#[error("`{address}` cannot be posted to: {why}")]
pub struct InvalidAddress {
    address: String,
    why: String,
}

impl HttpHandler {
    /// Returns a handler that posts to `address`, an `http://` or `https://` URL.
    ///
    /// # Errors
    ///
    /// Returns an error if the address is no such URL.
    pub fn new(address: &str) -> Result<Self, InvalidAddress> {
        let failed = |why: String| InvalidAddress { address: address.to_owned(), why };
        let url = Url::parse(address).map_err(|error| failed(error.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err(failed(format!("`{}` is not http or https", url.scheme())));
        }
        let client = outgoing_http::client_for(&url, |client| client);
        let client = client.map_err(|error| failed(outgoing_http::text_of(error)))?;
        Ok(HttpHandler { client, url })
    }
}

impl Handler for HttpHandler {
    fn sort(&self) -> &'static str {
        "http"
    }

    fn patience(&self) -> Option<Duration> {
        Some(PATIENCE)
    }

    fn handle(&self, attempt: Attempt) -> BoxFuture<AttemptResult> {
        let request = self.client.post(self.url.clone());
        let request = request.headers(headers(&attempt)).body(attempt.payload.clone());
        Box::pin(async move {
            let answer = async { read(request.send().await.map_err(no_answer)?).await };
            tokio::select! {
                answer = answer => answer,
                () = attempt.cancelled.cancelled() => Err(AttemptFailure::passing("given up")),
            }
        })
    }
}

fn no_answer(error: reqwest::Error) -> AttemptFailure {
    AttemptFailure::passing(format!("no answer: {}", outgoing_http::text_of(error)))
}

async fn read(mut answer: reqwest::Response) -> AttemptResult {
    let mut body = Vec::new();
    if !answer.status().is_success() {
        return Err(refused(answer).await);
    }
    while let Some(part) = answer.chunk().await.map_err(no_answer)? {
        if body.len() + part.len() > MAX_ANSWER_BYTES {
            return Err(AttemptFailure::lasting(format!(
                "the response is larger than {MAX_ANSWER_BYTES} bytes"
            )));
        }
        body.extend(part);
    }
    Ok(as_json(&body))
}

/// Classifies a response with an error status.
async fn refused(answer: reqwest::Response) -> AttemptFailure {
    let status = answer.status();
    let after = outgoing_http::retry_after(answer.headers());
    let error = outgoing_http::quote(answer, QUOTED).await;
    let failure = if passes(status) {
        AttemptFailure::passing(error)
    } else {
        AttemptFailure::lasting(error)
    };
    AttemptFailure { after, ..failure }
}

/// Whether a retry of the request may get another status.
fn passes(status: StatusCode) -> bool {
    let passing =
        [StatusCode::REQUEST_TIMEOUT, StatusCode::TOO_EARLY, StatusCode::TOO_MANY_REQUESTS];
    status.is_server_error() || passing.contains(&status)
}

fn headers(attempt: &Attempt) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let mut put = |name: &'static str, value: &[u8]| {
        // A value that is not a valid header value is left out.
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    put("keylane-job", attempt.job.to_string().as_bytes());
    put("keylane-kind", attempt.kind.as_bytes());
    put("keylane-subtask", attempt.subtask_name().as_bytes());
    put("keylane-attempt", attempt.number.to_string().as_bytes());
    put("keylane-fence", attempt.fence.to_string().as_bytes());
    put("idempotency-key", attempt.idempotency_key().as_bytes());
    for (name, value) in
        [("traceparent", attempt.traceparent()), ("tracestate", attempt.tracestate())]
    {
        if let Some(value) = value {
            put(name, value.as_bytes());
        }
    }
    if let Some(key) = attempt.keys.first() {
        put("keylane-key", &key.0);
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers
}
