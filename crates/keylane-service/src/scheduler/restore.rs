//! Restoration of subtasks that were in progress when the previous process ended.
//!
//! After a restart a job is accepted with its unfinished subtasks, and then each subtask that was
//! in progress is *restored*: a lease that its worker still has, a subtask that backs off, or one
//! that has stopped its keys.
//!
//! # Leases that survive a restart
//!
//! A restored run has its lanes and its kind's capacity, as any other. Its slot is taken out of the
//! allocator's workers: the allocator decides which job is next, and there is no decision to make
//! here. So the allocator sees the subtask as waiting and has one worker fewer until the run ends;
//! then the subtask is settled or waits, and the worker is added again. The run counts against its
//! tenant's share and maximum. Slots neither idle nor are
//! given twice: `slots` is the sum of the allocator's workers and the restored runs, or less if
//! restored runs exceed the slots.
//!
//! Why a restored run heads its lanes: it was leased after the ends of all its predecessors were on
//! disk (`engine/dispatch.rs`), so recovery does not accept these again, and new tasks enter a lane
//! at its end only.

use keylane_allocate::Rule;

use super::Step;
use super::job::StepState;
use super::state::{RunningTask, Scheduler};
use super::task::{ScheduledTask, TaskPhase};
use super::timers::TimerEvent;
use crate::{JobNumber, SubtaskNumber};

/// State of a subtask before the restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RestoredState {
    /// A worker has it under this fence. The attempt counts in addition to those with which the
    /// subtask was accepted.
    Running {
        /// Fence of the run, unique to it.
        fence: u64,
        /// Start of the run, in milliseconds.
        since: u64,
    },
    /// It waits for its next attempt.
    BackingOff {
        /// Time of the next attempt, in milliseconds.
        until: u64,
    },
    /// It blocks its keys after its last attempt failed.
    Stopped,
}

impl Scheduler {
    /// Restores the state of a subtask of a job that was just [accepted](Self::accept). False, without
    /// a change, if that is impossible: the job has not begun, or the subtask is unknown, does not
    /// head its lanes, or has no keys to stop.
    pub fn restore(
        &mut self,
        job: JobNumber,
        subtask: SubtaskNumber,
        was: RestoredState,
        now: u64,
    ) -> bool {
        let now = self.at(now);
        let Some(task) = self.find(job).and_then(|slot| self.take_out(slot, subtask, was, now))
        else {
            return false;
        };
        let slot = self.tasks[task].job;
        match was {
            RestoredState::Running { fence, since } => {
                let since = self.steady(since);
                self.lanes.keep_from_replacement(&self.tasks, task);
                let begun = &mut self.tasks[task];
                begun.attempts += 1;
                begun.at = fence;
                let run = RunningTask { task, since, rule: Rule::Keep, is_restored: true };
                self.runs.insert(fence, run);
                self.enter_phase(slot, task, TaskPhase::Running);
                let kind = self.jobs[slot].kind;
                self.kinds.note_start(kind, Step::Subtask(subtask));
                self.kinds.restore(kind);
                self.note_restored(slot, 1, now);
            }
            RestoredState::BackingOff { until } => self.back_off(slot, task, until),
            RestoredState::Stopped => self.stop_keys(slot, task, now),
        }
        true
    }

    /// Lets a step of a job that was just [accepted](Self::accept) back off until a time in
    /// milliseconds. False if the rules of [`restore`](Self::restore) forbid it: a fan-in exists
    /// only when all other subtasks have ended.
    pub fn restore_backoff(&mut self, job: JobNumber, step: Step, until: u64, now: u64) -> bool {
        if let Step::Subtask(number) = step {
            return self.restore(job, number, RestoredState::BackingOff { until }, now);
        }
        let now = self.at(now);
        let Some(slot) = self.find(job).filter(|slot| self.jobs[*slot].share.is_some()) else {
            return false;
        };
        let share = self.share(slot);
        let task = match (step, self.jobs[slot].split) {
            (Step::Split, StepState::Pending(_)) => {
                let task = self.take_split(slot, now);
                // As after an attempt: the allocator sees a waiting subtask, beside a splitter that
                // is held.
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

    /// Lets a task back off; `until` is a time of the caller's clock.
    fn back_off(&mut self, slot: u32, task: u32, until: u64) {
        let until = self.steady(until);
        self.tasks[task].at = until;
        self.enter_phase(slot, task, TaskPhase::BackingOff);
        self.timers.set(until, TimerEvent::Attempt(task));
    }

    /// Takes a waiting or ready subtask out of its phase. From then on the allocator counts it as
    /// waiting.
    fn take_out(
        &mut self,
        slot: u32,
        number: SubtaskNumber,
        was: RestoredState,
        now: u64,
    ) -> Option<u32> {
        let share = self.jobs[slot].share?;
        if let Some(task) = self.jobs[slot].roll.find(&self.tasks, slot, number) {
            let is_front = || self.lanes.is_in_front(&self.tasks, task);
            match self.tasks[task].phase {
                TaskPhase::Ready => _ = self.allocator.unready(share, 1, now),
                TaskPhase::Waiting if was == RestoredState::Stopped || is_front() => {}
                _ => return None,
            }
            if was == RestoredState::Stopped && !self.lanes.has_keys(&self.tasks, task) {
                return None;
            }
            self.leave_phase(slot, task);
            let was_held_back = self.key_rates.leave(task);
            self.tasks[task].blocked -= u32::from(was_held_back);
            return Some(task);
        }
        if was == RestoredState::Stopped {
            return None;
        }
        let job = &mut self.jobs[slot];
        let made = job.fresh.remove(number)?;
        job.counts.ready -= 1;
        self.allocator.unready(share, 1, now);
        let task = self.tasks.insert(ScheduledTask::new(slot, number, made, now));
        self.jobs[slot].roll.begin(number, task);
        Some(task)
    }

    /// Sets the allocator's workers to the slots that restored runs leave.
    pub(super) fn fit_workers(&mut self, now: u64) {
        self.allocator.resize(self.slots.saturating_sub(self.restored), now);
    }
}
