//! Jobs that others wait for: their results, the jobs that wait, and claims to remove them. `dependencies.rs` has the protocol.

use std::collections::{BTreeSet, HashMap, VecDeque};

use crate::{JobId, JobNumber};

/// Jobs that others wait for. Part of the state of the engine, behind its lock.
#[derive(Debug, Default)]
pub(super) struct AwaitedJobs {
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

impl AwaitedJobs {
    /// Registers a job at those that it waits for. Returns the first of these that is about to be removed, if there is
    /// one; then the job is registered nowhere.
    pub(super) fn register(&mut self, job: JobNumber, after: &[JobId]) -> Result<(), JobId> {
        if let Some(removed) = after.iter().find(|id| self.removing.contains_key(&id.number())) {
            return Err(*removed);
        }
        for id in after {
            self.awaited.entry(id.number()).or_default().waiting.insert(job);
        }
        Ok(())
    }

    pub(super) fn unregister(&mut self, job: JobNumber, after: &[JobId]) {
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
    pub(super) fn note_result(&mut self, job: JobNumber, has_succeeded: bool) {
        if let Some(awaited) = self.awaited.get_mut(&job) {
            awaited.has_succeeded = has_succeeded;
            self.undecided.extend(&awaited.waiting);
        }
    }

    pub(super) fn has_succeeded(&self, job: JobNumber) -> bool {
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

    /// Queues a registered job for a decision.
    pub(super) fn decide_later(&mut self, job: JobNumber) {
        self.undecided.push_back(job);
    }

    /// Takes the next job about which is to be decided.
    pub(super) fn next_undecided(&mut self) -> Option<JobNumber> {
        self.undecided.pop_front()
    }

    /// Returns whether there are jobs about which is to be decided.
    pub(super) fn has_undecided(&self) -> bool {
        !self.undecided.is_empty()
    }
}
