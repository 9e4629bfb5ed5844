//! Result of a scheduling decision: the job that gets the free worker, the rule, and the subtask to
//! take.

use std::fmt;

/// Identifier of a job of one [`JobScheduler`](super::JobScheduler). Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId {
    /// First field, so that ids are ordered by submission.
    pub(super) serial: u64,
    pub(super) slot: u32,
}

impl JobId {
    /// Index among the unfinished jobs. Reused after the job ends.
    #[inline]
    pub fn slot(self) -> usize {
        self.slot as usize
    }

    /// Number of jobs submitted before this one.
    pub fn serial(self) -> u64 {
        self.serial
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.serial)
    }
}

/// Recipient of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claimant {
    /// A job.
    Job(JobId),
    /// The work outside jobs, as one stream.
    Loose,
}

/// Rule by which a worker was assigned, in the order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Rule 1: a job with a subtask to run and no worker keeps at least one.
    Keep,
    /// Ageing bound: an admitted job was limited to one worker for too long.
    Aged,
    /// Rule 2: a queued job is admitted.
    Admit,
    /// Rule 3: the job with the least requirement gets the remaining workers.
    Least,
}

/// Source of the subtask that the worker takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// A ready subtask of the job.
    Ready,
    /// The next subtask of the splitter, which may have none left, or one that is not ready yet.
    Split,
}

/// Assignment of one free worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Recipient of the worker.
    pub to: Claimant,
    /// Rule that decided.
    pub rule: Rule,
    /// Source of the subtask; always [`Take::Ready`] for work outside jobs.
    pub take: Take,
}

/// Result of an assigned worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The subtask succeeded.
    Done,
    /// The subtask failed. The job continues unless the caller [cancels](super::JobScheduler::cancel)
    /// it.
    Failed,
    /// The subtask released the worker before its end: it waits for keys, for its next attempt, or
    /// for a future. It continues with [`JobScheduler::ready`](super::JobScheduler::ready) or ends with
    /// [`JobScheduler::settled`](super::JobScheduler::settled).
    Waits,
    /// There was no subtask: the splitter is exhausted. For work outside jobs: no task is ready any
    /// more.
    Nothing,
}
