//! Requests of operators that come with an idempotency key.
//!
//! The key is on the disk together with what was done and its entry in the audit log: one of the changes of the same
//! transaction. A request that finds its key there does nothing, and is answered with the present state. A request that
//! was refused, or had nothing to do, leaves no key behind and is examined anew.
//!
//! Requests under one key come one after another: each holds a claim on the key until its changes are on the disk.

use std::sync::Arc;

use sha2::{Digest, Sha256};

use super::claims::Claim;
use super::{Core, Refused};
use crate::JobId;
use crate::store::Idempotency;

/// A request under an idempotency key.
#[derive(Clone, Debug)]
pub(crate) struct Keyed {
    /// The caller, whose keys these are. A submission under the same key is another matter.
    scope: String,
    key: String,
    /// Of the method, the path and query, and the body: another request under the key is noticed.
    hash: [u8; 32],
}

/// What was done under a key before.
#[derive(Debug)]
pub(crate) enum Before {
    /// Nothing. The claim keeps other requests under the key waiting.
    Nothing(KeyedClaim),
    /// The same request, about this job if it was about one.
    Same(JobId),
}

/// A claim on an idempotency key.
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
        // No caller has a name with a line end.
        Keyed { scope: format!("{scope}\nactions"), key, hash: hash.finalize().into() }
    }

    /// What is kept of it, until that time.
    fn entry(self, expires_ms: u64) -> Idempotency {
        Idempotency { scope: self.scope, key: self.key, body_hash: self.hash, expires_ms }
    }
}

impl Core {
    /// Waits until no other request under the key is on its way, and looks for what was done under it.
    ///
    /// # Errors
    /// If another request was done under the key.
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

    /// The key of a request as it goes to the disk with the changes that the request makes.
    pub(super) fn kept_key(&self, keyed: Keyed) -> Idempotency {
        keyed.entry(self.idempotency_ends())
    }
}
