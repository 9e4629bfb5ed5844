//! Jobs that are unique for a time: an equal one is not accepted again.
//!
//! Two jobs are equal if they have the same kind, tenant and subtasks, in their order: the same keys, and the same bytes
//! as payloads. The first one stores the hash of these as an idempotency key of its own, in its transaction, until its
//! time is over. While a request holds the claim on that key, another equal one waits. So of equal jobs one is accepted,
//! also if they come at the same time, and after a crash. A job that was removed is not equal to any.

use sha2::{Digest, Sha256};

use super::submission::Submission;
use super::submit_reply::SubmitResult;
use crate::KeyClaim;
use crate::request_error::RequestError;
use crate::store::{Changes, IdempotencyEntry, JobAlias};
use crate::wire::Timestamp;

/// Hash of the subtasks of a job that is unique for a time.
#[derive(Clone, Debug)]
pub(super) struct UniqueHash {
    /// Period from the acceptance on, in milliseconds.
    period: u64,
    hash: Sha256,
}

/// Name that equal jobs have in common.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct UniqueName {
    pub(super) scope: String,
    pub(super) key: String,
}

impl UniqueHash {
    pub(super) fn new(period: u64) -> Self {
        UniqueHash { period, hash: Sha256::new() }
    }

    /// Adds a subtask.
    pub(super) fn add(&mut self, keys: &[KeyClaim<'_>], payload: &str) {
        self.hash.update((keys.len() as u64).to_be_bytes());
        for KeyClaim { key, is_shared } in keys {
            self.hash.update([u8::from(*is_shared)]);
            self.hash.update((key.len() as u64).to_be_bytes());
            self.hash.update(key);
        }
        self.hash.update((payload.len() as u64).to_be_bytes());
        self.hash.update(payload);
    }

    /// Returns the name of a job with these subtasks.
    pub(super) fn name(&self, kind: &str, tenant: Option<&str>) -> UniqueName {
        let digest = self.hash.clone().finalize();
        let key = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        // No name of a kind, tenant or caller contains a line end.
        UniqueName { scope: format!("{kind}\n{}\nunique", tenant.unwrap_or_default()), key }
    }

    /// Returns the stored form of the name of a job that is accepted `now`.
    pub(super) fn entry(&self, name: UniqueName, now: Timestamp) -> IdempotencyEntry {
        let UniqueName { scope, key } = name;
        let expires_ms = now.0.saturating_add(self.period);
        IdempotencyEntry { scope, key, body_hash: [0; 32], expires_ms }
    }
}

impl Submission {
    /// Returns the equal job that was accepted before, if its time is not over. Reads the store.
    pub(super) fn equal_job(
        &self,
        name: &UniqueName,
    ) -> Result<Option<SubmitResult>, RequestError> {
        let Some((_, id)) = self.idempotency.find(&name.scope, &name.key)? else { return Ok(None) };
        match self.query.job(id) {
            Ok(job) => Ok(Some(SubmitResult { id, job, replayed: true })),
            Err(RequestError::Gone { .. } | RequestError::Unknown { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Stores the names of a request that gets an equal job as its answer: its idempotency key and its client id. A
    /// repetition gets that job too, also later.
    pub(super) async fn note_equal(
        &self,
        idempotency: Option<IdempotencyEntry>,
        alias: Option<JobAlias>,
        equal: &SubmitResult,
    ) -> Result<(), RequestError> {
        if idempotency.is_none() && alias.is_none() {
            return Ok(());
        }
        let mut changes = Changes::new();
        if let Some(entry) = idempotency {
            changes.idempotency(entry, equal.id);
        }
        if let Some(alias) = alias {
            changes.alias(alias);
        }
        let written = self.store.submit(changes).await;
        written.map(drop).map_err(|error| self.status.write_refused(error))
    }
}
