//! The state of subtasks that were under way when the process before ended: they go on where they were.
//!
//! A job is accepted after a restart with what is unfinished of it, and then each subtask that was under way is
//! *restored*: a lease that its worker still has, an attempt that waits, a subtask that has stopped its keys.
//!
//! # Leases that go on
//!
//! A restored run has its lanes and a place of its kind as any other. Its slot is taken from the allocator's workers
//! instead of being given by the allocator: that decides which job is next, and nothing is to be decided here. So the
//! allocator sees the subtask as one that waits, and has one worker fewer, until the run ends: then the subtask is
//! settled or waits, and the worker is back. Slots are neither idle nor given twice: `slots` are the allocator's
//! workers and the restored runs together, or fewer if there are more of these than slots.
//!
//! Why a restored run heads its lanes: it was leased after the ends of all before it were on the disk
//! (`engine/dispatch.rs`), so recovery does not accept these again, and nothing enters a lane but at its end.

use super::Step;
use super::job::StepState;
use super::scheduler::{Run, Scheduler};
use super::task::{Phase, Task};
use super::timers::Due;
use crate::{JobNumber, SubtaskNumber};
use keylane::allocate::Rule;

/// What a subtask was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Restored {
    /// A worker has it, under this fence, since this time. The attempt counts once more than the subtask was accepted
    /// with.
    Running {
        /// Fence of the run, which no other run has.
        fence: u64,
        /// Start of the run, in milliseconds.
        since: u64,
    },
    /// Its next attempt begins at this time, in milliseconds.
    BackingOff {
        /// Time of the next attempt.
        until: u64,
    },
    /// It has stopped its keys.
    Stopped,
}

impl Scheduler {
    /// Restores what a subtask of a job was doing that was [accepted](Self::accept) just now. False if that cannot be:
    /// the job has not begun, the subtask is not there, does not head its lanes, or has no keys to stop. Then it stays as it
    /// was accepted.
    pub fn restore(
        &mut self,
        job: JobNumber,
        subtask: SubtaskNumber,
        was: Restored,
        now: u64,
    ) -> bool {
        let now = self.at(now);
        let Some(task) = self.find(job).and_then(|slot| self.take_out(slot, subtask, was, now))
        else {
            return false;
        };
        let slot = self.tasks[task].job;
        match was {
            Restored::Running { fence, since } => {
                let since = self.steady(since);
                let begun = &mut self.tasks[task];
                begun.attempts += 1;
                begun.at = fence;
                let run = Run { task, since, rule: Rule::Keep, is_restored: true };
                self.runs.insert(fence, run);
                self.enter_phase(slot, task, Phase::Running);
                let kind = self.jobs[slot].kind;
                self.kinds.note_start(kind, Step::Subtask(subtask));
                self.kinds.restore(kind);
                self.restored += 1;
                self.fit_workers(now);
            }
            Restored::BackingOff { until } => self.back_off(slot, task, until),
            Restored::Stopped => self.enter_phase(slot, task, Phase::Stopped),
        }
        true
    }

    /// Has a subtask, the split or the fan-in of a job that was [accepted](Self::accept) just now wait until then. False if
    /// that cannot be, as [`restore`](Self::restore) says: a fan-in is there only when all else has ended.
    pub fn restore_backoff(&mut self, job: JobNumber, step: Step, until: u64, now: u64) -> bool {
        if let Step::Subtask(number) = step {
            return self.restore(job, number, Restored::BackingOff { until }, now);
        }
        let now = self.at(now);
        let Some(slot) = self.find(job).filter(|slot| self.jobs[*slot].share.is_some()) else {
            return false;
        };
        let share = self.share(slot);
        let task = match (step, self.jobs[slot].split) {
            (Step::Split, StepState::Pending(_)) => {
                let task = self.take_split(slot, now);
                // As after an attempt: for the allocator it is a subtask that waits, beside a splitter that is held.
                self.allocator.came(share, 0, 1, now);
                task
            }
            (Step::FanIn, _) => {
                let Some(task) = self.ready_step(slot) else { return false };
                self.leave_phase(slot, task);
                self.allocator.unready(share, 1, now);
                task
            }
            _ => return false,
        };
        self.back_off(slot, task, until);
        true
    }

    /// `until` is a time of the caller.
    fn back_off(&mut self, slot: u32, task: u32, until: u64) {
        let until = self.steady(until);
        self.tasks[task].at = until;
        self.enter_phase(slot, task, Phase::BackingOff);
        self.timers.set(until, Due::Attempt(task));
    }

    /// Takes a subtask that waits or is ready out of its phase. It waits for the allocator from here on.
    fn take_out(
        &mut self,
        slot: u32,
        number: SubtaskNumber,
        was: Restored,
        now: u64,
    ) -> Option<u32> {
        let share = self.jobs[slot].share?;
        if let Some(task) = self.jobs[slot].roll.find(&self.tasks, slot, number) {
            let is_head = || self.lanes.standings(&self.tasks, task, 1).all(|it| it.ahead == 0);
            match self.tasks[task].phase {
                Phase::Ready => _ = self.allocator.unready(share, 1, now),
                Phase::Waiting if was == Restored::Stopped || is_head() => {}
                _ => return None,
            }
            if was == Restored::Stopped && !self.tasks[task].has_keys() {
                return None;
            }
            self.leave_phase(slot, task);
            return Some(task);
        }
        if was == Restored::Stopped {
            return None;
        }
        let job = &mut self.jobs[slot];
        let made = job.fresh.remove(number)?;
        job.counts.ready -= 1;
        self.allocator.unready(share, 1, now);
        let task = self.tasks.insert(Task::new(slot, number, made));
        self.jobs[slot].roll.begin(number, task);
        Some(task)
    }

    /// Gives the allocator the slots that restored runs leave it.
    pub(super) fn fit_workers(&mut self, now: u64) {
        self.allocator.resize(self.slots.saturating_sub(self.restored), now);
    }
}
