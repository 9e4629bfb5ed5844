//! Entry of jobs into the order after their acceptance: delayed jobs at their start time, and large
//! jobs in slices.

use super::engine_state::{ActiveJob, CommitEffect, EngineState, WriteBatch};
use crate::JobNumber;
use crate::wire::Timestamp;

/// Maximum number of delayed jobs that get a place in the order in one batch. Each of them rewrites
/// a row.
const MAX_ENTERING: usize = 512;

impl EngineState {
    /// Activates delayed jobs whose start time has passed: each begins when its place in the order
    /// is on the disk. At most one batch of them per call. The end of a batch wakes the dispatcher,
    /// which handles the others.
    pub(super) fn take_due(&mut self, now: Timestamp) {
        self.due.extend(self.scheduler.handle_timeout(now.0));
        while self.unwritten.entering < MAX_ENTERING
            && let Some(job) = self.due.pop_front()
        {
            // The job may have been cancelled meanwhile, and even retried.
            let is_open = |live: &&ActiveJob| {
                live.begins_at.is_some() && !live.is_entering && !live.is_closing
            };
            let Some(live) = self.live.get(&job).filter(is_open) else { continue };
            // One that waits for other jobs is queued again when these have ended.
            let may_begin = self.may_begin(live);
            let Some(live) = self.live.get_mut(&job) else { continue };
            live.is_due = true;
            if !may_begin {
                continue;
            }
            live.is_entering = true;
            let WriteBatch { changes, effects, entering } = &mut self.unwritten;
            changes.enter(job, live.status());
            effects.push(CommitEffect::Entered { job });
            *entering += 1;
        }
    }

    /// Begins a delayed job, unless it was cancelled meanwhile.
    pub(super) fn activate(&mut self, job: JobNumber, now: Timestamp) {
        self.order.entered(job);
        let Some(accepted) = self.scheduler.begin(job, now.0) else { return };
        self.ends_wait(job);
        if let Some(live) = self.live.get_mut(&job) {
            (live.begins_at, live.is_entering) = (None, false);
            live.touch(&mut self.versions);
        }
        self.changed.insert(job);
        self.apply_accepted(job, &accepted, now);
    }

    /// Enters or removes one slice of a large job, see `scheduler/entries.rs`.
    pub(super) fn enter_slice(&mut self, now: Timestamp) {
        let Some(done) = self.scheduler.work_off(now.0) else { return };
        self.apply_accepted(done.job, &done.accepted, now);
        self.changed.insert(done.job);
    }
}
