//! Result of the chunks of an upload, shared by the caller and the writer.

use std::sync::OnceLock;

use super::error::WriteError;

/// Result of the chunks of an upload.
#[derive(Debug, Default)]
pub(super) struct UploadState {
    /// First failed write. Set by the writer; read by the writer and by the uploading caller.
    failure: OnceLock<WriteError>,
    /// Whether the chunks extend a job that exists already. If it is removed meanwhile, they are
    /// refused.
    pub(super) is_extension: bool,
}

impl UploadState {
    /// Creates the state of an extension.
    pub(super) fn of_extension() -> Self {
        UploadState { is_extension: true, ..UploadState::default() }
    }

    pub(super) fn failure(&self) -> Option<WriteError> {
        self.failure.get().cloned()
    }

    pub(super) fn fail(&self, error: &WriteError) {
        // The first failure is kept.
        let _ = self.failure.set(error.clone());
    }
}
