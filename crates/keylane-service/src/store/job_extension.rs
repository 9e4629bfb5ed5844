//! Extension of an unfinished job by further subtasks, which become visible together or not at all.

use std::sync::Arc;

use super::change::{Change, Changes, CommitReceipt, WriteReply};
use super::chunk_writer::ChunkWriter;
use super::error::WriteError;
use super::handle::Store;
use super::upload_state::UploadState;
use crate::KeyClaim;
use crate::ids::{JobNumber, SubtaskNumber};

/// Upload of further subtasks for an accepted job. They are invisible until
/// [finished](Self::finish_with), and then visible together.
///
/// Dropped unfinished, its chunks stay beyond the job's end, where they are never read; the job's
/// next extension replaces them, and the rest is deleted with the job.
#[derive(Debug)]
#[must_use = "nothing comes of it before it is finished"]
pub struct JobExtension {
    job: JobNumber,
    parts: ChunkWriter,
}

impl JobExtension {
    pub(super) fn new(store: Store, job: JobNumber, total: u32) -> Self {
        // The cache may hold chunks of an earlier, broken extension, which are not the job's.
        store.cache().forget(job);
        JobExtension {
            job,
            parts: ChunkWriter::new(store, job, total, UploadState::of_extension()),
        }
    }

    /// Returns the number of the job's subtasks, including the pushed ones.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.parts.total()
    }

    /// Adds a subtask and returns its number.
    ///
    /// # Errors
    /// If the subtask is too large, or the job has the maximum number of subtasks.
    pub fn push<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        payload: &[u8],
    ) -> Result<SubtaskNumber, WriteError> {
        let keys: Vec<_> = keys.iter().map(|key| KeyClaim::exclusive(key.as_ref())).collect();
        self.parts.push(&keys, payload)
    }

    /// Adds a subtask that shares some of its keys, as [`push`](Self::push) does.
    ///
    /// # Errors
    /// Returns the errors of [`push`](Self::push).
    pub fn push_claims(
        &mut self,
        keys: &[KeyClaim<'_>],
        payload: &[u8],
    ) -> Result<SubtaskNumber, WriteError> {
        self.parts.push(keys, payload)
    }

    /// Submits full chunks and waits for room without blocking a thread. Cancel safe.
    ///
    /// # Errors
    /// If the writer has refused an earlier chunk.
    pub async fn flush_async(&mut self) -> Result<(), WriteError> {
        self.parts.flush_async().await
    }

    /// Adds the subtasks to the job. `then` is called on the writer thread when they are on the
    /// disk, in the order of the commits.
    ///
    /// # Errors
    /// If the writer has refused a chunk. `then` is not called.
    pub async fn finish_with(
        mut self,
        then: impl FnOnce(Result<CommitReceipt, WriteError>) + Send + 'static,
    ) -> Result<(), WriteError> {
        let total = Some(self.parts.total());
        if let Some(last) = self.parts.seal() {
            self.parts.put(last);
        }
        self.parts.flush_async().await?;
        let upload = Some(Arc::clone(&self.parts.state));
        let mut changes = Changes::new();
        changes.push(Change::Reform { job: self.job, head: None, total, upload });
        self.parts.store.hand_over(changes, WriteReply::new(then), None);
        Ok(())
    }
}

impl Store {
    /// Begins the upload of further subtasks for an unfinished job that has `total` of them.
    pub fn extend(&self, job: JobNumber, total: u32) -> JobExtension {
        JobExtension::new(self.clone(), job, total)
    }
}
