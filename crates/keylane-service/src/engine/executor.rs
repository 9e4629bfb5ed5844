//! Runtime that the engine's tasks run on.

use std::panic::resume_unwind;

use tokio::runtime::Handle;
use tokio::task::{JoinError, JoinHandle};

/// Starts tasks and blocking work on the runtime that the service was started on.
#[derive(Clone, Debug)]
pub(super) struct Executor(Handle);

impl Executor {
    pub(super) fn new(runtime: Handle) -> Self {
        Executor(runtime)
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.0.spawn(work)
    }

    /// Returns the runtime, for a task tracker.
    pub(super) fn handle(&self) -> &Handle {
        &self.0
    }

    /// Runs work that may block, such as a read of the store.
    ///
    /// # Errors
    /// Returns an error if the work panics.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.0.spawn_blocking(work).await
    }

    /// Like [`blocking`](Self::blocking), and passes a panic on.
    pub(super) async fn blocking_or_panic<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.blocking(work).await.unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
    }
}
