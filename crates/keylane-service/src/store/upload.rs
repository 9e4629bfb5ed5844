use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use super::change::{Accept, Answer, Change, Changes, Committed, NewJob};
use super::chunk::{Chunk, MOST_SUBTASKS, Packer};
use super::error::WriteError;
use super::handle::Store;
use super::pending::Pending;
use super::seal;
use crate::ids::{JobId, JobNumber, SubtaskNumber};

/// Up to how many bytes of subtasks lie in the job's own row.
const MOST_INLINE_BYTES: usize = 8 * 1024;

/// A job that is being brought, subtask by subtask: nobody sees it before it is
/// [finished](Self::finish), and dropped unfinished it leaves nothing.
///
/// What was pushed is handed to the writer by [`flush`](Self::flush), which waits for room. Whoever brings
/// many subtasks calls it whenever there is [`something to be flushed`](Self::is_full), and so needs memory
/// for some chunks only.
///
/// # Examples
/// ```
/// use keylane_service::store::{JobStatus, NewJob, Settings, Store};
///
/// let folder = tempfile::tempdir()?;
/// let (store, _) = Store::open(folder.path().join("store"), &Settings::default())?;
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
#[must_use = "nothing comes of it before it is finished"]
pub struct Upload {
    store: Store,
    job: JobNumber,
    id: JobId,
    packer: Packer,
    /// Full chunks that the writer has not got.
    full: VecDeque<Arc<Chunk>>,
    /// Whether the writer has got any.
    has_spilled: bool,
    is_finished: bool,
    state: Arc<UploadState>,
}

/// What the writer says of the chunks of an upload.
#[derive(Debug, Default)]
pub(super) struct UploadState {
    /// Why one was not written.
    failure: OnceLock<WriteError>,
}

impl UploadState {
    pub(super) fn failure(&self) -> Option<WriteError> {
        self.failure.get().cloned()
    }

    /// The first cause stays.
    pub(super) fn fail(&self, error: &WriteError) {
        let _ = self.failure.set(error.clone());
    }
}

impl Upload {
    pub(super) fn new(store: Store, job: JobNumber, id: JobId) -> Self {
        Upload {
            store,
            job,
            id,
            packer: Packer::new(job),
            full: VecDeque::new(),
            has_spilled: false,
            is_finished: false,
            state: Arc::default(),
        }
    }

    /// The number that the job will have.
    #[must_use]
    pub fn job(&self) -> JobNumber {
        self.job
    }

    /// What users will call the job.
    #[must_use]
    pub fn id(&self) -> JobId {
        self.id
    }

    /// How many subtasks it has so far.
    #[must_use]
    pub fn total(&self) -> u32 {
        self.packer.next()
    }

    /// Adds a subtask, and returns its number. It only keeps it in memory.
    ///
    /// # Errors
    /// If there are [`MOST_SUBTASKS`] already, or it takes more than
    /// [`Store::MOST_SUBTASK_BYTES`](Store::MOST_SUBTASK_BYTES).
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

    /// Whether there is something to be flushed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    /// Hands full chunks to the writer, and waits for room if many others do the same. They may not be on
    /// the disk when it returns.
    ///
    /// # Errors
    /// If a chunk before was not written: then the job cannot be, and the upload should be dropped.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        while let Some(chunk) = self.full.front() {
            let change = self.spill(&Arc::clone(chunk))?;
            let room = self.store.shared().queue.room(&change.list);
            self.full.pop_front();
            self.store.hand_over(change, Answer::to_nobody(), room);
        }
        Ok(())
    }

    /// As [`flush`](Self::flush), without keeping a thread while it waits. Cancel safe: what was not
    /// handed over is handed over the next time.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn flush_async(&mut self) -> Result<(), WriteError> {
        while let Some(chunk) = self.full.front() {
            let change = self.spill(&Arc::clone(chunk))?;
            let room = self.store.shared().queue.room_async(&change.list).await;
            // Only now, so that none is lost if nobody polls this any more.
            self.full.pop_front();
            self.store.hand_over(change, Answer::to_nobody(), room);
        }
        Ok(())
    }

    fn spill(&mut self, chunk: &Arc<Chunk>) -> Result<Changes, WriteError> {
        if let Some(failed) = self.state.failure() {
            return Err(failed);
        }
        self.has_spilled = true;
        self.store.cache().put_if_room(chunk);
        let mut changes = Changes::new();
        let (chunk, upload) = (Arc::clone(chunk), Arc::clone(&self.state));
        changes.push(Change::Chunk { chunk, upload });
        Ok(changes)
    }

    /// Hands the job over, to be accepted: it is, with all its subtasks, when the answer says so, and
    /// otherwise there is nothing of it. It waits for room, but not for the disk.
    pub fn finish(self, new: NewJob) -> Pending {
        let (answer, pending) = Pending::new();
        self.finish_with_answer(new, answer);
        pending
    }

    /// As [`finish`](Self::finish), with what is to be called when it was accepted or not: on the
    /// writer's thread, in the order of acceptance. See [`Store::submit_with`] for what it may do.
    pub fn finish_with(
        self,
        new: NewJob,
        then: impl FnOnce(Result<Committed, WriteError>) + Send + 'static,
    ) {
        self.finish_with_answer(new, Answer::new(then));
    }

    /// As [`finish`](Self::finish), without keeping a thread while it waits for room. Dropped before it
    /// is ready, nothing is accepted.
    ///
    /// # Errors
    /// If it was not accepted.
    pub async fn finish_async(mut self, new: NewJob) -> Result<Committed, WriteError> {
        let (answer, pending) = Pending::new();
        self.flush_async().await?;
        let (rest, accept) = self.rest(new)?;
        if let Some(rest) = rest {
            let room = self.store.shared().queue.room_async(&rest.list).await;
            self.store.hand_over(rest, Answer::to_nobody(), room);
        }
        let room = self.store.shared().queue.room_async(&accept.list).await;
        self.is_finished = true;
        self.store.hand_over(accept, answer, room);
        pending.await
    }

    /// As [`finish_with`](Self::finish_with), and waits for room without keeping a thread.
    ///
    /// # Errors
    /// If it was refused before it came to the writer: then `then` is not called.
    pub async fn finish_with_async(
        self,
        new: NewJob,
        then: impl FnOnce(Result<Committed, WriteError>) + Send + 'static,
    ) -> Result<(), WriteError> {
        let store = self.store.clone();
        store.accept_with_async(vec![(self, new)], Changes::new(), then).await
    }

    fn finish_with_answer(mut self, new: NewJob, answer: Answer) {
        let parts = self.flush().and_then(|()| self.rest(new));
        let (rest, accept) = match parts {
            Ok(parts) => parts,
            Err(failed) => return answer.tell(Err(failed)),
        };
        let queue = &self.store.shared().queue;
        if let Some(rest) = rest {
            let room = queue.room(&rest.list);
            self.store.hand_over(rest, Answer::to_nobody(), room);
        }
        let room = queue.room(&accept.list);
        self.is_finished = true;
        self.store.hand_over(accept, answer, room);
    }

    /// The last chunk, if it is not in the job's own row; and that.
    fn rest(&mut self, new: NewJob) -> Result<(Option<Changes>, Changes), WriteError> {
        debug_assert!(self.job.0 < seal::JOBS, "numbers end where the store was asked for one");
        let total = self.packer.next();
        let last = self.packer.seal().map(Arc::new);
        let fits = !self.has_spilled
            && last.as_ref().is_some_and(|chunk| chunk.sealed().len() <= MOST_INLINE_BYTES);
        let (inline, rest) = if fits { (last, None) } else { (None, last) };
        if let Some(chunk) = &inline {
            self.store.cache().put(chunk);
        }
        let rest = rest.map(|chunk| self.spill(&chunk)).transpose()?;
        let (job, id, upload) = (self.job, self.id, Arc::clone(&self.state));
        let mut accept = Changes::new();
        let boxed = Box::new(Accept { job, id, new, total, inline, upload });
        accept.push(Change::Accept(boxed));
        Ok((rest, accept))
    }
}

impl Store {
    /// Hands jobs over, to be accepted together with other changes: all of it or nothing, in one transaction, the
    /// jobs in this order. `then` is called when they were accepted or not; see
    /// [`submit_with`](Self::submit_with) for what it may do. Waits for room without keeping a thread. Dropped
    /// before it is ready, nothing is accepted.
    ///
    /// # Errors
    /// If it was refused before it came to the writer: then `then` is not called.
    pub async fn accept_with_async(
        &self,
        jobs: Vec<(Upload, NewJob)>,
        also: Changes,
        then: impl FnOnce(Result<Committed, WriteError>) + Send + 'static,
    ) -> Result<(), WriteError> {
        let mut all = Changes::new();
        let mut uploads = Vec::with_capacity(jobs.len());
        for (mut upload, new) in jobs {
            upload.flush_async().await?;
            let (rest, accept) = upload.rest(new)?;
            if let Some(rest) = rest {
                let room = self.shared().queue.room_async(&rest.list).await;
                self.hand_over(rest, Answer::to_nobody(), room);
            }
            all.list.extend(accept.list);
            uploads.push(upload);
        }
        all.list.extend(also.list);
        let room = self.shared().queue.room_async(&all.list).await;
        uploads.iter_mut().for_each(|upload| upload.is_finished = true);
        self.hand_over(all, Answer::new(then), room);
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        self.store.cache().forget(self.job);
        if self.has_spilled {
            let mut changes = Changes::new();
            changes.push(Change::Abandon(self.job));
            self.store.hand_over(changes, Answer::to_nobody(), None);
        }
    }
}
