//! How long subtasks have waited, and how many wait now, by reason.

use super::job::ScheduledJob;
use super::kinds::KindCapacity;
use super::state::Scheduler;
use super::wait_totals::{WaitCounts, WaitDurations};
use crate::JobNumber;

impl Scheduler {
    /// Durations of the waits that have ended.
    pub(crate) fn wait_durations(&self) -> &WaitDurations {
        &self.waits
    }

    /// Notes the end of a task's wait for its keys.
    pub(super) fn note_key_wait(&mut self, task: u32, now: u64) {
        let task = &mut self.tasks[task];
        if task.is_subtask() {
            self.waits.key.record(now.saturating_sub(task.at));
        }
        task.at = now;
    }

    /// Notes the end of a task's wait for a slot.
    pub(super) fn note_slot_wait(&mut self, task: u32, now: u64) {
        let task = &mut self.tasks[task];
        if task.is_subtask() {
            self.waits.slot.record(now.saturating_sub(task.at));
        }
        task.at = now;
    }

    /// Adds the waiting subtasks of a job to `to`. O(1).
    pub fn count_waits(&self, job: JobNumber, to: &mut WaitCounts) {
        let Some(slot) = self.find(job) else { return };
        let job = &self.jobs[slot];
        to.key += job.counts.waiting;
        to.stopped += job.counts.stopped;
        to.backoff += job.counts.backing_off;
        to.scheduled += job.counts.scheduled;
        to.entering += job.counts.entering;
        *self.ready_wait(job, to) += job.counts.ready;
    }

    /// Returns the count for the job's ready subtasks: the limit that holds them up.
    fn ready_wait<'a>(&self, job: &ScheduledJob, to: &'a mut WaitCounts) -> &'a mut u64 {
        if self.draining || job.paused {
            return &mut to.paused;
        }
        let kind = self.kinds.look(job.kind);
        if let Some(kind) = kind
            && !matches!(kind.room_seen(self.now), KindCapacity::Places(_))
        {
            // A paused kind has the limit 0.
            return if kind.limits.concurrency == Some(0) { &mut to.paused } else { &mut to.kind };
        }
        match self.reason_of_tenant(job.tenant) {
            Some(_) => &mut to.tenant,
            None => &mut to.slot,
        }
    }
}
