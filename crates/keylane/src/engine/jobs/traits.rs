//! What the engine, a worker and a job are to each other.

use std::any::Any;
use std::sync::{Arc, Weak};

use crate::allocate::{Claimant, End, JobId, Progress, Take};
use crate::order::Claims;
use crate::run::{KeptValue, Turn};
use crate::sync::AtomicU64;

/// A job, as the engine sees it.
pub(crate) trait JobRunner<K, W>: Send + Sync {
    /// Takes what it is told to, up to `most` subtasks, and runs it. Nothing comes back if the site was
    /// told already that the worker is free again.
    fn run_batch(
        &self,
        take: Take,
        most: usize,
        ctx: &mut dyn WorkerCtx<K, W>,
    ) -> Option<BatchReport>;

    /// Lets anybody have the subtasks that wait behind another in some worker's batch. How many lots
    /// that has closed. What they held is to be told to the rules: `stolen`.
    fn release_batches(&self) -> usize;

    /// Subtasks of it that are ready, and that the rules do not know of.
    fn stolen(&self) -> &AtomicU64;

    /// Whether it has so many results that nobody has folded that it should not be split on.
    fn is_full(&self) -> bool;

    /// How many of its subtasks may wait before its splitter is held back.
    fn max_waiting(&self) -> u64;

    /// It is over: all its subtasks have ended, or were dropped.
    fn finish(&self, last: Progress);

    /// Its pool is stopped.
    fn stop(&self);

    /// What it is called.
    fn name(&self) -> &Arc<str>;
}

/// The worker that a job's subtasks run on, as the job sees it.
pub(crate) trait WorkerCtx<K, W> {
    /// The splitter was asked, and may be asked by another worker now. `exhausted` says that it is
    /// known to have no more.
    fn split(&mut self, exhausted: bool);

    /// The subtask that the worker was given for was entered and waits: the worker is free again. By
    /// then somebody may have said already that it is ready.
    fn subtask_blocked(&mut self, exhausted: bool);

    /// The subtask that the worker was given for is a future, which goes on elsewhere: the worker is free again.
    #[cfg(feature = "tokio")]
    fn subtask_detached(&mut self);

    /// Puts a task into the order of the pool, unless that is stopped: then the task is dropped.
    fn enqueue(&mut self, claims: Claims<K>, work: W);

    /// So many subtasks more than one have come from the splitter, and are left to whoever comes.
    fn publish_ready(&mut self, count: u64);

    /// The worker has a batch from which others may take.
    fn open_batch(&mut self);

    /// Nothing is left in it.
    fn close_batch(&mut self);

    /// Tells the rules of subtasks that others have taken out of the batch.
    fn report_stolen(&mut self, stolen: &AtomicU64);

    /// A subtask that was granted its keys is about to begin. If its key is held by now it goes back to its line,
    /// as what `note` makes of the value that was kept with its turn. Else its turn comes back.
    fn requeue_if_paused(
        &mut self,
        turn: Turn,
        _note: &mut dyn FnMut(Option<KeptValue>) -> W,
    ) -> Result<(), Turn> {
        Err(turn)
    }

    /// Whether subtasks without keys may run now; if so, until `end_unkeyed_run`.
    fn start_unkeyed(&mut self) -> bool;

    /// None runs any more.
    fn end_unkeyed_run(&mut self);

    /// Whether a batch had better end here: something has changed since it began.
    fn is_interrupted(&self) -> bool;

    /// A subtask without keys is about to run.
    fn subtask_starts(&mut self);

    /// Counts a subtask that has run. One with keys was counted when it was granted those.
    fn subtask_ran(&mut self);

    /// A subtask has returned an error.
    fn failed(&self);

    /// A subtask has panicked.
    fn panicked(&self, payload: &(dyn Any + Send));
}

/// What became of a worker that was given to a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchReport {
    pub(crate) end: End,
    /// Subtasks that ended well beyond the one that the worker was given for,
    pub(crate) more_done: u64,
    /// and that ended otherwise.
    pub(crate) more_failed: u64,
    /// The job is to be cancelled.
    pub(crate) cancels: bool,
}

impl BatchReport {
    pub(crate) fn ended(end: End) -> Self {
        BatchReport { end, more_done: 0, more_failed: 0, cancels: false }
    }
}

/// A worker that comes back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerReport {
    pub(crate) who: Claimant,
    /// Where it took what it ran.
    pub(crate) take: Take,
    pub(crate) report: BatchReport,
}

/// Where a worker goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Assignment {
    /// There is nothing for it.
    Nothing,
    /// To the work outside jobs.
    Loose,
    /// To the job at its desk.
    Job {
        take: Take,
        /// No other job, and no work outside of jobs, wants a worker.
        alone: bool,
    },
}

/// The job that a worker was last given to, which is likely to be the next one as well.
pub(crate) struct CurrentJob<K, W>(Option<JobRef<K, W>>);

/// A job and what the rules know it by.
pub(crate) type JobRef<K, W> = (JobId, Arc<dyn JobRunner<K, W>>);

impl<K, W> Default for CurrentJob<K, W> {
    fn default() -> Self {
        CurrentJob(None)
    }
}

impl<K, W> CurrentJob<K, W> {
    pub(crate) fn job(&self) -> Option<&JobRef<K, W>> {
        self.0.as_ref()
    }

    pub(super) fn set(&mut self, id: JobId, runner: &Arc<dyn JobRunner<K, W>>) {
        self.0 = Some((id, runner.clone()));
    }

    pub(crate) fn clear(&mut self) {
        self.0 = None;
    }
}

/// The engine, as its jobs and their handles see it.
pub(crate) trait JobControl: Send + Sync {
    /// One of the job's subtasks that waits, or is about to, can start.
    fn ready(&self, id: JobId);
    /// One of the job's subtasks that waited, a future, has ended.
    #[cfg(feature = "tokio")]
    fn settled(&self, id: JobId, failed: bool);
    /// No more of the job's subtasks are to begin. The job drops them itself.
    fn cancel_job(&self, id: JobId);
    fn pause_job(&self, id: JobId, paused: bool) -> bool;
    fn set_job_weight(&self, id: JobId, weight: u32) -> bool;
    fn progress_of(&self, id: JobId) -> Option<Progress>;
    /// Whether the calling thread runs a task of this engine.
    fn is_here(&self) -> bool;
}

/// A job must not keep its engine.
pub(crate) type WeakJobControl = Weak<dyn JobControl>;
