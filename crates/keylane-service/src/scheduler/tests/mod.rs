//! What the scheduler promises, and that its parts agree with each other.

mod check;
mod controls;
mod key_chain;
mod key_rates;
mod kinds;
mod latest;
mod limited;
mod line;
mod model;
mod priorities;
mod shared;
mod tenants;
mod timeline;
mod waits;

use super::{NewJob, NewSubtask, RunStart, Scheduler, SchedulerSettings, Step};
use crate::JobNumber;

type Keys = Vec<&'static [u8]>;

/// A subtask with keys of one letter each.
fn subtask(number: u32, keys: &'static str) -> NewSubtask<Keys> {
    let keys = keys.as_bytes().chunks(1).collect();
    NewSubtask { number, keys, attempts_made: 0 }
}

/// A job with a subtask for each of these.
fn job(number: u64, subtasks: &[&'static str]) -> NewJob<Vec<NewSubtask<Keys>>> {
    let subtasks = subtasks.iter().enumerate().map(|(n, keys)| subtask(n as u32, keys));
    NewJob::new(JobNumber(number), subtasks.collect())
}

fn scheduler(slots: usize) -> Scheduler {
    Scheduler::new(SchedulerSettings::new(slots))
}

/// Everything that can start now.
fn start_all(scheduler: &mut Scheduler, now: u64) -> Vec<RunStart> {
    let mut starts = Vec::new();
    scheduler.poll_starts(usize::MAX, &mut starts, now);
    starts
}

/// Job and subtask of each.
fn names(starts: &[RunStart]) -> Vec<(u64, u32)> {
    let name = |start: &RunStart| match start.step {
        Step::Subtask(number) => (start.job.0, number),
        Step::Split => (start.job.0, 1000),
        Step::FanIn => (start.job.0, 2000),
    };
    starts.iter().map(name).collect()
}
