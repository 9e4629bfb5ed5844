//! Errors from the start of the service.

use std::sync::Arc;

use crate::JobId;
use crate::store::{ReadError, StoreOpenError};

/// Error from the start of the service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The store could not be opened.
    #[error(transparent)]
    Store(#[from] StoreOpenError),
    /// The store was opened but cannot be read.
    #[error(
        "{0}; if that is damage, `keylane store salvage FROM TO` copies all that can be read into a new store"
    )]
    Read(ReadError),
    /// The database could not be reached while its store was read. The start can be repeated.
    #[error("the database cannot be reached: {why}")]
    Unavailable {
        /// Message of the database or of its client.
        why: Arc<str>,
    },
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

impl From<ReadError> for StartError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Unavailable { why } => StartError::Unavailable { why },
            other => StartError::Read(other),
        }
    }
}
