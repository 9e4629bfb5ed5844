//! Engine work that reads files, on threads that may block.

use std::sync::Arc;

use super::problem::ApiError;
use crate::RequestError;
use crate::engine::Core;

/// Runs engine work that reads files where the engine runs its blocking work.
pub(super) async fn blocking<T: Send + 'static>(
    core: &Arc<Core>,
    work: impl FnOnce(&Core) -> Result<T, RequestError> + Send + 'static,
) -> Result<T, ApiError> {
    let shared = Arc::clone(core);
    let done = core.executor.blocking(move || work(&shared)).await;
    match done {
        Ok(done) => done.map_err(ApiError::from),
        Err(panic) => {
            tracing::error!(%panic, "a request made the server panic");
            Err(ApiError::new("internal", "something went wrong in the server"))
        }
    }
}
