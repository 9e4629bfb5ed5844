//! What a history says about each job, subtask and key so far.

use std::collections::{BTreeMap, BTreeSet};

use crate::simulation::history::{Command, Entry, Run, Seen};
use crate::simulation::work::{JobSpec, RunEnd};

/// Time after which an end is on the disk for certain, in milliseconds without full disk: some slow
/// writes.
const WRITTEN: u64 = 6_000;

#[derive(Default)]
pub(super) struct State {
    pub(super) at: u64,
    pub(super) place: usize,
    pub(super) process: u32,
    pub(super) jobs: Vec<Job>,
    /// Highest fence of each key.
    pub(super) fences: BTreeMap<u8, u64>,
    pub(super) all_fences: BTreeSet<u64>,
    /// Commands without an answer, and the places at which they were sent.
    pub(super) open: BTreeMap<u64, (Command, usize)>,
    pub(super) keys: BTreeMap<u8, Pause>,
    /// Total sleep of the machine, in milliseconds.
    pub(super) slept: u64,
    pub(super) is_full: bool,
    /// Time without sleep at which the disk had room again.
    pub(super) full_until: u64,
    /// Steady time at which the wall clock was set last.
    pub(super) set_at: Option<u64>,
    pub(super) is_healed: bool,
    pub(super) broken: Vec<String>,
}

/// Pause of a key or of a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    /// Time without sleep since which it is certain.
    pub(super) since: Option<u64>,
    /// Place of the last request to resume.
    pub(super) resumed: usize,
}

/// Place and time of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) place: usize,
    pub(super) at: u64,
}

pub(super) struct Job {
    pub(super) spec: JobSpec,
    pub(super) submitting: usize,
    pub(super) accepted: Option<Moment>,
    pub(super) id: String,
    pub(super) tasks: Vec<Task>,
    pub(super) pause: Pause,
    /// A cancellation was sent.
    pub(super) is_cancelled: bool,
    /// Time without sleep since which a cancellation is certain.
    pub(super) cancelled_since: Option<u64>,
    /// A retry was sent: its subtasks may run again, at another place in the order.
    pub(super) is_retried: bool,
    /// It was over when it was last read.
    pub(super) is_over: bool,
    pub(super) last_read: Option<(u64, Seen)>,
}

/// Subtask.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub(super) starts: u32,
    /// Running attempt in the service, or lease whose work goes on.
    pub(super) running: Option<Run>,
    /// Steady time until which the last lease holds, unless it is reported or lost before.
    pub(super) held_until: u64,
    pub(super) last: Option<Run>,
    /// Process of the last start.
    pub(super) started_in: u32,
    /// Process of the last start on a remote worker.
    pub(super) leased_in: Option<u32>,
    pub(super) end: Option<TaskEnd>,
    pub(super) has_succeeded: bool,
    /// Whether it has possibly ended for good: a report without an answer, an attempt that a crash
    /// or an expiry has ended.
    pub(super) is_unknown: bool,
    /// It may have been skipped.
    pub(super) may_skip: bool,
    /// It may have been told to run again at once.
    pub(super) may_retry: bool,
    /// Maximum number of attempts since the last seen one: a start may be on the disk that no worker
    /// or handler saw before the process ended.
    pub(super) unseen: u32,
    /// It may have got an attempt beyond the maximum.
    pub(super) has_more: bool,
}

/// End of the last attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskEnd {
    pub(super) end: RunEnd,
    pub(super) at: u64,
    /// Time without sleep.
    pub(super) awake: u64,
    pub(super) process: u32,
    /// Whether it survives a crash for certain.
    pub(super) is_durable: bool,
    /// Whether the service has it for certain: a report may be lost.
    pub(super) is_known: bool,
}

impl State {
    pub(super) fn begin_entry(&mut self, place: usize, entry: &Entry) {
        (self.place, self.at, self.process) = (place, entry.at, entry.process);
    }

    /// Returns the time without the sleep of the machine.
    pub(super) fn awake(&self) -> u64 {
        self.at - self.slept
    }

    pub(super) fn fail(&mut self, why: String) {
        self.broken.push(format!("{:5}.{:03} {why}", self.at / 1000, self.at % 1000));
    }

    pub(super) fn task(&mut self, run: Run) -> &mut Task {
        &mut self.jobs[run.job].tasks[run.number as usize]
    }

    pub(super) fn keys_of(&self, run: Run) -> Vec<u8> {
        self.jobs[run.job].spec.subtasks[run.number as usize].clone()
    }

    /// Returns the tasks with a key, with their jobs' numbers and their own.
    pub(super) fn with_key(&self, key: u8) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (number, job) in self.jobs.iter().enumerate() {
            for (place, keys) in job.spec.subtasks.iter().enumerate() {
                if keys.contains(&key) {
                    found.push((number, place));
                }
            }
        }
        found
    }

    /// Notes that the ends of a job's subtasks are on the disk.
    pub(super) fn settle(&mut self, job: usize) {
        for task in &mut self.jobs[job].tasks {
            task.end.iter_mut().filter(|end| end.is_known).for_each(|end| end.is_durable = true);
        }
    }

    /// Notes that the process has ended: its attempts, and which ends survive.
    pub(super) fn process_ended(&mut self) {
        let (awake, is_full, full_until) = (self.awake(), self.is_full, self.full_until);
        let is_written = |since: u64| !is_full && since.max(full_until) + WRITTEN < awake;
        for task in self.jobs.iter_mut().flat_map(|job| &mut job.tasks) {
            task.unseen += 1;
            if let Some(end) = &mut task.end {
                end.is_durable |= end.is_known && is_written(end.awake);
                // The crash may have undone a success.
                if end.is_known && !end.is_durable && task.has_succeeded {
                    (task.has_succeeded, task.is_unknown) = (false, true);
                }
            }
            if task.running.take_if(|run| !run.is_lease).is_some() {
                (task.is_unknown, task.end) = (true, None);
            }
        }
        self.full(false);
    }

    pub(super) fn clock_was_set(&mut self) {
        self.set_at = Some(self.at);
    }

    pub(super) fn full(&mut self, is_full: bool) {
        if self.is_full {
            self.full_until = self.awake();
        }
        self.is_full = is_full;
    }
}
