//! Upload of a new job in chunks. The job becomes visible with all its subtasks in one transaction,
//! or not at all.

use std::sync::Arc;

use super::change::{Change, Changes, CommitReceipt, JobAcceptance, NewJob, WriteReply};
use super::chunk::{Chunk, MAX_INLINE_BYTES};
use super::chunk_writer::ChunkWriter;
use super::error::WriteError;
use super::handle::Store;
use super::pending::PendingWrite;
use super::row_numbers;
use super::upload_state::UploadState;
use crate::KeyClaim;
use crate::ids::{JobId, JobNumber, SubtaskNumber};

/// Upload of a job, subtask by subtask. It is invisible until [finished](Self::finish); dropped
/// unfinished, it leaves no job.
///
/// [`flush`](Self::flush) submits full chunks to the writer, and waits for room. A large upload
/// calls it whenever [`is_full`](Self::is_full) returns true, and so holds only some chunks in
/// memory.
///
/// # Examples
/// ```
/// use keylane_service::store::{JobStatus, NewJob, StoreSettings, Store};
///
/// let folder = tempfile::tempdir()?;
/// let (store, _) = Store::open(folder.path().join("store"), &StoreSettings::default())?;
/// let mut upload = store.upload(1_763_000_000_000)?;
/// for number in 0..5000 {
///     upload.push(&[format!("key {}", number % 7)], b"payload")?;
///     if upload.is_full() {
///         upload.flush()?;
///     }
/// }
/// let job = upload.job();
/// let new = NewJob {
///     kind: "resize".into(),
///     created_ms: 1_763_000_000_000,
///     head: b"{}".to_vec(),
///     status: JobStatus::WAITING,
///     idempotency: None,
/// };
/// upload.finish(new).wait()?;
/// assert_eq!(store.job(job)?.unwrap().total, 5000);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "an unfinished upload has no effect"]
pub struct JobUpload {
    job: JobNumber,
    id: JobId,
    parts: ChunkWriter,
    is_finished: bool,
}

impl JobUpload {
    pub(super) fn new(store: Store, job: JobNumber, id: JobId) -> Self {
        JobUpload {
            job,
            id,
            parts: ChunkWriter::new(store, job, 0, UploadState::default()),
            is_finished: false,
        }
    }

    /// Returns the number of the job.
    #[must_use]
    pub fn job(&self) -> JobNumber {
        self.job
    }

    /// Returns the public identifier of the job.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.id
    }

    /// Returns the number of subtasks so far.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.parts.total()
    }

    /// Adds a subtask in memory, and returns its number.
    ///
    /// # Errors
    /// If the job has [`MAX_SUBTASKS`](super::MAX_SUBTASKS), or the subtask exceeds
    /// [`Store::MAX_SUBTASK_BYTES`](Store::MAX_SUBTASK_BYTES).
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

    /// Returns whether there are chunks to flush.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.parts.is_full()
    }

    /// Submits full chunks to the writer, and waits for room in its queue. On return, the chunks
    /// may not be on the disk yet.
    ///
    /// # Errors
    /// If an earlier chunk was not written. The job cannot be accepted then, and the upload should
    /// be dropped.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.parts.flush()
    }

    /// Submits full chunks like [`flush`](Self::flush), without blocking a thread. Cancel safe: the
    /// next call submits the remaining chunks.
    ///
    /// # Errors
    /// Under the conditions of [`flush`](Self::flush).
    pub async fn flush_async(&mut self) -> Result<(), WriteError> {
        self.parts.flush_async().await
    }

    /// Submits the job. It is accepted with all its subtasks when the result says so; otherwise
    /// nothing of it exists. Waits for room, but not for the disk.
    pub fn finish(self, new: NewJob) -> PendingWrite {
        let (answer, pending) = PendingWrite::new();
        self.finish_with_answer(new, answer);
        pending
    }

    /// Submits the job like [`finish`](Self::finish), with a callback for the result: on the writer
    /// thread, in the order of the commits, under the rules of [`Store::submit_with`].
    pub fn finish_with(
        self,
        new: NewJob,
        then: impl FnOnce(Result<CommitReceipt, WriteError>) + Send + 'static,
    ) {
        self.finish_with_answer(new, WriteReply::new(then));
    }

    /// Submits the job like [`finish`](Self::finish), without blocking a thread, and waits for the
    /// result. Dropped before it waits for the disk, the future submits nothing.
    ///
    /// # Errors
    /// If the job was not accepted.
    pub async fn finish_async(self, new: NewJob) -> Result<CommitReceipt, WriteError> {
        let (answer, pending) = PendingWrite::new();
        self.finish_with_async(new, move |written| answer.tell(written, Vec::new())).await;
        pending.await
    }

    /// Submits the job like [`finish_with`](Self::finish_with), without blocking a thread.
    ///
    /// `then` is called with the result. Dropped before it is ready, the future submits nothing and
    /// does not call `then`.
    pub async fn finish_with_async(
        self,
        new: NewJob,
        then: impl FnOnce(Result<CommitReceipt, WriteError>) + Send + 'static,
    ) {
        let store = self.parts.store.clone();
        store.accept_with_async(vec![(self, new)], Changes::new(), then).await;
    }

    fn finish_with_answer(mut self, new: NewJob, answer: WriteReply) {
        let accept = self.complete(new);
        if let Err(failed) = self.parts.flush() {
            return answer.tell(Err(failed), Vec::new());
        }
        let room = self.parts.store.shared().queue.room(&accept.list);
        self.is_finished = true;
        self.parts.store.hand_over(accept, answer, room);
    }

    /// Returns the change that accepts the job. Its last chunk is inline if it is small and the
    /// only one; otherwise it was submitted before.
    fn complete(&mut self, new: NewJob) -> Changes {
        debug_assert!(
            self.job.0 < row_numbers::JOBS,
            "numbers end where the store was asked for one"
        );
        let total = self.parts.total();
        let is_one = !self.parts.has_spilled && !self.parts.is_full();
        let mut inline = self.parts.seal();
        let fits = |chunk: &Chunk| is_one && chunk.sealed().len() <= MAX_INLINE_BYTES;
        if let Some(last) = inline.take_if(|chunk| !fits(chunk)) {
            self.parts.put(last);
        }
        if let Some(chunk) = &inline {
            self.parts.store.cache().put(chunk);
        }
        let (job, id, upload) = (self.job, self.id, Arc::clone(&self.parts.state));
        let mut accept = Changes::new();
        let boxed = Box::new(JobAcceptance { job, id, new, total, inline, upload });
        accept.push(Change::Accept(boxed));
        accept
    }
}

impl Store {
    /// Begins the upload of a job. `now_ms`, in milliseconds since 1970, becomes part of its
    /// identifier.
    ///
    /// # Errors
    /// If the numbers are exhausted.
    pub fn upload(&self, now_ms: u64) -> Result<JobUpload, WriteError> {
        let number = self.shared().take_number();
        if number >= row_numbers::JOBS {
            return Err(WriteError::TooLarge { what: "jobs of a store", most: row_numbers::JOBS });
        }
        let job = JobNumber(number);
        // Randomness only makes identifiers hard to guess; the number makes them unique.
        let chance = self.outside().random();
        Ok(JobUpload::new(self.clone(), job, JobId::new(job, now_ms, chance)))
    }

    /// Begins the upload of a job that keeps its identifier from another store.
    pub(super) fn upload_as(&self, id: JobId) -> JobUpload {
        self.shared().pass_number(id.number());
        JobUpload::new(self.clone(), id.number(), id)
    }

    /// Submits jobs and other changes in one transaction, the jobs in this order, all or nothing.
    /// `then` is called with the result, under the rules of [`submit_with`](Self::submit_with).
    /// Waits for room without blocking a thread. Dropped before it is ready, the future submits
    /// nothing and does not call `then`.
    pub async fn accept_with_async(
        &self,
        jobs: Vec<(JobUpload, NewJob)>,
        also: Changes,
        then: impl FnOnce(Result<CommitReceipt, WriteError>) + Send + 'static,
    ) {
        let mut all = Changes::new();
        let mut uploads = Vec::with_capacity(jobs.len());
        for (mut upload, new) in jobs {
            all.list.extend(upload.complete(new).list);
            if let Err(failed) = upload.parts.flush_async().await {
                return then(Err(failed));
            }
            uploads.push(upload);
        }
        all.list.extend(also.list);
        let room = self.shared().queue.room_async(&all.list).await;
        uploads.iter_mut().for_each(|upload| upload.is_finished = true);
        // Created after the wait: a cancelled client is not a failure of the store, which a dropped
        // callback would report.
        self.hand_over(all, WriteReply::new(then), room);
    }
}

impl Drop for JobUpload {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let store = &self.parts.store;
        store.cache().forget(self.job);
        if self.parts.has_spilled {
            let mut changes = Changes::new();
            changes.push(Change::Abandon(self.job));
            store.hand_over(changes, WriteReply::to_nobody(), None);
        }
    }
}
