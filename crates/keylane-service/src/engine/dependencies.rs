//! Dependencies of jobs: a job with `after` begins when the jobs named there have ended.
//!
//! # Protocol
//!
//! 1. A job with `after` is accepted like a delayed one: it has no place in the order. Before its commit it is
//!    *registered* at each job that it waits for, and stays so until its own place in the order, or its end, is on the
//!    disk.
//! 2. A finished job at which another one is registered is not removed, neither by an operator nor by `retention`. The
//!    registration and the claim to remove a job exclude each other under the lock. So a restart finds the result of each
//!    of these jobs, and nothing of it is stored with the job that waits.
//! 3. An end counts when it is on the disk: the publication of a job's end records the result, and queues the jobs that
//!    are registered there. The dispatcher decides about a slice of the queue at a time.
//! 4. A job begins at the first decision at which no job in `after` is active and, with `success`, all have succeeded.
//!    With `success` it is cancelled at the first decision at which one of them has ended otherwise. The mark in its head
//!    is in the same batch as its status.
//! 5. After a restart each job without a place in the order is registered and decided about again, from the heads and the
//!    results in the store.
//!
//! Why a job does not begin too early, also after a crash: its place in the order is written after the ends of the jobs
//! that it waits for (3), because batches are written in order. Why it does not wait forever: a job can name only jobs that were accepted
//! before it, so there is no cycle, and each end queues it (3). A job that is retried meanwhile is active again, and is
//! waited for again.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use super::engine_state::{ActiveJob, EngineState, SharedState};
use super::submission::Submission;
use crate::request_error::RequestError;
use crate::store::JobState as Stored;
use crate::wire::{AfterCondition, JobState, Timestamp};
use crate::{JobId, JobNumber};

/// Maximum number of jobs about which one critical section decides. Each of them may rewrite two rows.
const MAX_AT_ONCE: usize = 256;

/// Jobs that others wait for. All fields are behind the lock of [`SharedState`].
#[derive(Debug, Default)]
pub(super) struct JobDependencies {
    /// Jobs at which others are registered.
    awaited: HashMap<JobNumber, AwaitedJob>,
    /// Registered jobs about which is to be decided.
    undecided: VecDeque<JobNumber>,
    /// Finished jobs that are about to be removed, with the number of requests to remove them.
    removing: HashMap<JobNumber, u32>,
}

#[derive(Debug, Default)]
struct AwaitedJob {
    /// Whether it succeeded when it ended last. Meaningless while it is active.
    has_succeeded: bool,
    /// Jobs that wait for it.
    waiting: BTreeSet<JobNumber>,
}

impl JobDependencies {
    /// Registers a job at those that it waits for. Returns the first of these that is about to be removed, if there is
    /// one; then the job is registered nowhere.
    fn register(&mut self, job: JobNumber, after: &[JobId]) -> Result<(), JobId> {
        if let Some(removed) = after.iter().find(|id| self.removing.contains_key(&id.number())) {
            return Err(*removed);
        }
        for id in after {
            self.awaited.entry(id.number()).or_default().waiting.insert(job);
        }
        Ok(())
    }

    fn unregister(&mut self, job: JobNumber, after: &[JobId]) {
        for number in after.iter().map(JobId::number) {
            if let Some(awaited) = self.awaited.get_mut(&number) {
                awaited.waiting.remove(&job);
                if awaited.waiting.is_empty() {
                    self.awaited.remove(&number);
                }
            }
        }
    }

    /// Records the result of a job that is not active, if others wait for it.
    fn note_result(&mut self, job: JobNumber, has_succeeded: bool) {
        if let Some(awaited) = self.awaited.get_mut(&job) {
            awaited.has_succeeded = has_succeeded;
            self.undecided.extend(&awaited.waiting);
        }
    }

    fn has_succeeded(&self, job: JobNumber) -> bool {
        self.awaited.get(&job).is_some_and(|awaited| awaited.has_succeeded)
    }

    /// Claims the removal of a finished job, which the caller must [end](Self::end_removal). The error is a job that
    /// waits for it.
    pub(super) fn claim_removal(&mut self, job: JobNumber) -> Result<(), JobNumber> {
        match self.awaited.get(&job).and_then(|awaited| awaited.waiting.first()) {
            Some(waiting) => Err(*waiting),
            None => {
                *self.removing.entry(job).or_default() += 1;
                Ok(())
            }
        }
    }

    /// Ends the removal of a job, whether it is removed or not.
    pub(super) fn end_removal(&mut self, job: JobNumber) {
        if let Some(claims) = self.removing.get_mut(&job) {
            *claims -= 1;
            if *claims == 0 {
                self.removing.remove(&job);
            }
        }
    }
}

/// Decision about a job that waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Wait,
    Begin,
    /// It must not begin, because this job has not succeeded.
    Cancel(JobId),
}

impl EngineState {
    /// Returns whether a job of `after` has not ended: it is active, or damaged and not yet removed by an operator.
    fn is_unfinished(&self, id: JobId) -> bool {
        let number = id.number();
        self.live.contains_key(&number) || self.holds.damaged.contains_key(&number)
    }

    fn decide(&self, live: &ActiveJob) -> Decision {
        let needs_success = live.head.after_on == AfterCondition::Success;
        let mut decision = Decision::Begin;
        for id in &live.head.after {
            if self.is_unfinished(*id) {
                decision = Decision::Wait;
            } else if needs_success && !self.dependencies.has_succeeded(id.number()) {
                return Decision::Cancel(*id);
            }
        }
        decision
    }

    /// Returns whether a delayed job may begin as far as other jobs are concerned.
    pub(super) fn may_begin(&self, job: &ActiveJob) -> bool {
        self.decide(job) == Decision::Begin
    }

    /// Returns the jobs for which a job that has not begun waits.
    pub(super) fn awaited_by(&self, job: JobNumber) -> impl Iterator<Item = JobId> {
        let waiting = self.live.get(&job).filter(|live| live.begins_at.is_some());
        let after = waiting.map_or(&[][..], |live| &live.head.after);
        after.iter().copied().filter(|id| self.is_unfinished(*id))
    }

    /// Queues a job that has just entered `live` for a decision, if it waits for others.
    pub(super) fn decide_later(&mut self, job: JobNumber) {
        let waits = |live: &ActiveJob| live.begins_at.is_some() && !live.head.after.is_empty();
        if self.live.get(&job).is_some_and(waits) {
            self.dependencies.undecided.push_back(job);
        }
    }

    /// Records the end of a job, which is on the disk and no longer in `live`.
    pub(super) fn note_end_for_others(
        &mut self,
        job: JobNumber,
        ended: &ActiveJob,
        state: JobState,
    ) {
        self.dependencies.note_result(job, state == JobState::Succeeded);
        self.dependencies.unregister(job, &ended.head.after);
    }

    /// Ends the wait of a job whose place in the order is on the disk.
    pub(super) fn ends_wait(&mut self, job: JobNumber) {
        if let Some(live) = self.live.get(&job) {
            self.dependencies.unregister(job, &live.head.after);
        }
    }

    /// Decides about jobs that wait for others: lets them begin at their time, or cancels them. Returns whether there
    /// are more.
    pub(super) fn decide_about_dependents(&mut self, now: Timestamp) -> bool {
        for _ in 0..MAX_AT_ONCE {
            let Some(job) = self.dependencies.undecided.pop_front() else { return false };
            let is_open = |live: &&ActiveJob| !live.is_closing && !live.cancelling;
            let Some(live) = self.live.get(&job).filter(is_open) else { continue };
            if live.begins_at.is_none() {
                continue;
            }
            match self.decide(live) {
                // The scheduler has named it at its time, and does not again.
                Decision::Begin if live.is_due => self.due.push_back(job),
                Decision::Begin | Decision::Wait => {}
                Decision::Cancel(failed) => self.cancel_after(job, failed, now),
            }
        }
        !self.dependencies.undecided.is_empty()
    }

    /// Cancels a job because one that it waits for has not succeeded.
    fn cancel_after(&mut self, job: JobNumber, failed: JobId, now: Timestamp) {
        let Some(live) = self.live.get_mut(&job) else { return };
        let mut head = (*live.head).clone();
        head.after_failed = Some(failed);
        let bytes = serde_json::to_vec(&head).expect("a head can be written as JSON");
        live.head = Arc::new(head);
        self.unwritten.changes.head(job, bytes);
        self.cancel_rest(job, now);
    }

    /// Registers the recovered jobs that wait for others, and returns the jobs whose results they need.
    pub(super) fn register_recovered(&mut self) -> Vec<JobId> {
        let waits = |live: &&ActiveJob| live.begins_at.is_some() && !live.head.after.is_empty();
        let mut needed = BTreeSet::new();
        for (job, live) in self.live.iter().filter(|(_, live)| waits(live)) {
            let registered = self.dependencies.register(*job, &live.head.after);
            registered.expect("nothing is removed before the service runs");
            self.dependencies.undecided.push_back(*job);
            needed.extend(live.head.after.iter().copied());
        }
        needed.into_iter().filter(|id| !self.is_unfinished(*id)).collect()
    }

    /// Records the result of a job that has ended.
    pub(super) fn note_stored_result(&mut self, job: JobId, has_succeeded: bool) {
        // It may have been retried since its result was read; then its end is still to come.
        if !self.is_unfinished(job) {
            self.dependencies.note_result(job.number(), has_succeeded);
        }
    }

    /// Queues the jobs that wait for a damaged job, which an operator has removed.
    pub(super) fn note_removed_damaged(&mut self, job: JobNumber) {
        self.dependencies.note_result(job, false);
    }
}

/// Registration of a job that is not accepted yet, undone on drop.
#[derive(Debug)]
pub(super) struct Registration {
    state: Arc<SharedState>,
    job: JobNumber,
    after: Vec<JobId>,
    is_kept: bool,
}

impl Registration {
    /// Leaves the job registered, because it is accepted.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
    }

    /// Returns the jobs that it waits for.
    pub(super) fn after(&self) -> &[JobId] {
        &self.after
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if !self.is_kept {
            self.state.lock().dependencies.unregister(self.job, &self.after);
        }
    }
}

impl Submission {
    /// Registers a job at those that it waits for, by their ids or client ids. Reads the store.
    ///
    /// Returns an error if one of them is unknown or removed.
    pub(super) fn register_after(
        &self,
        job: JobNumber,
        names: &[String],
    ) -> Result<Registration, RequestError> {
        let mut after = Vec::with_capacity(names.len());
        for name in names {
            let id = self.query.resolve(name).map_err(refused)?;
            if !after.contains(&id) {
                after.push(id);
            }
        }
        let registered = self.state.lock().dependencies.register(job, &after);
        registered.map_err(|id| refused(RequestError::Gone { what: format!("job {id}") }))?;
        let state = Arc::clone(&self.state);
        let registration = Registration { state, job, after, is_kept: false };
        for id in &registration.after {
            if let Some(has_succeeded) = self.result_of(*id).map_err(refused)? {
                self.state.lock().note_stored_result(*id, has_succeeded);
            }
        }
        Ok(registration)
    }

    /// Returns whether a job has succeeded; `None` if it has not ended.
    fn result_of(&self, id: JobId) -> Result<Option<bool>, RequestError> {
        {
            let engine = self.state.lock();
            let is_live = engine.live.get(&id.number()).is_some_and(|live| live.id == id);
            if is_live || engine.holds.damaged.contains_key(&id.number()) {
                return Ok(None);
            }
        }
        Ok(Some(self.query.stored(id)?.status.state == Stored::Succeeded))
    }
}

/// Converts the error for a job that is not there: the request conflicts with the present state.
fn refused(error: RequestError) -> RequestError {
    match error {
        RequestError::Unknown { .. } | RequestError::Gone { .. } => {
            RequestError::Conflict(format!(
                "the job cannot wait for one in `after`: {error}; name jobs that are accepted and not removed"
            ))
        }
        other => other,
    }
}
