//! What people ask of jobs and of the whole.

use super::job::Course;
use super::scheduler::Scheduler;
use super::task::Phase;
use super::{Cancelled, Step};
use crate::JobNumber;

impl Scheduler {
    /// Begins nothing of the job until it is resumed. What runs, ends. False if the job is over, or paused.
    ///
    /// It keeps its lanes: other jobs wait behind its subtasks meanwhile.
    pub fn pause_job(&mut self, job: JobNumber, now: u64) -> bool {
        self.set_paused(job, true, now)
    }

    /// Undoes [`pause_job`](Self::pause_job). False if the job is over, or not paused.
    pub fn resume_job(&mut self, job: JobNumber, now: u64) -> bool {
        self.set_paused(job, false, now)
    }

    fn set_paused(&mut self, job: JobNumber, paused: bool, now: u64) -> bool {
        let now = self.at(now);
        let Some(slot) = self.find(job) else { return false };
        let job = &mut self.jobs[slot];
        let was = std::mem::replace(&mut job.paused, paused);
        let (is_held, share) = (job.held.is_some(), job.share);
        // One that is held is paused in the allocator anyway.
        if let Some(share) = share.filter(|_| !is_held) {
            match paused {
                true => self.allocator.pause(share, now),
                false => self.allocator.resume(share, now),
            };
        }
        was != paused
    }

    /// Nothing of the job begins any more, and what does not run is dropped; other jobs' subtasks that stood
    /// behind it go on. What runs keeps its slot and its lanes until its end is reported: to cancel gracefully,
    /// let it end; to kill it, end it. It can be called again, for what still runs. `None` if the job is over.
    pub fn cancel_job(&mut self, job: JobNumber, now: u64) -> Option<Cancelled> {
        self.drop_as(job, Course::Cancelled, now)
    }

    /// As [`cancel_job`](Self::cancel_job), of a job that has failed.
    pub fn fail_job(&mut self, job: JobNumber, now: u64) -> Option<Cancelled> {
        self.drop_as(job, Course::Failing, now)
    }

    fn drop_as(&mut self, job: JobNumber, course: Course, now: u64) -> Option<Cancelled> {
        let now = self.at(now);
        let slot = self.find(job)?;
        if self.jobs[slot].course == Course::Open {
            self.jobs[slot].course = course;
        }
        let dropped = self.drop_rest(slot, now);
        // What runs of a dropped job is all that its roll has.
        let mut running: Vec<_> = self.jobs[slot]
            .roll
            .iter(&self.tasks, slot)
            .map(|task| &self.tasks[task])
            .inspect(|task| debug_assert!(task.phase == Phase::Running, "the others are dropped"))
            .map(|task| (Step::of(task.number), task.at))
            .collect();
        running.sort_unstable_by_key(|(_, fence)| *fence);
        let over = self.conclude(slot, now);
        Some(Cancelled { dropped, running, over })
    }

    /// Scales the job's claim to spare slots from now on; 0 counts as 1. False if the job is over.
    pub fn set_weight(&mut self, job: JobNumber, weight: u32, now: u64) -> bool {
        let now = self.at(now);
        let Some(slot) = self.find(job) else { return false };
        self.jobs[slot].weight = weight.max(1);
        if let Some(share) = self.jobs[slot].share {
            self.allocator.set_weight(share, weight, now);
        }
        true
    }

    /// There are so many slots from now on. If more are in use, nothing starts until enough have ended.
    pub fn resize(&mut self, slots: usize, now: u64) {
        let now = self.at(now);
        self.slots = slots;
        self.fit_workers(now);
    }

    /// Changes the bound on active jobs. Those that are active stay so.
    pub fn set_max_active(&mut self, most: Option<usize>, now: u64) {
        let now = self.at(now);
        self.max_active = most;
        self.allocator.set_max_active(most, now);
    }

    /// Nothing starts any more, for ever; what runs, ends.
    pub fn drain(&mut self) {
        self.draining = true;
    }
}
