//! Writer of a job's chunks, shared by the upload of a job and the extension of one.

use std::collections::VecDeque;
use std::sync::Arc;

use super::change::{Change, Changes, WriteReply};
use super::chunk::{Chunk, MAX_SUBTASKS};
use super::chunk_packer::ChunkPacker;
use super::error::WriteError;
use super::handle::Store;
use super::upload_state::UploadState;
use crate::KeyClaim;
use crate::ids::{JobNumber, SubtaskNumber};

/// Subtasks that are packed into chunks and submitted to the writer.
#[derive(Debug)]
pub(super) struct ChunkWriter {
    pub(super) store: Store,
    packer: ChunkPacker,
    /// Full chunks that are not submitted yet.
    full: VecDeque<Arc<Chunk>>,
    /// Whether a chunk was submitted.
    pub(super) has_spilled: bool,
    pub(super) state: Arc<UploadState>,
}

impl ChunkWriter {
    /// Creates a packer for a job that has `first` subtasks.
    pub(super) fn new(
        store: Store,
        job: JobNumber,
        first: SubtaskNumber,
        state: UploadState,
    ) -> Self {
        let packer = ChunkPacker::new(job, first);
        let (full, state) = (VecDeque::new(), Arc::new(state));
        ChunkWriter { store, packer, full, has_spilled: false, state }
    }

    /// Returns one past the last subtask's number.
    pub(super) fn total(&self) -> u32 {
        self.packer.next()
    }

    pub(super) fn push(
        &mut self,
        keys: &[KeyClaim<'_>],
        payload: &[u8],
    ) -> Result<SubtaskNumber, WriteError> {
        let bytes = payload.len() + keys.iter().map(|claim| claim.key.len()).sum::<usize>();
        if bytes > Store::MAX_SUBTASK_BYTES {
            let most = Store::MAX_SUBTASK_BYTES as u64;
            return Err(WriteError::TooLarge { what: "bytes of a subtask", most });
        }
        let number = self.packer.next();
        if number == MAX_SUBTASKS {
            let most = u64::from(MAX_SUBTASKS);
            return Err(WriteError::TooLarge { what: "subtasks of a job", most });
        }
        let full = self.packer.push(keys, payload);
        self.full.extend(full.map(Arc::new));
        Ok(number)
    }

    pub(super) fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Submits full chunks, and waits for room.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        while let Some(change) = self.next_full()? {
            let room = self.store.shared().queue.room(&change.list);
            self.full.pop_front();
            self.store.hand_over(change, WriteReply::to_nobody(), room);
        }
        Ok(())
    }

    /// Submits full chunks and waits for room without blocking a thread. Cancel safe.
    pub(super) async fn flush_async(&mut self) -> Result<(), WriteError> {
        while let Some(change) = self.next_full()? {
            let room = self.store.shared().queue.room_async(&change.list).await;
            // After the wait, so that a cancelled flush loses no chunk.
            self.full.pop_front();
            self.store.hand_over(change, WriteReply::to_nobody(), room);
        }
        Ok(())
    }

    /// Returns a request for the first full chunk, which stays in the list until there is room.
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

    /// Returns a chunk of the subtasks since the last full one, if there are any.
    pub(super) fn seal(&mut self) -> Option<Arc<Chunk>> {
        self.packer.seal().map(Arc::new)
    }

    /// Adds a chunk for the next flush.
    pub(super) fn put(&mut self, chunk: Arc<Chunk>) {
        self.full.push_back(chunk);
    }
}
