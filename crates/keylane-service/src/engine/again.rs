//! Operator requests with an idempotency key.
//!
//! The key is committed together with the action and its audit entry. A request that finds its key
//! does nothing, and is answered with the current state. A request that was refused, or had nothing
//! to do, stores no key and is evaluated again next time.
//!
//! Requests with the same key run one after another: each holds a claim on the key until its
//! changes are on the disk.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::claims::Claim;
use super::{Core, Refused};
use crate::JobId;
use crate::store::Idempotency;

/// Request with an idempotency key.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    /// Caller, which is the scope of the key. Submissions have a separate scope.
    scope: String,
    key: String,
    /// Hash of the method, the path and query, and the body, to detect a different request with the
    /// same key.
    hash: [u8; 32],
}

/// Earlier action under a key.
#[derive(Debug)]
pub(crate) enum Before {
    /// No action. The claim makes other requests with the key wait.
    Nothing(KeyedClaim),
    /// An action by an equal request, on this job if it was about a job.
    Same(JobId),
}

/// Exclusive right to an idempotency key.
#[derive(Debug)]
pub(crate) struct KeyedClaim(#[expect(dead_code, reason = "it is held")] Claim);

impl Keyed {
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
        Keyed { scope: format!("{scope}\nactions"), key, hash: hash.finalize().into() }
    }

    /// Returns the stored form of the key, valid until `expires_ms`.
    fn entry(self, expires_ms: u64) -> Idempotency {
        Idempotency { scope: self.scope, key: self.key, body_hash: self.hash, expires_ms }
    }
}

impl Core {
    /// Waits until no other request with the key is in progress, and returns the earlier action
    /// under it.
    ///
    /// # Errors
    /// Returns an error if a different request was done under the key.
    pub(crate) async fn claim_keyed(self: &Arc<Self>, keyed: &Keyed) -> Result<Before, Refused> {
        let claim = self.claims.claim(&keyed.scope, &keyed.key).await;
        let Keyed { scope, key, hash } = keyed.clone();
        let found = self.look_up(move |core| {
            let found = core.store.idempotent(&scope, &key);
            let found = found.map_err(|error| core.read_refused(error))?;
            let now = core.clock.now().0;
            Ok(found.filter(|(entry, _)| entry.expires_ms > now))
        });
        match found.await? {
            None => Ok(Before::Nothing(KeyedClaim(claim))),
            Some((entry, _)) if entry.body_hash != hash => Err(Refused::OtherRequest),
            Some((_, job)) => Ok(Before::Same(job)),
        }
    }

    /// Returns the stored form of a request's key, to be committed with the request's changes.
    pub(super) fn kept_key(&self, keyed: Keyed) -> Idempotency {
        keyed.entry(self.idempotency_ends())
    }
}
