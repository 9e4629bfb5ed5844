//! Engine work that reads files, on threads that may block.

use super::problem::ApiError;
use crate::Refused;

/// Runs engine work that reads files on the blocking pool.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refused> + Send + 'static,
) -> Result<T, ApiError> {
    let done = tokio::task::spawn_blocking(work).await;
    match done {
        Ok(done) => done.map_err(ApiError::from),
        Err(panic) => {
            tracing::error!(%panic, "a request made the server panic");
            Err(ApiError::new("internal", "something went wrong in the server"))
        }
    }
}
