//! Queries for jobs by the ids that clients gave them.

use super::Query;
use crate::JobId;
use crate::engine::client_id::is_fit;
use crate::engine::store_status::read_refused;
use crate::request_error::RequestError;
use crate::store::JobAlias;

impl Query {
    /// Returns the job with this id or client id. May read the store and block.
    pub(crate) fn resolve(&self, text: &str) -> Result<JobId, RequestError> {
        if let Some(id) = JobId::parse(text) {
            return Ok(id);
        }
        let found = if is_fit(text) { self.alias(text)? } else { None };
        let unknown = || RequestError::Unknown { what: format!("job {text}") };
        found.map(|alias| alias.job).ok_or_else(unknown)
    }

    /// Returns the job with this client id. Reads the store.
    pub(in crate::engine) fn alias(&self, name: &str) -> Result<Option<JobAlias>, RequestError> {
        self.store.alias(name).map_err(read_refused)
    }
}
