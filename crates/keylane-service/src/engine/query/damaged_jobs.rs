//! Queries for damaged jobs.

use super::Query;
use crate::request_error::RequestError;
use crate::wire::Because;
use crate::{JobId, JobNumber};

impl Query {
    /// Returns the error for commands on a job, if it is damaged.
    pub(in crate::engine) fn damaged(&self, id: JobId) -> Option<RequestError> {
        self.state.lock().holds.refusal(id)
    }

    /// Returns the reason why nothing of a damaged job starts.
    pub(super) fn because_damaged(&self, job: JobNumber) -> Option<Because> {
        let engine = self.state.lock();
        engine.holds.damaged.contains_key(&job).then(|| engine.holds.because(job)).flatten()
    }

    /// Returns the damaged jobs that are not removed yet.
    pub(super) fn held_damaged(&self) -> Vec<JobNumber> {
        self.state.lock().holds.damaged.keys().copied().collect()
    }
}
