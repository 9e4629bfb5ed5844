//! Interfaces between engine, worker and job.

use std::any::Any;
use std::sync::{Arc, Weak};

use keylane_allocate::{Claimant, End, JobId, JobProgress, Take};

use crate::order::Claims;
use crate::run::{KeptValue, Turn};
use crate::sync::AtomicU64;
use crate::unwind::KeyPanic;

/// Job, as the engine sees it.
pub(crate) trait JobRunner<K, W>: Send + Sync {
    /// Takes subtasks as assigned, at most as many as the limits say, and runs or enqueues them.
    /// Returns `None` if the worker was already reported as free.
    fn run_batch(
        &self,
        take: Take,
        limits: BatchLimits,
        ctx: &mut dyn WorkerCtx<K, W>,
    ) -> Option<BatchReport>;

    /// Releases the subtasks that wait behind another one in some worker's batch to all workers.
    /// Returns the number of batches that it has closed. The released subtasks must be reported to
    /// the allocator: see [`stolen`](Self::stolen).
    fn release_batches(&self) -> usize;

    /// Returns the counter of subtasks that are ready and not yet reported to the allocator.
    fn stolen(&self) -> &AtomicU64;

    /// Returns whether the job has too many results that are not folded yet, so that it must not be
    /// split further.
    fn is_full(&self) -> bool;

    /// Returns the number of subtasks that may wait before the splitter is paused.
    fn max_waiting(&self) -> u64;

    /// Ends the job: all its subtasks have ended, or were dropped.
    fn finish(&self, last: JobProgress);

    /// Notes that the pool is stopped.
    fn stop(&self);

    /// Returns the name of the job.
    fn name(&self) -> &Arc<str>;
}

/// Maximum numbers of subtasks that a worker takes at once from the splitter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchLimits {
    /// Of those without keys, which it runs one after the other.
    pub(crate) free: usize,
    /// Of those with keys, which it enqueues.
    pub(crate) keyed: usize,
}

/// Worker of a job's subtasks, as the job sees it.
pub(crate) trait WorkerCtx<K, W> {
    /// Reports that the splitter was called, and may be called by another worker now. `exhausted`
    /// says that it is known to have no more.
    fn split(&mut self, exhausted: bool);

    /// Reports that the splitter is about to produce `count` subtasks with keys, beside the assigned
    /// one: they count as waiting. It comes before they are enqueued, so that the scheduler knows of
    /// each subtask that another worker finds in its lane.
    fn subtasks_announced(&mut self, count: u64);

    /// Reports that the splitter has ended before it has produced the last `count` of these. They count as done.
    fn announced_are_missing(&mut self, count: u64);

    /// Reports that the assigned subtask is about to be enqueued: it waits, and the worker is free
    /// again. It comes before it is enqueued, for the same reason.
    fn subtask_blocked(&mut self);

    /// Reports that the assigned subtask is a future, which continues elsewhere: the worker is free
    /// again.
    #[cfg(feature = "tokio")]
    fn subtask_detached(&mut self);

    /// Enqueues a task, unless the pool is stopped: then the task is dropped. If one of its keys
    /// panics, the task is dropped too, and the payload returned.
    fn enqueue(&mut self, claims: Claims<K>, work: W) -> Result<(), KeyPanic>;

    /// Reports `count` more subtasks from the splitter, beyond one, which are left to other
    /// workers.
    fn publish_ready(&mut self, count: u64);

    /// Reports that the worker has a batch from which others may take.
    fn open_batch(&mut self);

    /// Reports that the open batch is empty.
    fn close_batch(&mut self);

    /// Reports the subtasks that others have taken out of the batch to the allocator.
    fn report_stolen(&mut self, stolen: &AtomicU64);

    /// Checks a subtask that was granted its keys and is about to begin. If its key is paused by
    /// now, it returns to its wait queue, with the work that `note` makes of the value that was
    /// kept with its turn, and is reported to wait: the worker is free again. Otherwise its turn is
    /// returned: with a payload if the key panicked, so that the subtask must not begin.
    fn requeue_if_paused(
        &mut self,
        turn: Turn,
        _note: &mut dyn FnMut(Option<KeptValue>) -> W,
    ) -> Result<(), (Turn, Option<KeyPanic>)> {
        Err((turn, None))
    }

    /// Returns whether subtasks without keys may run now; if so, until
    /// [`end_unkeyed_run`](Self::end_unkeyed_run).
    fn start_unkeyed(&mut self) -> bool;

    /// Ends a run of subtasks without keys.
    fn end_unkeyed_run(&mut self);

    /// Returns whether a batch should end, because the assignments have changed since it began.
    fn is_interrupted(&self) -> bool;

    /// Reports that a subtask without keys is about to run.
    fn subtask_starts(&mut self);

    /// Counts a subtask that has run. One with keys was counted when it was granted those.
    fn subtask_ran(&mut self);

    /// Counts a subtask that has returned an error.
    fn failed(&self);

    /// Counts a subtask that has panicked.
    fn panicked(&self, payload: &(dyn Any + Send));
}

/// Result of a worker's assignment to a job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchReport {
    pub(crate) end: End,
    /// Number of subtasks that succeeded, beside the assigned one.
    pub(crate) more_done: u64,
    /// Number of subtasks that failed, beside the assigned one.
    pub(crate) more_failed: u64,
    /// Whether the worker has found these further subtasks in their lanes, where they were reported
    /// to wait.
    pub(crate) in_lanes: bool,
    /// Whether the job is to be cancelled.
    pub(crate) cancels: bool,
}

impl BatchReport {
    pub(crate) fn ended(end: End) -> Self {
        BatchReport { end, more_done: 0, more_failed: 0, in_lanes: false, cancels: false }
    }
}

/// Report of a worker that returns from an assignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkerReport {
    pub(crate) who: Claimant,
    /// Queue from which it took its subtasks.
    pub(crate) take: Take,
    pub(crate) report: BatchReport,
}

/// Assignment of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerAssignment {
    /// No work.
    Nothing,
    /// Work outside jobs.
    Loose,
    /// The worker's current job.
    Job {
        take: Take,
        /// Whether no other job, and no work outside jobs, needs a worker.
        alone: bool,
    },
}

/// Job of the worker's last assignment, which is likely to be the next one too.
pub(crate) struct CurrentJob<K, W>(Option<JobRef<K, W>>);

/// Job with its id in the allocator.
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

/// Engine, as its jobs and their handles see it.
pub(crate) trait JobControl: Send + Sync {
    /// Reports that one of the job's subtasks that waits, or is about to, can start.
    fn ready(&self, id: JobId);
    /// Reports that one of the job's running futures has ended.
    #[cfg(feature = "tokio")]
    fn settled(&self, id: JobId, failed: bool);
    /// Prevents more of the job's subtasks from beginning. The job drops them itself.
    fn cancel_job(&self, id: JobId);
    fn pause_job(&self, id: JobId, paused: bool) -> bool;
    fn set_job_weight(&self, id: JobId, weight: u32) -> bool;
    fn progress_of(&self, id: JobId) -> Option<JobProgress>;
    /// Returns whether the calling thread runs a task of this engine.
    fn is_here(&self) -> bool;
}

/// Weak reference, so that a job does not keep its engine alive.
pub(crate) type WeakJobControl = Weak<dyn JobControl>;
