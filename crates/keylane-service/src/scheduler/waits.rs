//! How long subtasks have waited, and how many wait now, by reason.

use super::job::ScheduledJob;
use super::kinds::KindCapacity;
use super::state::Scheduler;
use crate::JobNumber;
use crate::duration_histogram::DurationHistogram;

/// Durations of the waits that have ended. Part of the scheduler.
///
/// Subtasks without keys have one time in common for all of a job: that at which the last of them came.
#[derive(Clone, Debug, Default)]
pub(crate) struct WaitDurations {
    /// For earlier subtasks of a key, the end of a pause of a key, or the rate of a key.
    pub(crate) key: DurationHistogram,
    /// For a slot, with all limits but those of keys.
    pub(crate) slot: DurationHistogram,
    /// For the next attempt, as planned at the end of the attempt before.
    pub(crate) backoff: DurationHistogram,
}

/// Numbers of waiting subtasks by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitCounts {
    /// For earlier subtasks of a key, the end of a pause of a key, or the rate of a key.
    pub key: u64,
    /// For an operator: they failed on their last attempt and block their keys.
    pub stopped: u64,
    /// For their next attempt.
    pub backoff: u64,
    /// For the start time of their job.
    pub scheduled: u64,
    /// For their entry into the order: a large job enters in slices.
    pub entering: u64,
    /// For the end of a pause of their job or kind, or because the service is stopping.
    pub paused: u64,
    /// For the limit or the rate of their kind.
    pub kind: u64,
    /// For the limit or the rate of their tenant.
    pub tenant: u64,
    /// For a slot only.
    pub slot: u64,
}

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
            // An operator who pauses a kind sets its limit to nothing.
            return if kind.limits.concurrency == Some(0) { &mut to.paused } else { &mut to.kind };
        }
        match self.reason_of_tenant(job.tenant) {
            Some(_) => &mut to.tenant,
            None => &mut to.slot,
        }
    }
}
