//! Requests about leases to the server that owns the store, and their answers.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::handle::BoxFuture;
use crate::wire::{
    Claim, ClaimRequest, CompleteBatch, CompleteResults, HeartbeatBatch, HeartbeatResults,
    LeaseEnd, Problem,
};

/// Way to the API of the server that owns the store.
pub(crate) trait LeaseTransport: Send + Sync {
    /// Name of this process among the workers.
    fn worker(&self) -> String;

    /// Sends a request with a JSON body. Returns the status and the body of the answer. Cancel safe.
    fn post(
        &self,
        path: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<Result<(u16, Bytes), TransportError>>;
}

/// Path of a request that only servers send.
pub(crate) const FORMER: &str = "/v1/leases/former";

/// Asks for the next fence, or ends the leases of a server's former process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct FormerLeases {
    /// Name of the server among the workers.
    pub(crate) worker: String,
    /// Fence below which its leases are ended; none is without one.
    pub(crate) below: Option<u64>,
}

/// Answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NextFence {
    /// Number above the fences of all leases before the request.
    pub(crate) next_fence: u64,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) struct TransportError(pub(crate) String);

/// Why a request had no effect that is known.
#[derive(Debug)]
pub(super) enum LeaseApiError {
    /// It can be sent again.
    Passing(String),
    /// The server does not accept it. `kind` is the place of a wrong kind in the request.
    Refused { why: String, kind: Option<usize> },
}

impl fmt::Display for LeaseApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (LeaseApiError::Passing(why) | LeaseApiError::Refused { why, .. }) = self;
        f.write_str(why)
    }
}

/// Future of a status and a body.
type Answer = BoxFuture<Result<(u16, Bytes), LeaseApiError>>;

/// API of leases over a transport.
#[derive(Clone)]
pub(super) struct LeaseApi(pub(super) Arc<dyn LeaseTransport>);

impl LeaseApi {
    fn claim_request(&self, kinds: Vec<String>, max: usize, wait: Duration) -> ClaimRequest {
        let max = u32::try_from(max).unwrap_or(u32::MAX);
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let worker = Some(self.0.worker());
        ClaimRequest { kinds, max: Some(max), wait_ms: Some(wait_ms), worker }
    }

    /// Claims up to `max` leases, and waits for the first.
    pub(super) fn claim(
        &self,
        kinds: Vec<String>,
        max: usize,
        wait: Duration,
    ) -> BoxFuture<Result<Claim, LeaseApiError>> {
        self.call("/v1/leases", &self.claim_request(kinds, max, wait))
    }

    /// Reports ends, which it returns, and claims up to `max` leases that are ready.
    pub(super) fn report(
        &self,
        leases: Vec<LeaseEnd>,
        kinds: Vec<String>,
        max: usize,
    ) -> (Vec<LeaseEnd>, BoxFuture<Result<CompleteResults, LeaseApiError>>) {
        let claim = (max > 0).then(|| self.claim_request(kinds, max, Duration::ZERO));
        let batch = CompleteBatch { leases, claim };
        let called = self.call("/v1/leases/complete", &batch);
        (batch.leases, called)
    }

    /// Extends leases.
    pub(super) fn heartbeat(
        &self,
        batch: &HeartbeatBatch,
    ) -> BoxFuture<Result<HeartbeatResults, LeaseApiError>> {
        self.call("/v1/leases/heartbeat", batch)
    }

    /// Asks for the next fence, and ends the leases of this server with fences below `below`. Returns `None` if the owner of the store
    /// has a version that does not know this request.
    pub(super) fn former(
        &self,
        below: Option<u64>,
    ) -> BoxFuture<Result<Option<u64>, LeaseApiError>> {
        let request = FormerLeases { worker: self.0.worker(), below };
        let answer = self.send(FORMER, &request);
        Box::pin(async move {
            match answer.await? {
                (404 | 405, _) => Ok(None),
                (200, body) => read(&body).map(|NextFence { next_fence }| Some(next_fence)),
                (status, body) => Err(refusal(status, &body)),
            }
        })
    }

    fn call<A: DeserializeOwned + 'static>(
        &self,
        path: &'static str,
        request: &impl Serialize,
    ) -> BoxFuture<Result<A, LeaseApiError>> {
        let answer = self.send(path, request);
        Box::pin(async move {
            match answer.await? {
                (200, body) => read(&body),
                (status, body) => Err(refusal(status, &body)),
            }
        })
    }

    /// Sends a request. Returns the status and the body of the answer.
    fn send(&self, path: &'static str, request: &impl Serialize) -> Answer {
        let body = serde_json::to_vec(request).expect("a request can be written as JSON");
        let answer = self.0.post(path, body);
        Box::pin(
            async move { answer.await.map_err(|TransportError(why)| LeaseApiError::Passing(why)) },
        )
    }
}

/// Reads the answer to a request that had its effect.
fn read<A: DeserializeOwned>(body: &[u8]) -> Result<A, LeaseApiError> {
    serde_json::from_slice(body)
        .map_err(|error| LeaseApiError::Passing(format!("the answer cannot be read: {error}")))
}

/// Reads an answer that is no success.
fn refusal(status: u16, body: &[u8]) -> LeaseApiError {
    let Ok(problem) = serde_json::from_slice::<Problem>(body) else {
        return LeaseApiError::Passing(format!("the answer has the status {status}"));
    };
    let why = problem.detail.clone();
    match status {
        400 | 404 | 413 | 422 => {
            let places = problem.errors.iter();
            let kind = places.filter_map(|error| kind_at(&error.pointer)).next();
            LeaseApiError::Refused { why, kind }
        }
        _ => LeaseApiError::Passing(why),
    }
}

/// Returns the place of a kind that a JSON pointer names.
fn kind_at(pointer: &str) -> Option<usize> {
    let pointer = pointer.strip_prefix("/claim").unwrap_or(pointer);
    pointer.strip_prefix("/kinds/")?.parse().ok()
}
