//! Operator requests with an idempotency key.
//!
//! The key is committed together with the action and its audit entry. A request that finds its key
//! does nothing, and is answered with the current state. A request that was refused, or had nothing
//! to do, stores no key and is evaluated again next time.
//!
//! Requests with the same key run one after another: each holds a claim on the key until its
//! changes are on the disk.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::clock::{Clock, millis};
use super::executor::Executor;
use super::name_locks::{NameLock, NameLocks};
use super::store_status::read_refused;
use crate::JobId;
use crate::request_error::RequestError;
use crate::store::{IdempotencyEntry, Store};

/// Request with an idempotency key.
#[derive(Clone, Debug)]
pub(crate) struct KeyedRequest {
    /// Caller, which is the scope of the key. Submissions have a separate scope.
    scope: String,
    key: String,
    /// Hash of the method, the path and query, and the body, to detect a different request with the
    /// same key.
    hash: [u8; 32],
}

/// Earlier action under a key.
#[derive(Debug)]
pub(crate) enum EarlierAction {
    /// No action. The claim makes other requests with the key wait.
    Nothing(KeyedClaim),
    /// An action by an equal request, on this job if it was about a job.
    Same(JobId),
}

/// Exclusive right to an idempotency key.
#[derive(Debug)]
pub(crate) struct KeyedClaim(#[expect(dead_code, reason = "it is held")] NameLock);

impl KeyedRequest {
    pub(crate) fn new(
        (scope, key): (String, String),
        method: &str,
        uri: &str,
        body: &[u8],
    ) -> Self {
        let mut hash = Sha256::new();
        for part in [method.as_bytes(), b" ", uri.as_bytes(), b"\n", body] {
            hash.update(part);
        }
        // No caller's name contains a line end.
        KeyedRequest { scope: format!("{scope}\nactions"), key, hash: hash.finalize().into() }
    }

    /// Returns the stored form of the key, valid until `expires_ms`.
    fn entry(self, expires_ms: u64) -> IdempotencyEntry {
        IdempotencyEntry { scope: self.scope, key: self.key, body_hash: self.hash, expires_ms }
    }
}

/// Idempotency keys: requests in progress, and stored keys.
#[derive(Debug)]
pub(crate) struct IdempotencyKeys {
    /// Locks of the idempotency keys and client ids of requests in progress.
    claims: Arc<NameLocks>,
    store: Store,
    clock: Arc<Clock>,
    executor: Executor,
    /// Retention time of the keys.
    keep: Duration,
}

impl IdempotencyKeys {
    pub(super) fn new(store: Store, clock: Arc<Clock>, executor: Executor, keep: Duration) -> Self {
        IdempotencyKeys { claims: Arc::default(), store, clock, executor, keep }
    }

    /// Waits until no other request holds the name. Cancel safe.
    pub(super) async fn claim(&self, scope: &str, key: &str) -> NameLock {
        self.claims.claim(scope, key).await
    }

    /// Returns the stored key and the job of its request, unless it has expired. While the clock is
    /// doubted no key expires, because a repeated request would become a second job. Reads the
    /// store.
    pub(super) fn find(
        &self,
        scope: &str,
        key: &str,
    ) -> Result<Option<(IdempotencyEntry, JobId)>, RequestError> {
        let found = self.store.idempotent(scope, key).map_err(read_refused)?;
        let (now, is_doubted) = (self.clock.now().0, self.clock.doubted_for().is_some());
        Ok(found.filter(|(entry, _)| is_doubted || entry.expires_ms > now))
    }

    /// Returns the time until which an idempotency key used now is kept.
    pub(super) fn ends(&self) -> u64 {
        self.clock.now().0.saturating_add(millis(self.keep))
    }

    /// Returns true if a request with this key is in progress.
    #[cfg(test)]
    pub(crate) fn is_claimed(&self, scope: &str, key: &str) -> bool {
        self.claims.has(scope, key)
    }

    /// Waits until no other request with the key is in progress, and returns the earlier action
    /// under it.
    ///
    /// # Errors
    /// Returns an error if a different request was done under the key.
    pub(crate) async fn claim_keyed(
        self: &Arc<Self>,
        keyed: &KeyedRequest,
    ) -> Result<EarlierAction, RequestError> {
        let claim = self.claims.claim(&keyed.scope, &keyed.key).await;
        let KeyedRequest { scope, key, hash } = keyed.clone();
        let keys = Arc::clone(self);
        let found = self.executor.blocking(move || keys.find(&scope, &key)).await;
        let found = found.unwrap_or_else(|panic| Err(RequestError::StoreFailed(panic.to_string())));
        match found? {
            None => Ok(EarlierAction::Nothing(KeyedClaim(claim))),
            Some((entry, _)) if entry.body_hash != hash => Err(RequestError::OtherRequest),
            Some((_, job)) => Ok(EarlierAction::Same(job)),
        }
    }

    /// Returns the stored form of a request's key, to be committed with the request's changes.
    pub(super) fn stored_form(&self, keyed: KeyedRequest) -> IdempotencyEntry {
        keyed.entry(self.ends())
    }
}
