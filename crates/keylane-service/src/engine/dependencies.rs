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
//! that it waits for (3), because batches are written in order. Why it does not wait forever: a job can name only jobs
//! that were accepted before it, so there is no cycle, and each end queues it (3). A job that is retried meanwhile is
//! active again, and is waited for again.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::engine_state::{ActiveJob, EngineState, SharedState};
use crate::wire::{AfterCondition, JobState, Timestamp};
use crate::{JobId, JobNumber};

/// Maximum number of jobs about which one critical section decides. Each of them may rewrite two rows.
const MAX_AT_ONCE: usize = 256;

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
            self.dependencies.decide_later(job);
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
            let Some(job) = self.dependencies.next_undecided() else { return false };
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
        self.dependencies.has_undecided()
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
            self.dependencies.decide_later(*job);
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

    /// Registers a job that is not accepted yet. The error is a job that is about to be removed.
    pub(super) fn new(
        state: Arc<SharedState>,
        job: JobNumber,
        after: Vec<JobId>,
    ) -> Result<Self, JobId> {
        state.lock().dependencies.register(job, &after)?;
        Ok(Registration { state, job, after, is_kept: false })
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
