//! Submission of jobs that wait for others: finds these, and registers the new job with them.

use std::sync::Arc;

use super::dependencies::Registration;
use super::submission::Submission;
use crate::request_error::RequestError;
use crate::store::JobState as Stored;
use crate::{JobId, JobNumber};

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
        let registration = Registration::new(Arc::clone(&self.state), job, after)
            .map_err(|id| refused(RequestError::Gone { what: format!("job {id}") }))?;
        for id in registration.after() {
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
