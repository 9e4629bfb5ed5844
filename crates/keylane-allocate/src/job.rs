//! Counts of one job, and the offer and requirement that the rules derive from them.

use std::cmp::Ordering;

use super::{End, Take};

/// Source of a job's subtasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// A number of subtasks, all of them ready.
    Ready(u64),
    /// Existing subtasks, some of which wait for their keys and become ready with
    /// [`JobScheduler::ready`](super::JobScheduler::ready).
    Lined {
        /// Number of ready subtasks.
        ready: u64,
        /// Number of waiting subtasks.
        waiting: u64,
    },
    /// A splitter that produces subtasks one by one, when a worker is free for the job. It may
    /// produce more or fewer than expected.
    Split {
        /// Expected number of subtasks. Jobs without one get spare workers after those with one;
        /// among themselves, the one that has had the least comes first.
        expected: Option<u64>,
    },
}

/// Progress of a job, in numbers of subtasks.
///
/// A pool reports short subtasks several at a time: up to 64 that have ended may still count as running or waiting while their
/// worker is busy with the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobProgress {
    /// Subtasks that succeeded.
    pub done: u64,
    /// Subtasks that failed.
    pub failed: u64,
    /// Subtasks that have a worker, and workers in the splitter.
    pub running: u64,
    /// Subtasks that could start now.
    pub ready: u64,
    /// Existing subtasks that can neither start nor run now: they wait for keys, for their next
    /// attempt, or for a future.
    pub waiting: u64,
    /// Subtasks that the splitter is expected to produce, if known.
    pub to_come: Option<u64>,
    /// Whether the job is admitted. Before that it has no worker, and its splitter is not called.
    pub admitted: bool,
    /// Whether the job is paused.
    pub paused: bool,
}

impl JobProgress {
    /// Total number of subtasks, if known.
    pub fn total(&self) -> Option<u64> {
        Some(self.requirement()? + self.done + self.failed)
    }

    /// Number of subtasks that have not ended, running ones included, if known: the article's
    /// `threadRequirement`.
    pub fn requirement(&self) -> Option<u64> {
        Some(self.to_come? + self.running + self.ready + self.waiting)
    }
}

/// Subtasks that a splitter can still produce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Splitter {
    /// None.
    Closed,
    /// The expected number, if known. The splitter is called once more even if it is 0.
    Open(Option<u64>),
}

/// A time, and a sequence number that orders events at the same time.
pub(super) type EventTime = (u64, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScheduledJob {
    /// Number of jobs submitted before this one; orders jobs by age.
    pub(super) serial: u64,
    pub(super) weight: u32,
    pub(super) splitter: Splitter,
    /// Set while the caller wants no more waiting subtasks of this job: the splitter is not called.
    pub(super) splitter_paused: bool,
    pub(super) ready: u64,
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) admitted: bool,
    pub(super) paused: bool,
    pub(super) cancelled: bool,
    /// Time of submission.
    pub(super) arrival: u64,
    /// Set while the job is admitted, has a subtask to run and has no worker: the start of this
    /// state.
    pub(super) needs_since: Option<EventTime>,
    /// Set while the job is admitted, has a subtask to run and has at most one worker: the start of
    /// this state, or of its last ageing.
    pub(super) at_one_worker_since: Option<u64>,
}

impl ScheduledJob {
    pub(super) fn new(serial: u64, supply: Supply, weight: u32, arrival: u64) -> Self {
        let (ready, waiting, splitter) = match supply {
            Supply::Ready(count) => (count, 0, Splitter::Closed),
            Supply::Lined { ready, waiting } => (ready, waiting, Splitter::Closed),
            Supply::Split { expected } => (0, 0, Splitter::Open(expected)),
        };
        ScheduledJob {
            serial,
            weight,
            splitter,
            splitter_paused: false,
            ready,
            running: 0,
            waiting,
            done: 0,
            failed: 0,
            admitted: false,
            paused: false,
            cancelled: false,
            arrival,
            needs_since: None,
            at_one_worker_since: None,
        }
    }

    /// Returns whether a free worker would find a subtask here.
    pub(super) fn offers(&self) -> bool {
        !self.paused
            && (self.ready > 0 || self.splitter != Splitter::Closed && !self.splitter_paused)
    }

    /// Returns whether the job counts against the bound of rule 2. A job that is paused, or whose
    /// subtasks all wait, cannot use a worker and keeps no other job out.
    pub(super) fn counts_as_active(&self) -> bool {
        self.admitted && (self.running > 0 || self.offers())
    }

    pub(super) fn is_over(&self) -> bool {
        self.splitter == Splitter::Closed && self.ready + self.running + self.waiting == 0
    }

    pub(super) fn progress(&self) -> JobProgress {
        JobProgress {
            done: self.done,
            failed: self.failed,
            running: self.running,
            ready: self.ready,
            waiting: self.waiting,
            to_come: match self.splitter {
                Splitter::Closed => Some(0),
                Splitter::Open(expected) => expected,
            },
            admitted: self.admitted,
            paused: self.paused,
        }
    }

    pub(super) fn rank(&self) -> JobRank {
        let requirement = self.progress().requirement();
        let had = self.done + self.failed + self.running;
        JobRank { requirement, had, weight: self.weight, serial: self.serial }
    }

    /// Assigns a worker. Ready subtasks go first: they were split earlier, and other tasks may wait
    /// for their keys.
    pub(super) fn start(&mut self) -> Take {
        self.admitted = true;
        self.running += 1;
        if self.ready > 0 {
            self.ready -= 1;
            return Take::Ready;
        }
        self.split(1);
        Take::Split
    }

    /// Counts `count` subtasks from the splitter.
    fn split(&mut self, count: u64) {
        if let Splitter::Open(Some(expected)) = &mut self.splitter {
            *expected = expected.saturating_sub(count);
        }
    }

    /// Adds `count` subtasks that the worker in the splitter has produced.
    pub(super) fn split_more(&mut self, count: u64) {
        assert!(self.running > 0, "job {} has no worker in its splitter", self.serial);
        if !self.cancelled {
            self.split(count);
            self.ready += count;
        }
    }

    /// Releases a worker.
    pub(super) fn end(&mut self, end: End) {
        assert!(self.running > 0, "job {} has no worker that could end", self.serial);
        self.running -= 1;
        match end {
            End::Done => self.done += 1,
            End::Failed => self.failed += 1,
            // A cancelled job has discarded its waiting subtasks.
            End::Waits => self.waiting += u64::from(!self.cancelled),
            End::Nothing => self.splitter = Splitter::Closed,
        }
    }

    /// Counts subtasks that an assigned worker has run beyond the first.
    pub(super) fn ran_more(&mut self, take: Take, done: u64, failed: u64) {
        assert!(self.running > 0, "job {} has no worker that could have run more", self.serial);
        match take {
            // A cancelled job has discarded its ready subtasks, including those that the worker had
            // already taken.
            Take::Ready if self.cancelled => {}
            Take::Ready => {
                assert!(
                    self.ready >= done + failed,
                    "job {} has fewer ready subtasks than were run",
                    self.serial
                );
                self.ready -= done + failed;
            }
            Take::Split => self.split(done + failed),
        }
        self.done += done;
        self.failed += failed;
    }

    /// Adds subtasks, counted against the splitter if it is open.
    pub(super) fn add_subtasks(&mut self, ready: u64, waiting: u64) {
        self.split(ready + waiting);
        self.ready += ready;
        self.waiting += waiting;
    }

    pub(super) fn become_ready(&mut self, count: u64) {
        self.leave_waiting(count);
        self.ready += count;
    }

    pub(super) fn return_to_waiting(&mut self, count: u64) {
        assert!(self.ready >= count, "job {} has fewer than {count} ready subtasks", self.serial);
        self.ready -= count;
        self.waiting += count;
    }

    pub(super) fn resolve_waiting(&mut self, failed: bool) {
        self.leave_waiting(1);
        if failed {
            self.failed += 1;
        } else {
            self.done += 1;
        }
    }

    fn leave_waiting(&mut self, count: u64) {
        assert!(
            self.waiting >= count,
            "job {} has fewer than {count} waiting subtasks",
            self.serial
        );
        self.waiting -= count;
    }

    /// Discards subtasks that have not started; the job ends with the running ones.
    pub(super) fn cancel(&mut self) {
        self.cancelled = true;
        self.ready = 0;
        self.waiting = 0;
        self.splitter = Splitter::Closed;
    }
}

/// Rank of a job for spare workers: the least requirement for its weight first. Jobs of unknown
/// requirement follow, with the least attained service for its weight first: where most jobs are
/// small and a few are huge, this is as good a guess as any, and two endless jobs share evenly
/// (Nuyens and Wierman, "The foreground-background queue: a survey", 2008). Of equals, the older
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JobRank {
    requirement: Option<u64>,
    /// Subtasks that have started and do not wait.
    had: u64,
    weight: u32,
    serial: u64,
}

impl Ord for JobRank {
    fn cmp(&self, other: &Self) -> Ordering {
        // Compares mine / weight with others / weight, without rounding.
        let compare = |mine: u64, others: u64| {
            let mine = u128::from(mine) * u128::from(other.weight);
            mine.cmp(&(u128::from(others) * u128::from(self.weight)))
        };
        let by_need = match (self.requirement, other.requirement) {
            (Some(mine), Some(others)) => compare(mine, others),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => compare(self.had, other.had),
        };
        by_need.then(self.serial.cmp(&other.serial))
    }
}

impl PartialOrd for JobRank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
