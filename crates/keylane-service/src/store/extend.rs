use std::sync::Arc;

use super::change::{Answer, Change, Changes, Committed};
use super::chunk::{Chunk, MOST_SUBTASKS, Packer};
use super::error::WriteError;
use super::handle::Store;
use super::upload::UploadState;
use crate::ids::{JobNumber, SubtaskNumber};

/// More subtasks of a job that was accepted: nobody sees them before they are [finished](Self::finish_with),
/// and then all of them are there.
///
/// Dropped unfinished, what was brought lies beyond the job's end, where nobody looks; the next extension of
/// the job takes its place.
#[derive(Debug)]
#[must_use = "nothing comes of it before it is finished"]
pub struct Extension {
    store: Store,
    job: JobNumber,
    packer: Packer,
    full: Vec<Arc<Chunk>>,
    state: Arc<UploadState>,
}

impl Extension {
    pub(super) fn new(store: Store, job: JobNumber, total: u32) -> Self {
        let packer = Packer::from(job, total);
        Extension { store, job, packer, full: Vec::new(), state: Arc::default() }
    }

    /// How many subtasks the job has with those that were pushed.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.packer.next()
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
        let bytes = payload.len() + keys.iter().map(|key| key.as_ref().len()).sum::<usize>();
        if bytes > Store::MOST_SUBTASK_BYTES {
            let most = Store::MOST_SUBTASK_BYTES as u64;
            return Err(WriteError::TooLarge { what: "bytes of a subtask", most });
        }
        let number = self.packer.next();
        if number == MOST_SUBTASKS {
            let most = u64::from(MOST_SUBTASKS);
            return Err(WriteError::TooLarge { what: "subtasks of a job", most });
        }
        let full = self.packer.push(keys, payload);
        self.full.extend(full.map(Arc::new));
        Ok(number)
    }

    /// Hands what is full to the writer, and waits for room there without keeping a thread.
    ///
    /// # Errors
    /// If the writer has refused a part of it.
    pub async fn flush_async(&mut self) -> Result<(), WriteError> {
        for chunk in std::mem::take(&mut self.full) {
            if let Some(failed) = self.state.failure() {
                return Err(failed);
            }
            let mut changes = Changes::new();
            changes.push(Change::Chunk { chunk, upload: Arc::clone(&self.state) });
            let room = self.store.shared().queue.room_async(&changes.list).await;
            self.store.hand_over(changes, Answer::to_nobody(), room);
        }
        Ok(())
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
        self.full.extend(self.packer.seal().map(Arc::new));
        self.flush_async().await?;
        let (job, total) = (self.job, Some(self.packer.next()));
        let mut changes = Changes::new();
        let upload = Some(Arc::clone(&self.state));
        changes.push(Change::Reform { job, head: None, total, upload });
        self.store.hand_over(changes, Answer::new(then), None);
        Ok(())
    }
}
