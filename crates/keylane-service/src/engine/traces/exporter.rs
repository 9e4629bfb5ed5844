//! Exporter: sends spans in batches.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::CONTENT_TYPE;
use reqwest::{Client, StatusCode};
use tokio_util::sync::CancellationToken;

use super::{BATCH, Span, TraceSettings, Traces, otlp};
use crate::engine::timer::{sleep, timeout};
use crate::outgoing_http;

/// Maximum wait for a batch to become complete.
const LINGER: Duration = Duration::from_secs(5);

/// Timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Wait after the first failure in a row; it doubles up to the maximum.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Time for the last spans when the service stops.
const LAST: Duration = Duration::from_secs(2);

/// Loop that sends spans.
#[derive(Debug)]
pub(in crate::engine) struct SpanExporter {
    pub(in crate::engine) traces: Arc<Traces>,
    /// Cancelled when the service has stopped.
    pub(in crate::engine) stopped: CancellationToken,
}

/// Failure of a request.
#[derive(Debug)]
struct SendFailure {
    error: String,
    /// Whether the collector may accept the same spans later.
    may_pass: bool,
    after: Option<Duration>,
}

impl SpanExporter {
    /// Sends spans until the service stops.
    pub(in crate::engine) async fn run(self) {
        let Some(settings) = &self.traces.settings else { return };
        let client =
            match outgoing_http::client_for(&settings.url, |client| client.timeout(TIMEOUT)) {
                Ok(client) => client,
                Err(error) => {
                    let error = outgoing_http::text_of(error);
                    return tracing::error!(
                        error,
                        "spans are not sent, because there is no HTTP client"
                    );
                }
            };
        let mut failures = 0;
        while !self.stopped.is_cancelled() {
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => {}
                () = self.traces.filled.notified() => {}
                () = sleep(LINGER) => {}
            }
            while let Some(batch) = self.next_batch() {
                tokio::select! {
                    biased;
                    () = self.stopped.cancelled() => {
                        self.put_back(batch);
                        break;
                    }
                    sent = send(&client, settings, &batch) => self.note(batch, sent, &mut failures).await,
                }
            }
        }
        let last = async {
            while let Some(batch) = self.next_batch() {
                if send(&client, settings, &batch).await.is_err() {
                    return;
                }
            }
        };
        let _ = timeout(LAST, last).await;
    }

    /// Counts the spans of a batch or returns them to the queue, and waits after a failure. `failures` is the number of
    /// failures in a row.
    async fn note(&self, batch: Vec<Span>, sent: Result<(), SendFailure>, failures: &mut u32) {
        let Err(SendFailure { error, may_pass, after }) = sent else {
            self.traces.queue().exported += batch.len() as u64;
            *failures = 0;
            return;
        };
        if *failures == 0 {
            tracing::warn!(error, "spans were not accepted");
        }
        let wait = FIRST_WAIT * 2_u32.pow((*failures).min(6));
        *failures = failures.saturating_add(1);
        match may_pass {
            true => self.put_back(batch),
            false => self.traces.queue().dropped += batch.len() as u64,
        }
        tokio::select! {
            biased;
            () = self.stopped.cancelled() => {}
            () = sleep(after.unwrap_or(wait).min(MAX_WAIT)) => {}
        }
    }

    /// Takes the next spans.
    fn next_batch(&self) -> Option<Vec<Span>> {
        let mut queue = self.traces.queue();
        let count = queue.spans.len().min(BATCH);
        (count > 0).then(|| queue.spans.drain(..count).collect())
    }

    /// Returns spans to the queue, before those that came meanwhile. The newest are dropped if there are too many.
    fn put_back(&self, batch: Vec<Span>) {
        let mut queue = self.traces.queue();
        for span in batch.into_iter().rev() {
            queue.spans.push_front(span);
        }
        let over = queue.spans.len().saturating_sub(super::MAX_QUEUED);
        queue.dropped += over as u64;
        queue.spans.truncate(super::MAX_QUEUED);
    }
}

async fn send(
    client: &Client,
    settings: &TraceSettings,
    batch: &[Span],
) -> Result<(), SendFailure> {
    let body = otlp::request(&settings.service, batch);
    let request = client
        .post(settings.url.clone())
        .header(CONTENT_TYPE, "application/json")
        .headers(settings.headers.clone())
        .body(body.to_string());
    let response = match request.send().await {
        Ok(response) => response,
        Err(error) => {
            let error = format!("no response: {}", outgoing_http::text_of(error));
            return Err(SendFailure { error, may_pass: true, after: None });
        }
    };
    let status = response.status();
    if status.is_success() {
        return Ok(());
    }
    // As OTLP has it: all others are refusals for good.
    let passing = [
        StatusCode::TOO_MANY_REQUESTS,
        StatusCode::BAD_GATEWAY,
        StatusCode::SERVICE_UNAVAILABLE,
        StatusCode::GATEWAY_TIMEOUT,
    ];
    let after = outgoing_http::retry_after(response.headers());
    let error = outgoing_http::quote(response, 200).await;
    Err(SendFailure { error, may_pass: passing.contains(&status), after })
}
