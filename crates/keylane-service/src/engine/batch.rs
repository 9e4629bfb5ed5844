//! Submission of several jobs in one transaction: all are accepted or none.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::oneshot;

use super::job_submission::JobSubmission;
use super::name_locks::NameLock;
use super::submission::{AcceptedJob, Submission};
use super::submit_reply::SubmitResult;
use super::unique_jobs::UniqueName;
use crate::JobId;
use crate::request_error::RequestError;
use crate::store::{Changes, IdempotencyEntry, JobUpload, NewJob};

/// Returns the idempotency key of a job in a batch: the batch's key and the job's place. No
/// client's key contains a line end.
pub(crate) fn key_in_batch(key: &str, place: usize) -> String {
    format!("{key}\n{place}")
}

/// Part of a batch.
enum BatchPart {
    New(Box<AcceptedJob>),
    /// It is not accepted, because it is equal to another one that is unique.
    Equal(EqualJob),
}

/// Job to which another one is equal.
#[derive(Clone, Debug)]
enum EqualJob {
    /// It was accepted before.
    Before(Box<SubmitResult>),
    /// It is at this place of the same batch.
    InBatch(usize, JobId),
}

impl EqualJob {
    fn id(&self) -> JobId {
        match self {
            EqualJob::Before(before) => before.id,
            EqualJob::InBatch(_, id) => *id,
        }
    }
}

/// Batch that is ready for the store.
#[derive(Default)]
struct PreparedBatch {
    /// New jobs, for the store.
    jobs: Vec<(JobUpload, NewJob)>,
    /// All jobs, in the order of the request.
    parts: Vec<BatchPart>,
    changes: Changes,
}

/// Separates new jobs from those that are equal to a `known` one, or to an earlier one of the batch. `entry_of` returns
/// the idempotency key of the job at a place.
fn prepare(
    jobs: impl Iterator<Item = (JobSubmission, Option<UniqueName>)>,
    mut known: BTreeMap<UniqueName, EqualJob>,
    entry_of: impl Fn(usize) -> Option<IdempotencyEntry>,
) -> Result<PreparedBatch, RequestError> {
    let mut batch = PreparedBatch::default();
    for (place, (job, name)) in jobs.enumerate() {
        let entry = entry_of(place);
        if let Some(equal) = name.as_ref().and_then(|name| known.get(name)) {
            entry.into_iter().for_each(|entry| batch.changes.idempotency(entry, equal.id()));
            job.alias_of(equal.id()).into_iter().for_each(|alias| batch.changes.alias(alias));
            batch.parts.push(BatchPart::Equal(equal.clone()));
            continue;
        }
        job.alias_of(job.id()).into_iter().for_each(|alias| batch.changes.alias(alias));
        if let Some(name) = name {
            batch.changes.idempotency(job.unique_entry(name.clone()), job.id());
            known.insert(name, EqualJob::InBatch(place, job.id()));
        }
        let (upload, new, entering) = job.into_parts(entry)?;
        batch.jobs.push((upload, new));
        batch.parts.push(BatchPart::New(entering.into()));
    }
    Ok(batch)
}

impl Submission {
    /// Accepts jobs in one transaction, in their order, or none of them. `hash` is the hash of the
    /// whole request; an equal request under the same key gets the same jobs. `also` are further changes of the transaction. Names that jobs were
    /// [called](JobSubmission::call) are of this request alone.
    pub(crate) async fn accept_together(
        self: &Arc<Self>,
        mut intakes: Vec<JobSubmission>,
        scope: Option<(String, String)>,
        hash: [u8; 32],
        also: Changes,
    ) -> Result<Vec<SubmitResult>, RequestError> {
        let mut claim = None;
        if let Some((caller, key)) = scope.clone() {
            claim = Some(self.idempotency.claim(&caller, &key).await);
            let count = intakes.len();
            // One blocking call for all jobs, because there may be a thousand.
            let before =
                self.look_up(move |this| this.submitted_together(&caller, &key, hash, count));
            if let Some(before) = before.await? {
                return Ok(before);
            }
        }
        self.may_take_more()?;
        let names: Vec<_> = intakes.iter().map(JobSubmission::unique_name).collect();
        let (claims, known) = self.claim_unique(names.iter().flatten()).await?;
        for intake in &mut intakes {
            intake.register_after().await?;
        }
        let expires_ms = self.idempotency.ends();
        let entry_of = |place| {
            let (scope, key) = scope.clone()?;
            let key = key_in_batch(&key, place);
            Some(IdempotencyEntry { scope, key, body_hash: hash, expires_ms })
        };
        let named = intakes.into_iter().zip(names);
        let PreparedBatch { jobs, parts, changes } = prepare(named, known, entry_of)?;
        let changes = changes.followed_by(also);
        let (reply, replied) = oneshot::channel();
        let this = Arc::clone(self);
        let accept = move |committed: Result<_, _>| {
            let answer = committed.map(|_| this.accept_all(parts));
            let answer = answer.map_err(|error| this.status.write_refused(error));
            drop((claim, claims));
            // A client that no longer waits can repeat the request with the batch's idempotency
            // key.
            let _ = reply.send(answer);
        };
        self.store.accept_with_async(jobs, changes, accept).await;
        replied.await.map_err(|_| RequestError::StoreFailed("the writer has ended".into()))?
    }

    /// Claims the names of jobs that are unique, and returns those that were accepted before.
    async fn claim_unique(
        self: &Arc<Self>,
        names: impl Iterator<Item = &UniqueName>,
    ) -> Result<(Vec<NameLock>, BTreeMap<UniqueName, EqualJob>), RequestError> {
        // In one order for all batches, so that no two wait for each other.
        let names: BTreeSet<UniqueName> = names.cloned().collect();
        let mut claims = Vec::with_capacity(names.len());
        for name in &names {
            claims.push(self.idempotency.claim(&name.scope, &name.key).await);
        }
        if names.is_empty() {
            return Ok((claims, BTreeMap::new()));
        }
        let known = self.look_up(move |this| {
            let find = |name: UniqueName| {
                let found = this.equal_job(&name).transpose()?;
                Some(found.map(|job| (name, EqualJob::Before(job.into()))))
            };
            names.into_iter().filter_map(find).collect()
        });
        Ok((claims, known.await?))
    }

    /// Accepts the new jobs of a batch, and returns the results of all.
    fn accept_all(self: &Arc<Self>, parts: Vec<BatchPart>) -> Vec<SubmitResult> {
        let mut results: Vec<SubmitResult> = Vec::with_capacity(parts.len());
        for part in parts {
            results.push(match part {
                BatchPart::New(entering) => self.accept(*entering),
                BatchPart::Equal(EqualJob::Before(before)) => *before,
                BatchPart::Equal(EqualJob::InBatch(place, _)) => {
                    SubmitResult { replayed: true, ..results[place].clone() }
                }
            });
        }
        results
    }

    /// Returns the jobs of a batch that was submitted under this key, if there was one.
    fn submitted_together(
        &self,
        caller: &str,
        key: &str,
        hash: [u8; 32],
        count: usize,
    ) -> Result<Option<Vec<SubmitResult>>, RequestError> {
        let found = (0..count).map(|place| {
            self.submitted_before(caller, &key_in_batch(key, place), hash).transpose()
        });
        // The jobs were written together, so either all of them are there or none.
        found.collect::<Option<Result<Vec<_>, _>>>().transpose()
    }
}
