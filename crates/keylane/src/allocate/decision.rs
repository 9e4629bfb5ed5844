//! What the rules answer: who gets the free worker, by which rule, and what the worker takes.

use std::fmt;

/// A job of one [`Allocator`](super::Allocator). No two of its jobs ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId {
    /// First, so that ids are in the order in which the jobs were submitted.
    pub(super) serial: u64,
    pub(super) slot: u32,
}

impl JobId {
    /// Its place among the unfinished jobs, which another may have once it is over.
    pub(crate) fn slot(self) -> usize {
        self.slot as usize
    }

    /// How many jobs were submitted before this one.
    pub fn serial(self) -> u64 {
        self.serial
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job {}", self.serial)
    }
}

/// Who gets a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Claimant {
    /// A job.
    Job(JobId),
    /// The work that belongs to no job, all of it together.
    Loose,
}

/// Why somebody gets a worker: the rules, in the order in which they are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// Rule 1: who has something to do and no worker keeps at least one.
    Keep,
    /// The ageing bound: an admitted job was held at one worker for too long.
    Aged,
    /// Rule 2: the first of those who wait begins.
    Admit,
    /// Rule 3: who needs the least to be done gets what is left.
    Least,
}

/// What the worker is to take from the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Take {
    /// A subtask that is ready.
    Ready,
    /// The next subtask from the splitter, which may have none, or one that is not ready yet.
    Split,
}

/// One free worker, given to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Decision {
    /// Who gets it.
    pub to: Claimant,
    /// By which rule.
    pub rule: Rule,
    /// What it is to take there; for loose work always something ready.
    pub take: Take,
}

/// What became of a worker that was given to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Its subtask is done.
    Done,
    /// Its subtask ended, and not well. Whether the job goes on is the caller's to say: see
    /// [`Allocator::cancel`](super::Allocator::cancel).
    Failed,
    /// Its subtask needs no worker now and is not over: it waits for keys, for its next attempt, or
    /// for a future. It comes back with [`Allocator::ready`](super::Allocator::ready) or ends with
    /// [`Allocator::settled`](super::Allocator::settled).
    Waits,
    /// There was no subtask: the splitter has no more. For loose work: nothing is ready any more.
    Nothing,
}
