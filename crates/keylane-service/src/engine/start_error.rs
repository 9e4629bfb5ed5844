//! Errors from the start of the service.

use crate::JobId;

/// Error from the start of the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] crate::store::StoreOpenError),
    /// The store was opened but cannot be read.
    #[error(
        "{0}; if that is damage, `keylane store salvage FROM TO` copies all that can be read into a new store"
    )]
    Read(#[from] crate::store::ReadError),
    /// An unfinished job cannot continue.
    #[error("{id} cannot go on: {why}")]
    Job {
        /// Id of the job.
        id: JobId,
        /// Reason.
        why: String,
    },
    /// The registry of child processes could not be opened.
    #[error(transparent)]
    Children(#[from] keylane_process::RegistryOpenError),
    /// A thread could not be started.
    #[error("a thread was not started")]
    Thread(#[source] std::io::Error),
}
