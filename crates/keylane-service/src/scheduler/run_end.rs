//! Effects of the end of a run, and the tasks that it unblocks.

use super::job::{JobPhase, ScheduledJob, StepState};
use super::state::Scheduler;
use super::task::{ScheduledTask, TaskPhase};
use super::timers::TimerEvent;
use super::{EndResult, JobFailurePolicy, KeyFailurePolicy, RunEnd, StaleFence, Step, SubtaskFate};
use crate::JobNumber;

/// Capacity of the kept buffer of opened tasks; cancelling a job opens as many as it had.
const OPENED_KEPT: usize = 256;

impl Scheduler {
    /// Ends a run. Its slot is free; its lanes are too if the step is finished.
    ///
    /// # Errors
    ///
    /// Returns an error, without any change, if the fence is not that of the step's current run.
    pub fn ended(
        &mut self,
        job: JobNumber,
        step: Step,
        fence: u64,
        end: RunEnd,
        now: u64,
    ) -> Result<EndResult, StaleFence> {
        let now = self.at(now);
        let run = *self.runs.get(&fence).ok_or(StaleFence)?;
        let task = &self.tasks[run.task];
        let slot = task.job;
        if self.jobs[slot].number != job || task.number != step.number() {
            return Err(StaleFence);
        }
        self.runs.remove(&fence);
        self.kinds.note_end(self.jobs[slot].kind, step);
        self.leave_phase(slot, run.task);
        if end == RunEnd::Withdrawn {
            self.tasks[run.task].attempts -= 1;
        }
        let end = match end {
            RunEnd::Failed { retry_at: Some(at) } => {
                RunEnd::Failed { retry_at: Some(self.steady(at)) }
            }
            end => end,
        };
        let stops = self.stops_keys(slot, run.task);
        let fate = judge(&self.jobs[slot], &self.tasks[run.task], end, stops, now);
        self.give_back_slot(slot, step, fate, run.is_restored, now);
        let told = match fate {
            SubtaskFate::Again { at: Some(at) } => SubtaskFate::Again { at: Some(self.shown(at)) },
            fate => fate,
        };
        let mut ended = EndResult { fate: told, dropped: 0, over: None };
        match fate {
            SubtaskFate::Again { at } => self.keep_for_again(slot, run.task, at, now),
            SubtaskFate::Stopped => self.stop_keys(slot, run.task, now),
            SubtaskFate::Succeeded | SubtaskFate::Failed | SubtaskFate::Cancelled => {
                self.put_away(slot, run.task, fate, now);
                if fate == SubtaskFate::Failed {
                    ended.dropped = self.fail_fast(slot, now);
                }
            }
        }
        let kind = self.jobs[slot].kind;
        if fate_is_final(fate) {
            ended.over = self.conclude(slot, now);
        }
        self.end_of_kind(kind, step, ended.over.is_none().then_some(slot), now);
        Ok(ended)
    }

    fn give_back_slot(
        &mut self,
        slot: u32,
        step: Step,
        fate: SubtaskFate,
        was_restored: bool,
        now: u64,
    ) {
        if was_restored {
            // To the allocator the step has been waiting since its start.
            if fate_is_final(fate) {
                self.settle(slot, fate != SubtaskFate::Succeeded, now);
            }
            self.note_restored(slot, -1, now);
            return;
        }
        let end = match fate {
            SubtaskFate::Again { .. } | SubtaskFate::Stopped => keylane_allocate::End::Waits,
            // The allocator asked the split for more subtasks; it has no more.
            _ if step == Step::Split => keylane_allocate::End::Nothing,
            SubtaskFate::Succeeded => keylane_allocate::End::Done,
            SubtaskFate::Failed | SubtaskFate::Cancelled => keylane_allocate::End::Failed,
        };
        let share = self.share(slot);
        self.allocator.ended(share, end, now);
    }

    /// Keeps a task at its places in its lanes until its retry.
    fn keep_for_again(&mut self, slot: u32, task: u32, at: Option<u64>, now: u64) {
        match at {
            Some(at) => {
                self.waits.backoff.record(at.saturating_sub(now));
                self.tasks[task].at = at;
                self.enter_phase(slot, task, TaskPhase::BackingOff);
                self.timers.set(at, TimerEvent::Attempt(task));
            }
            None => {
                self.tasks[task].at = now;
                self.enter_phase(slot, task, TaskPhase::Waiting);
                self.wake(task, now);
            }
        }
    }

    /// Whether a task stops its keys when it fails for good. A task without a key of a client fails,
    /// because no command could release it.
    pub(super) fn stops_keys(&self, slot: u32, task: u32) -> bool {
        self.jobs[slot].on_fail == KeyFailurePolicy::StopKey
            && self.lanes.has_keys(&self.tasks, task)
    }

    /// Lets a task stop its keys, until an operator retries or skips it. It becomes the head of the
    /// keys that it shares, so that the commands on a key find it, unless it waits itself.
    pub(super) fn stop_keys(&mut self, slot: u32, task: u32, now: u64) {
        self.enter_phase(slot, task, TaskPhase::Stopped);
        if self.lanes.is_in_front(&self.tasks, task) {
            self.lanes.put_first(&self.tasks, task, now);
        }
    }

    /// Brings all shared places to the front that are about to come there.
    #[cfg(test)]
    pub(super) fn advance_all(&mut self) {
        while self.lanes.advance_some(&mut self.tasks, &mut self.opened).is_some() {
            self.wake_opened(self.now);
        }
    }

    /// Makes a task ready that waited, backed off or was stopped, unless it is blocked.
    pub(super) fn wake(&mut self, task: u32, now: u64) {
        let slot = self.tasks[task].job;
        let has_waited = self.leave_phase(slot, task) == TaskPhase::Waiting;
        if !has_waited {
            self.tasks[task].at = now;
        }
        if !self.tasks[task].is_subtask() {
            self.let_step_go(slot, now);
        }
        if self.tasks[task].blocked > 0 {
            return self.enter_phase(slot, task, TaskPhase::Waiting);
        }
        if self.lacks_key_token(slot, task, now) {
            return self.enter_phase(slot, task, TaskPhase::Waiting);
        }
        if has_waited {
            self.note_key_wait(task, now);
        }
        self.enter_phase(slot, task, TaskPhase::Ready);
        let share = self.share(slot);
        self.allocator.ready(share, 1, now);
    }

    /// Makes tasks ready that a change of lanes has unblocked.
    pub(super) fn wake_opened(&mut self, now: u64) {
        let mut opened = std::mem::take(&mut self.opened);
        for task in opened.drain(..) {
            // An unblocked task may have been dropped since: its slot then has the default value,
            // without a job.
            let is_here = self.tasks.get(task).is_some_and(|task| task.job != super::slab::NONE);
            let waits = is_here && self.tasks[task].phase == TaskPhase::Waiting;
            if waits && !self.is_dropped(task) {
                self.wake(task, now);
            }
        }
        opened.shrink_to(OPENED_KEPT);
        self.opened = opened;
    }

    /// Finishes a task that has left its phase, and unblocks its lanes.
    pub(super) fn put_away(&mut self, slot: u32, task: u32, fate: SubtaskFate, now: u64) {
        let number = self.remove_task(slot, task, now);
        let job = &mut self.jobs[slot];
        let failed = fate == SubtaskFate::Failed;
        match Step::of(number) {
            Step::Split => {
                (job.split, job.step_failed) = (StepState::Over, job.step_failed | failed)
            }
            Step::FanIn => {
                (job.fan_in, job.step_failed) = (StepState::Over, job.step_failed | failed);
                // Another attempt was due. The job ends with its fan-in.
                if job.course == JobPhase::Finishing && fate == SubtaskFate::Cancelled {
                    job.course = JobPhase::Cancelled;
                }
            }
            Step::Subtask(_) => match fate {
                SubtaskFate::Succeeded => job.counts.succeeded += 1,
                SubtaskFate::Failed => job.counts.failed += 1,
                _ => job.counts.cancelled += 1,
            },
        }
        self.wake_opened(now);
    }

    /// Removes a finished task, and returns its number. Tasks that are no longer blocked are added to
    /// `opened`.
    pub(super) fn remove_task(&mut self, slot: u32, task: u32, now: u64) -> u32 {
        let number = self.tasks[task].number;
        self.jobs[slot].roll.leave(&self.tasks, slot, number, task);
        self.key_rates.leave(task);
        self.lanes.leave(&mut self.tasks, task, now, &mut self.opened);
        self.tasks.remove(task);
        number
    }

    /// Drops the rest of a job after a final failure, if the job fails fast. Returns the number of
    /// dropped subtasks.
    pub(super) fn fail_fast(&mut self, slot: u32, now: u64) -> u64 {
        let job = &mut self.jobs[slot];
        if job.on_error != JobFailurePolicy::FailFast || job.course.is_dropped() {
            return 0;
        }
        job.course = JobPhase::Failing;
        self.drop_rest(slot, now)
    }
}

/// Fate of a task after the end of a run.
fn judge(
    job: &ScheduledJob,
    task: &ScheduledTask,
    end: RunEnd,
    stops: bool,
    now: u64,
) -> SubtaskFate {
    let goes_on = job.course == JobPhase::Open;
    let has_more = task.attempts < job.attempts_allowed;
    let again_at = match end {
        RunEnd::Succeeded => return SubtaskFate::Succeeded,
        RunEnd::Failed { retry_at: None } => None,
        RunEnd::Failed { retry_at: Some(at) } => Some(Some(at).filter(|at| *at > now)),
        RunEnd::Lost => Some(None),
        RunEnd::Withdrawn if goes_on => return SubtaskFate::Again { at: None },
        RunEnd::Withdrawn => return SubtaskFate::Cancelled,
    };
    match again_at {
        Some(_) if !goes_on => SubtaskFate::Cancelled,
        Some(at) if has_more => SubtaskFate::Again { at },
        _ if stops && !job.course.is_dropped() => SubtaskFate::Stopped,
        _ => SubtaskFate::Failed,
    }
}

fn fate_is_final(fate: SubtaskFate) -> bool {
    matches!(fate, SubtaskFate::Succeeded | SubtaskFate::Failed | SubtaskFate::Cancelled)
}
