use std::sync::Arc;

use super::change::{Accept, Answer, Change, Changes, Committed, NewJob};
use super::chunk::Chunk;
use super::error::WriteError;
use super::handle::Store;
use super::parts::Parts;
use super::pending::Pending;
use super::seal;
use crate::ids::{JobId, JobNumber, SubtaskNumber};

/// Up to how many bytes of subtasks lie in the job's own row.
pub(super) const MOST_INLINE_BYTES: usize = 8 * 1024;

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
    job: JobNumber,
    id: JobId,
    parts: Parts,
    is_finished: bool,
}

impl Upload {
    pub(super) fn new(store: Store, job: JobNumber, id: JobId) -> Self {
        Upload { job, id, parts: Parts::new(store, job, 0), is_finished: false }
    }

    /// The job's number.
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
        self.parts.total()
    }

    /// Adds a subtask, and returns its number. It only keeps it in memory.
    ///
    /// # Errors
    /// If there are [`MOST_SUBTASKS`](super::MOST_SUBTASKS) already, or it takes more than
    /// [`Store::MOST_SUBTASK_BYTES`](Store::MOST_SUBTASK_BYTES).
    pub fn push<K: AsRef<[u8]>>(
        &mut self,
        keys: &[K],
        payload: &[u8],
    ) -> Result<SubtaskNumber, WriteError> {
        self.parts.push(keys, payload)
    }

    /// Whether there is something to be flushed.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.parts.is_full()
    }

    /// Hands full chunks to the writer, and waits for room if many others do the same. They may not be on
    /// the disk when it returns.
    ///
    /// # Errors
    /// If a chunk before was not written: then the job cannot be, and the upload should be dropped.
    pub fn flush(&mut self) -> Result<(), WriteError> {
        self.parts.flush()
    }

    /// As [`flush`](Self::flush), without keeping a thread while it waits. Cancel safe: what was not
    /// handed over is handed over the next time.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub async fn flush_async(&mut self) -> Result<(), WriteError> {
        self.parts.flush_async().await
    }

    /// Hands the job over, to be accepted: it is, with all its subtasks, when the answer says so, and
    /// otherwise there is nothing of it. It waits for room, but not for the disk.
    pub fn finish(self, new: NewJob) -> Pending {
        let (answer, pending) = Pending::new();
        self.finish_with_answer(new, answer);
        pending
    }

    /// As [`finish`](Self::finish), with what is to be called when it was accepted or not: on the
    /// writer's thread, in the order of the commits. See [`Store::submit_with`] for what it may do.
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
    pub async fn finish_async(self, new: NewJob) -> Result<Committed, WriteError> {
        let (answer, pending) = Pending::new();
        self.finish_with_async(new, move |written| answer.tell(written)).await;
        pending.await
    }

    /// As [`finish_with`](Self::finish_with), and waits for room without keeping a thread.
    ///
    /// `then` is called when it is settled. Dropped before it is ready, nothing is accepted, and `then` is not called.
    pub async fn finish_with_async(
        self,
        new: NewJob,
        then: impl FnOnce(Result<Committed, WriteError>) + Send + 'static,
    ) {
        let store = self.parts.store.clone();
        store.accept_with_async(vec![(self, new)], Changes::new(), then).await;
    }

    fn finish_with_answer(mut self, new: NewJob, answer: Answer) {
        let accept = self.complete(new);
        if let Err(failed) = self.parts.flush() {
            return answer.tell(Err(failed));
        }
        let room = self.parts.store.shared().queue.room(&accept.list);
        self.is_finished = true;
        self.parts.store.hand_over(accept, answer, room);
    }

    /// What accepts the job. Its last chunk is in it if it is small and the only one, and else is handed over
    /// before.
    fn complete(&mut self, new: NewJob) -> Changes {
        debug_assert!(self.job.0 < seal::JOBS, "numbers end where the store was asked for one");
        let total = self.parts.total();
        let is_one = !self.parts.has_spilled && !self.parts.is_full();
        let mut inline = self.parts.seal();
        let fits = |chunk: &Chunk| is_one && chunk.sealed().len() <= MOST_INLINE_BYTES;
        if let Some(last) = inline.take_if(|chunk| !fits(chunk)) {
            self.parts.put(last);
        }
        if let Some(chunk) = &inline {
            self.parts.store.cache().put(chunk);
        }
        let (job, id, upload) = (self.job, self.id, Arc::clone(&self.parts.state));
        let mut accept = Changes::new();
        let boxed = Box::new(Accept { job, id, new, total, inline, upload });
        accept.push(Change::Accept(boxed));
        accept
    }
}

impl Store {
    /// Hands jobs over, to be accepted together with other changes: all of it or nothing, in one transaction, the
    /// jobs in this order. `then` is called when they were accepted or not; see
    /// [`submit_with`](Self::submit_with) for what it may do. Waits for room without keeping a thread. Dropped
    /// before it is ready, nothing is accepted, and `then` is not called.
    pub async fn accept_with_async(
        &self,
        jobs: Vec<(Upload, NewJob)>,
        also: Changes,
        then: impl FnOnce(Result<Committed, WriteError>) + Send + 'static,
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
        // Made only now: a client that goes away while it waits is no failure of the store.
        self.hand_over(all, Answer::new(then), room);
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if self.is_finished {
            return;
        }
        let store = &self.parts.store;
        store.cache().forget(self.job);
        if self.parts.has_spilled {
            let mut changes = Changes::new();
            changes.push(Change::Abandon(self.job));
            store.hand_over(changes, Answer::to_nobody(), None);
        }
    }
}
