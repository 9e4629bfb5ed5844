//! Commands of operators on jobs and on the whole scheduler.

use super::job::{JobPhase, ScheduledJob, StepState};
use super::state::Scheduler;
use super::task::TaskPhase;
use super::{CancelResult, Step};
use crate::JobNumber;

impl Scheduler {
    /// Pauses a job: no step of it starts until it is resumed, and running ones end. False if the
    /// job is finished or already paused.
    ///
    /// The job keeps its lanes: meanwhile other jobs wait behind its subtasks.
    pub fn pause_job(&mut self, job: JobNumber, now: u64) -> bool {
        self.set_paused(job, true, now)
    }

    /// Resumes a job. False if it is finished or not paused.
    pub fn resume_job(&mut self, job: JobNumber, now: u64) -> bool {
        self.set_paused(job, false, now)
    }

    fn set_paused(&mut self, job: JobNumber, paused: bool, now: u64) -> bool {
        let now = self.at(now);
        let Some(slot) = self.find(job) else { return false };
        let job = &mut self.jobs[slot];
        let was = std::mem::replace(&mut job.paused, paused);
        let (is_held, share) = (job.held.is_some(), job.share);
        // A held job is already paused in the allocator.
        if let Some(share) = share.filter(|_| !is_held) {
            match paused {
                true => self.allocator.pause(share, now),
                false => self.allocator.resume(share, now),
            };
        }
        was != paused
    }

    /// Cancels a job: no step of it starts, and subtasks that do not run are dropped, which
    /// unblocks those of other jobs behind them. Running steps keep their slots and lanes until
    /// their end is reported: let them end to cancel gracefully, or end them to kill the job. Can
    /// be called again, to list running steps. `None` if the job is finished.
    pub fn cancel_job(&mut self, job: JobNumber, now: u64) -> Option<CancelResult> {
        self.drop_as(job, JobPhase::Cancelled, now)
    }

    /// Fails a job, with the effects of [`cancel_job`](Self::cancel_job).
    pub fn fail_job(&mut self, job: JobNumber, now: u64) -> Option<CancelResult> {
        self.drop_as(job, JobPhase::Failing, now)
    }

    /// Lets a job finish without further attempts, if all its steps have started; a command on a stopped key still
    /// retries its head. Returns whether the job finishes that way, or is already cancelled, failing or over.
    pub fn let_finish(&mut self, job: JobNumber) -> bool {
        let Some(slot) = self.find(job) else { return true };
        let fan_in_runs = || {
            let mut running = self.runs.values().map(|run| &self.tasks[run.task]);
            running.any(|task| task.job == slot && task.number == Step::FanIn.number())
        };
        let ScheduledJob { scheduled, course, counts, split, fan_in, is_fed, .. } =
            &self.jobs[slot];
        if *course != JobPhase::Open {
            return true;
        }
        let is_left = scheduled.is_some()
            || *is_fed
            || counts.unfinished() > counts.running + counts.stopped
            || *split != StepState::Over
            || *fan_in != StepState::Over && !fan_in_runs();
        if !is_left {
            self.jobs[slot].course = JobPhase::Finishing;
        }
        !is_left
    }

    fn drop_as(&mut self, job: JobNumber, course: JobPhase, now: u64) -> Option<CancelResult> {
        let now = self.at(now);
        let slot = self.find(job)?;
        if !self.jobs[slot].course.is_dropped() {
            self.jobs[slot].course = course;
        }
        let dropped = self.drop_rest(slot, now);
        // The roll of a dropped job has only its running tasks.
        let mut running: Vec<_> = self.jobs[slot]
            .roll
            .iter(&self.tasks, slot)
            .map(|task| &self.tasks[task])
            .inspect(|task| {
                debug_assert!(task.phase == TaskPhase::Running, "the others are dropped")
            })
            .map(|task| (Step::of(task.number), task.at))
            .collect();
        running.sort_unstable_by_key(|(_, fence)| *fence);
        let over = self.conclude(slot, now);
        Some(CancelResult { dropped, running, over })
    }

    /// Sets the weight of the job's claim to spare slots; 0 counts as 1. False if the job is
    /// finished.
    pub fn set_weight(&mut self, job: JobNumber, weight: u32, now: u64) -> bool {
        let now = self.at(now);
        let Some(slot) = self.find(job) else { return false };
        self.jobs[slot].weight = weight.max(1);
        if let Some(share) = self.jobs[slot].share {
            self.allocator.set_weight(share, weight, now);
        }
        true
    }

    /// Sets the number of slots. If more are in use, no step starts until enough have ended.
    pub fn resize(&mut self, slots: usize, now: u64) {
        let now = self.at(now);
        self.slots = slots;
        self.fit_workers(now);
    }

    /// Sets the maximum number of active jobs. Active jobs stay active.
    pub fn set_max_active(&mut self, most: Option<usize>, now: u64) {
        let now = self.at(now);
        self.max_active = most;
        self.allocator.set_max_active(most, now);
    }

    /// Stops all starts, for good; running steps end.
    pub fn drain(&mut self) {
        self.draining = true;
    }
}
