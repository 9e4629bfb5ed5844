use std::sync::Arc;

use super::change::{Answer, Change, Changes, Committed};
use super::error::WriteError;
use super::handle::Store;
use super::parts::Parts;
use crate::ids::{JobNumber, SubtaskNumber};

/// More subtasks of a job that was accepted: nobody sees them before they are [finished](Self::finish_with),
/// and then all of them are there.
///
/// Dropped unfinished, what was brought lies beyond the job's end, where nobody looks; the next extension of
/// the job removes it when it brings its own.
#[derive(Debug)]
#[must_use = "nothing comes of it before it is finished"]
pub struct Extension {
    job: JobNumber,
    parts: Parts,
}

impl Extension {
    pub(super) fn new(store: Store, job: JobNumber, total: u32) -> Self {
        // Chunks of one before that broke off may be there, and are none of the job's.
        store.cache().forget(job);
        Extension { job, parts: Parts::new(store, job, total) }
    }

    /// How many subtasks the job has with those that were pushed.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.parts.total()
    }

    /// One more subtask; its number is returned.
    ///
    /// # Errors
    /// If it is too large, or the job has as many as it can.
    pub fn push<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        payload: &[u8],
    ) -> Result<SubtaskNumber, WriteError> {
        self.parts.push(keys, payload)
    }

    /// Hands what is full to the writer, and waits for room there without keeping a thread. Cancel safe.
    ///
    /// # Errors
    /// If the writer has refused a part of it.
    pub async fn flush_async(&mut self) -> Result<(), WriteError> {
        self.parts.flush_async().await
    }

    /// The job has all of them. `then` is called on the writer's thread when that is on the disk, in the order
    /// of the commits.
    ///
    /// # Errors
    /// If the writer has refused a part of it: then `then` is not called.
    pub async fn finish_with(
        mut self,
        then: impl FnOnce(Result<Committed, WriteError>) + Send + 'static,
    ) -> Result<(), WriteError> {
        let total = Some(self.parts.total());
        if let Some(last) = self.parts.seal() {
            self.parts.put(last);
        }
        self.parts.flush_async().await?;
        let upload = Some(Arc::clone(&self.parts.state));
        let mut changes = Changes::new();
        changes.push(Change::Reform { job: self.job, head: None, total, upload });
        self.parts.store.hand_over(changes, Answer::new(then), None);
        Ok(())
    }
}
