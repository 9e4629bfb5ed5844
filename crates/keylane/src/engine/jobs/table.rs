//! Job table: the allocator, and the jobs that are not over. Every function runs in a section,
//! under its lock.

use std::sync::Arc;

use keylane_allocate::{
    Claimant, Decision, End, JobId, JobPolicy, JobProgress, JobScheduler, Take,
};

use super::{CurrentJob, JobRunner, WorkerAssignment, WorkerReport};
use crate::observe::Clock;

pub(in crate::engine) struct JobTable<K, W> {
    /// JobScheduler; absent until there is a job.
    pub(super) allocator: Option<Box<JobScheduler>>,
    /// Jobs that are not over, by the slot of their id.
    pub(super) jobs: Vec<Option<JobEntry<K, W>>>,
    /// Time that was last given to the allocator, in milliseconds.
    time: u64,
    /// Engine's clock at that time; it wraps around.
    clock: u32,
    /// Number of events to keep, if events are recorded.
    pub(super) record: Option<usize>,
    /// Whether the pool is stopped, so that no job is admitted.
    pub(super) closed: bool,
    /// Jobs that this section has ended, with their progress.
    pub(super) finished: Vec<(Arc<dyn JobRunner<K, W>>, JobProgress)>,
}

pub(super) struct JobEntry<K, W> {
    pub(super) id: JobId,
    pub(super) runner: Arc<dyn JobRunner<K, W>>,
    /// Whether a worker calls its splitter.
    pub(super) splitting: bool,
    /// Number of subtasks that were reported to wait in the lanes, and not to be ready. Running
    /// futures wait in the allocator as well, and are never ready: they do not count here.
    pub(super) blocked: u64,
    /// Number of subtasks that became ready before the worker that entered them has reported that
    /// they wait.
    pub(super) early: u64,
    /// State of the splitter that was last given to the allocator.
    pub(super) splitter_paused: bool,
}

/// Rules by which jobs share the workers of a pool.
#[derive(Clone, Debug)]
pub(crate) struct JobRules {
    /// Maximum number of active jobs (rule 2), if it differs from that of the order.
    pub(crate) max_active: Option<usize>,
    /// Bound for ageing, in milliseconds.
    pub(crate) patience: Option<u64>,
    pub(crate) policy: JobPolicy,
}

impl Default for JobRules {
    fn default() -> Self {
        JobRules { max_active: None, patience: None, policy: JobPolicy::Arrival }
    }
}

impl JobRules {
    pub(super) fn allocator(&self, workers: usize) -> JobScheduler {
        let allocator =
            JobScheduler::new(workers).with_max_active(self.max_active).with_policy(self.policy);
        match self.patience {
            Some(patience) => allocator.with_patience(patience),
            None => allocator,
        }
    }
}

impl<K, W> JobTable<K, W> {
    pub(in crate::engine) fn new() -> Self {
        JobTable {
            allocator: None,
            jobs: Vec::new(),
            time: 0,
            clock: 0,
            record: None,
            closed: false,
            finished: Vec::new(),
        }
    }

    /// Advances the time, never backwards; wrong by a moment at most.
    pub(super) fn advance_time(&mut self, clock: u32) -> u64 {
        let passed = Clock::passed(self.clock, clock);
        // Clocks are read before the lock is taken, so one may come in slightly late.
        if passed < Clock::MAX / 2 {
            self.time += u64::from(passed);
            self.clock = clock;
        }
        self.time
    }

    fn entry(&mut self, id: JobId) -> Option<&mut JobEntry<K, W>> {
        self.jobs.get_mut(id.slot())?.as_mut().filter(|entry| entry.id == id)
    }

    /// Updates whether the allocator may call a job's splitter.
    pub(super) fn update_splitter_pause(&mut self, id: JobId) {
        let time = self.time;
        let Some(allocator) = self.allocator.as_mut() else { return };
        let Some(entry) = self.jobs.get_mut(id.slot()).and_then(Option::as_mut) else { return };
        let Some(progress) = allocator.progress(id) else { return };
        let held = entry.splitting
            || progress.waiting >= entry.runner.max_waiting()
            || entry.runner.is_full();
        if std::mem::replace(&mut entry.splitter_paused, held) != held {
            allocator.hold_splitter(id, held, time);
        }
    }

    /// Removes a job that is over.
    pub(super) fn remove(&mut self, id: JobId, last: JobProgress) {
        if let Some(entry) = self.jobs.get_mut(id.slot()).and_then(Option::take) {
            self.finished.push((entry.runner, last));
        }
    }

    /// Applies the report of a worker.
    pub(super) fn record_report(&mut self, back: WorkerReport) -> bool {
        let WorkerReport { who, take, report } = back;
        let time = self.time;
        let Some(allocator) = self.allocator.as_mut() else { return false };
        let Claimant::Job(id) = who else {
            allocator.ended(who, report.end, time);
            return false;
        };
        if report.more_done + report.more_failed != 0 {
            allocator.ran_more(id, take, report.more_done, report.more_failed, time);
        }
        if report.cancels {
            allocator.cancel(id, time);
        }
        let before = allocator.progress(id);
        if allocator.ended(who, report.end, time) {
            let last = before.expect("a job with a worker is in the table");
            self.remove(id, ended(last, report.end));
        } else {
            self.update_splitter_pause(id);
        }
        report.cancels
    }

    /// Records that a subtask waits in the lanes, after its worker's report.
    pub(super) fn note_blocked(&mut self, id: JobId) {
        let Some(entry) = self.entry(id) else { return };
        entry.blocked += 1;
        self.flush_early(id);
        self.update_splitter_pause(id);
    }

    /// Lets others call a job's splitter, unless it is known to have no more.
    pub(super) fn split(&mut self, id: JobId, exhausted: bool, time: u64) {
        let Some(entry) = self.entry(id) else { return };
        entry.splitting = false;
        if exhausted && let Some(allocator) = &mut self.allocator {
            let before = allocator.progress(id);
            if allocator.exhausted(id, time)
                && let Some(last) = before
            {
                self.remove(id, last);
                return;
            }
        }
        self.update_splitter_pause(id);
    }

    /// Records that one of a job's subtasks can start.
    pub(super) fn ready(&mut self, id: JobId) {
        let Some(entry) = self.entry(id) else { return };
        entry.early += 1;
        self.flush_early(id);
        self.update_splitter_pause(id);
    }

    /// Reports the subtasks as ready that became ready and were reported to wait.
    fn flush_early(&mut self, id: JobId) {
        let time = self.time;
        let Some(entry) = self.jobs.get_mut(id.slot()).and_then(Option::as_mut) else { return };
        let Some(allocator) = self.allocator.as_mut() else { return };
        // Subtasks of a cancelled job no longer wait.
        let waiting = allocator.progress(id).map_or(0, |progress| progress.waiting);
        let known = entry.early.min(entry.blocked).min(waiting);
        if known != 0 {
            entry.early -= known;
            entry.blocked -= known;
            allocator.ready(id, known, time);
        }
    }

    /// Assigns a worker.
    pub(super) fn assign(
        &mut self,
        loose: bool,
        current_job: &mut CurrentJob<K, W>,
    ) -> WorkerAssignment {
        let time = self.time;
        let Some(allocator) = self.allocator.as_mut() else { return WorkerAssignment::Nothing };
        if allocator.unfinished() == 0 {
            return WorkerAssignment::Nothing;
        }
        if allocator.is_loose_ready() != loose {
            allocator.loose_ready(loose, time);
        }
        let Some(Decision { to, take, .. }) = allocator.next(time) else {
            return WorkerAssignment::Nothing;
        };
        let Claimant::Job(id) = to else { return WorkerAssignment::Loose };
        let alone = allocator.is_alone(id);
        let entry = self.jobs[id.slot()].as_mut().expect("an unfinished job is in the table");
        entry.splitting |= take == Take::Split;
        if current_job.job().is_none_or(|(last, _)| *last != id) {
            current_job.set(id, &entry.runner);
        }
        if take == Take::Split {
            self.update_splitter_pause(id);
        }
        WorkerAssignment::Job { take, alone }
    }
}

/// Returns the progress of a job after its last worker has ended.
pub(super) fn ended(before: JobProgress, end: End) -> JobProgress {
    JobProgress {
        done: before.done + u64::from(end == End::Done),
        failed: before.failed + u64::from(end == End::Failed),
        running: 0,
        to_come: Some(0),
        ..before
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::BatchReport;
    use super::super::test_job::TestJob;
    use super::*;
    use keylane_allocate::Supply;

    /// A subtask that became ready before its worker had reported that it waits was taken for a
    /// running future: when the future ended, the allocator knew of no waiting subtask, and the job
    /// never ended.
    #[test]
    fn a_subtask_that_is_early_is_not_taken_for_a_future() {
        let mut table = JobTable::<u64, ()>::new();
        let mut allocator = Box::new(JobRules::default().allocator(2));
        let id = allocator.submit(Supply::Split { expected: Some(2) }, 1, 0);
        table.allocator = Some(allocator);
        // Only the allocator uses it.
        let runner: Arc<dyn JobRunner<u64, ()>> = TestJob::new(2, || ());
        let job =
            JobEntry { id, runner, splitting: false, blocked: 0, early: 0, splitter_paused: false };
        table.jobs = vec![Some(job)];
        let mut current_job = CurrentJob::default();
        let mut assignment =
            |table: &mut JobTable<u64, ()>| match table.assign(false, &mut current_job) {
                WorkerAssignment::Job { take, .. } => take,
                other => panic!("{other:?}"),
            };
        let back = |take| WorkerReport {
            who: Claimant::Job(id),
            take,
            report: BatchReport::ended(End::Waits),
        };

        // The first waits, becomes ready, and continues as a future.
        assert_eq!(assignment(&mut table), Take::Split);
        table.record_report(back(Take::Split));
        table.note_blocked(id);
        table.split(id, false, 0);
        table.ready(id);
        assert_eq!(assignment(&mut table), Take::Ready);
        table.record_report(back(Take::Ready));
        // The second is ready at once. Before its worker reports that it waits, the first ends.
        assert_eq!(assignment(&mut table), Take::Split);
        table.ready(id);
        assert!(table.allocator.as_mut().unwrap().settled(id, false, 0));
        table.record_report(back(Take::Split));
        table.note_blocked(id);
        table.split(id, true, 0);
        let progress = table.allocator.as_ref().unwrap().progress(id).unwrap();
        assert_eq!((progress.done, progress.ready, progress.waiting), (1, 1, 0));
    }
}
