use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use super::change::{Answer, Change, Changes};
use super::chunk::{Chunk, MOST_SUBTASKS, Packer};
use super::error::WriteError;
use super::handle::Store;
use crate::ids::{JobNumber, SubtaskNumber};

/// Subtasks on their way to the disk in chunks: what bringing a job and bringing more of one have in common.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) store: Store,
    packer: Packer,
    /// Chunks that are complete, and not handed over.
    full: VecDeque<Arc<Chunk>>,
    /// Whether a chunk was handed over.
    pub(super) has_spilled: bool,
    pub(super) state: Arc<UploadState>,
}

/// What the writer says of the chunks of an upload.
#[derive(Debug, Default)]
pub(super) struct UploadState {
    /// Why one of them was not written. Set once, by the writer; read by it and by whoever brings them.
    failure: OnceLock<WriteError>,
}

impl UploadState {
    pub(super) fn failure(&self) -> Option<WriteError> {
        self.failure.get().cloned()
    }

    pub(super) fn fail(&self, error: &WriteError) {
        // The first one stays.
        let _ = self.failure.set(error.clone());
    }
}

impl Parts {
    /// Of this job, of which there are so many subtasks already.
    pub(super) fn new(store: Store, job: JobNumber, first: SubtaskNumber) -> Self {
        let packer = Packer::new(job, first);
        let (full, state) = (VecDeque::new(), Arc::default());
        Parts { store, packer, full, has_spilled: false, state }
    }

    /// One past the last subtask.
    pub(super) fn total(&self) -> u32 {
        self.packer.next()
    }

    pub(super) fn push<K: AsRef<[u8]>>(
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

    pub(super) fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Hands full chunks over, and waits for room.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        while let Some(change) = self.next_full()? {
            let room = self.store.shared().queue.room(&change.list);
            self.full.pop_front();
            self.store.hand_over(change, Answer::to_nobody(), room);
        }
        Ok(())
    }

    /// The same without keeping a thread. Cancel safe.
    pub(super) async fn flush_async(&mut self) -> Result<(), WriteError> {
        while let Some(change) = self.next_full()? {
            let room = self.store.shared().queue.room_async(&change.list).await;
            // Only now, so that none is lost if nobody polls this any more.
            self.full.pop_front();
            self.store.hand_over(change, Answer::to_nobody(), room);
        }
        Ok(())
    }

    /// The first of the full chunks, which stays where it is.
    fn next_full(&mut self) -> Result<Option<Changes>, WriteError> {
        let Some(chunk) = self.full.front().map(Arc::clone) else { return Ok(None) };
        if let Some(failed) = self.state.failure() {
            return Err(failed);
        }
        self.has_spilled = true;
        self.store.cache().put_if_room(&chunk);
        let mut changes = Changes::new();
        changes.push(Change::Chunk { chunk, upload: Arc::clone(&self.state) });
        Ok(Some(changes))
    }

    /// The chunk of what has come since the last full one, if something has.
    pub(super) fn seal(&mut self) -> Option<Arc<Chunk>> {
        self.packer.seal().map(Arc::new)
    }

    /// A chunk to be handed over with the next flush.
    pub(super) fn put(&mut self, chunk: Arc<Chunk>) {
        self.full.push_back(chunk);
    }
}
