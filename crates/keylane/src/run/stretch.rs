//! Runs subtasks with keys on the worker that finds them in their lanes, under one assignment for several.
//!
//! A subtask with keys waits in the lanes as an entry. A worker that comes to the entry could hand the subtask over to the
//! scheduler, for any worker that is assigned to the job. While that job is the only one, the scheduler would only give it to
//! some worker at once: so the worker that has found it takes an assignment itself, and keeps it for the next subtasks that it
//! finds, a *stretch*.
//!
//! # Protocol
//! 1. A stretch begins in a section of the job table, if the job is the only one and not paused. The section ends the worker's
//!    assignment to the work outside jobs, if it has one.
//! 2. Further subtasks begin without a section, until there are as many as in a [batch](BatchSize), or a section has told
//!    workers that something has changed: another job, a pause, a cancellation.
//! 3. The worker reports the stretch before it runs anything else, and when it leaves the shard; and at once if a result ends
//!    the job.
//!
//! # Why this is right
//! - The job does not end during a stretch, because its worker counts as running in the scheduler.
//! - Nothing is withheld from other workers: a subtask that has not begun is in its lane, like any task, and idle workers find
//!   it there.
//! - A subtask is known to the scheduler as waiting before it is in a lane (`WorkerCtx::subtasks_announced` and `subtask_blocked`). So the report can
//!   count each one of a stretch from waiting to ended.
//! - Until it is reported, the scheduler counts an ended subtask as waiting. The workers of a pool together have at most
//!   [`MAX_UNREPORTED`] of them, a quarter of those that may wait; workers that replace blocked ones come on top. So they seldom keep an
//!   idle worker from the splitter while later subtasks of the stretches are long.
//! - The end of a subtask is reported at once if the sink of results was full before it, because the splitter waits for that.

use std::hash::BuildHasher;
use std::sync::Arc;

use keylane_allocate::{Claimant, End, JobId, Take};

use super::batch_size::BatchSize;
use super::cancel_flag::set_cancel_flag;
use super::context::{LaneJob, SubtaskEnd};
use crate::engine::{BatchReport, Engine, Execute, Key, WorkerReport};
use crate::observe::WorkerCounters;

/// Maximum number of subtasks that have ended and are not reported, of the stretches of all workers that a pool is set to.
const MAX_UNREPORTED: usize = 64;

/// Assignments of a worker that serves a shard.
pub(crate) struct Stretch {
    /// Whether the worker has an assignment to the work outside jobs.
    pub(crate) holds_loose: bool,
    /// Assignment to a job, with the subtasks that have run under it.
    open: Option<OpenStretch>,
    /// Number of subtasks of one job that run under one assignment.
    batch_size: BatchSize,
}

struct OpenStretch {
    job: JobId,
    /// Address of the job, which is quicker to compare.
    address: usize,
    /// Number of further subtasks that may begin.
    left: usize,
    done: u64,
    failed: u64,
    /// Whether the job is to be cancelled.
    cancels: bool,
    /// Value of `SharedJobs::changes` before the assignment.
    changes: usize,
    /// Start, in nanoseconds since the pool was built.
    started: u64,
}

impl Stretch {
    pub(crate) fn new() -> Self {
        Stretch { holds_loose: false, open: None, batch_size: BatchSize::new() }
    }

    /// Returns whether there is something to report before other work begins.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Begins a subtask of a job, if it may run here.
    pub(crate) fn begin<K, X, S>(
        &mut self,
        engine: &Arc<Engine<K, X, S>>,
        counters: &WorkerCounters,
        job: &dyn LaneJob,
    ) -> bool
    where
        K: Key,
        X: Execute<K>,
        S: BuildHasher,
    {
        // Each subtask takes a token of such a pool when a worker is assigned to it.
        if engine.rates.limits_pool() {
            return false;
        }
        let changes = engine.sharing.changes();
        if let Some(open) = &mut self.open
            && open.address == job.address()
            && open.left > 0
            && open.changes == changes
        {
            open.left -= 1;
            return true;
        }
        let report = self.close(counters);
        let Some(id) = job.id() else { return false };
        if !engine.begin_in_lane(id, report, &mut self.holds_loose) {
            return false;
        }
        let most = (MAX_UNREPORTED / engine.workers.size().max(1)).max(1);
        // Stays until the stretch is closed, because it is cheaper than to set it for each subtask.
        set_cancel_flag(Some(job.cancel_flag()));
        self.open = Some(OpenStretch {
            job: id,
            address: job.address(),
            left: self.batch_size.of(id).min(most) - 1,
            done: 0,
            failed: 0,
            cancels: false,
            changes,
            started: counters.now(),
        });
        true
    }

    /// Counts the end of a subtask. Returns whether the stretch must be reported at once.
    pub(crate) fn end_subtask(&mut self, end: SubtaskEnd) -> bool {
        let open = self.open.as_mut().expect("a subtask has begun");
        match end {
            SubtaskEnd::Done | SubtaskEnd::Cancels { failed: false } => open.done += 1,
            SubtaskEnd::Failed | SubtaskEnd::Cancels { failed: true } => open.failed += 1,
            SubtaskEnd::Dropped => {}
        }
        open.cancels = matches!(end, SubtaskEnd::Cancels { .. });
        open.cancels
    }

    /// Ends the assignment to the job, if there is one, and returns its report.
    pub(crate) fn close(&mut self, counters: &WorkerCounters) -> Option<WorkerReport> {
        let OpenStretch { job, done, failed, cancels, started, .. } = self.open.take()?;
        set_cancel_flag(None);
        let now = counters.now();
        self.batch_size.record(done + failed, now.saturating_sub(started));
        counters.looked(now);
        // One subtask is that of the assignment.
        let (end, more_done, more_failed) = match (done, failed) {
            (0, 0) => (End::Waits, 0, 0),
            (0, failed) => (End::Failed, 0, failed - 1),
            (done, failed) => (End::Done, done - 1, failed),
        };
        let report = BatchReport { end, more_done, more_failed, in_lanes: true, cancels };
        Some(WorkerReport { who: Claimant::Job(job), take: Take::Ready, report })
    }

    /// Ends both assignments, and returns the report of the one that the worker has. `ran` says
    /// whether there was any work outside jobs.
    pub(crate) fn end_slice(
        &mut self,
        counters: &WorkerCounters,
        ran: bool,
    ) -> Option<WorkerReport> {
        let holds_loose = std::mem::take(&mut self.holds_loose);
        self.close(counters).or_else(|| {
            let end = if ran { End::Done } else { End::Nothing };
            let report = BatchReport::ended(end);
            let loose = WorkerReport { who: Claimant::Loose, take: Take::Ready, report };
            holds_loose.then_some(loose)
        })
    }
}
