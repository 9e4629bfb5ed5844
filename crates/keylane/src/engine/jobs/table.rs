//! Job table: the allocator, and the jobs that are not over. Every function runs in a section,
//! under its lock.

use std::sync::Arc;

use keylane_allocate::{
    Claimant, Decision, End, JobId, JobPolicy, JobProgress, JobScheduler, Take,
};

use super::{BatchReport, CurrentJob, JobRunner, WorkerAssignment, WorkerReport};
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
    /// Number of subtasks that were reported to wait in the lanes, and not to be ready, until the
    /// job is cancelled. Running futures wait in the allocator as well, and are never ready: they do
    /// not count here.
    pub(super) blocked: u64,
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
        let more = report.more_done + report.more_failed;
        if more != 0 {
            if report.in_lanes {
                self.leave_lanes(id, more);
            }
            let allocator = self.allocator.as_mut().expect("it is there");
            allocator.ran_more(id, take, report.more_done, report.more_failed, time);
        }
        let allocator = self.allocator.as_mut().expect("it is there");
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

    /// Records that `count` subtasks of the splitter are about to wait in the lanes, beside the one of an assignment.
    pub(super) fn note_announced(&mut self, id: JobId, count: u64) {
        let time = self.time;
        let Some(allocator) = self.allocator.as_mut() else { return };
        if allocator.came(id, 0, count, time)
            && let Some(entry) = self.entry(id)
        {
            entry.blocked += count;
        }
    }

    /// Takes `count` subtasks back that were announced and do not come.
    pub(super) fn drop_announced(&mut self, id: JobId, count: u64) {
        let time = self.time;
        let Some(allocator) = self.allocator.as_mut() else { return };
        // The splitter counts as running, so the job does not end here.
        let taken = (0..count).filter(|_| allocator.settled(id, false, time)).count();
        if let Some(entry) = self.entry(id) {
            entry.blocked -= taken as u64;
        }
    }

    /// Records that the subtask of an assignment waits in the lanes, or is about to.
    pub(super) fn note_blocked(&mut self, id: JobId, take: Take) {
        let report = BatchReport::ended(End::Waits);
        self.record_report(WorkerReport { who: Claimant::Job(id), take, report });
        if let Some(entry) = self.entry(id) {
            entry.blocked += 1;
            self.update_splitter_pause(id);
        }
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

    /// Records that one of a job's subtasks in the lanes can start, and waits for a worker.
    pub(super) fn ready(&mut self, id: JobId) {
        self.leave_lanes(id, 1);
        self.update_splitter_pause(id);
    }

    /// Reports `count` subtasks in the lanes as ready. Returns false if the job was cancelled:
    /// then none waits.
    fn leave_lanes(&mut self, id: JobId, count: u64) -> bool {
        let time = self.time;
        let Some(entry) = self.jobs.get_mut(id.slot()).and_then(Option::as_mut) else {
            return false;
        };
        let Some(allocator) = self.allocator.as_mut().filter(|_| entry.id == id) else {
            return false;
        };
        let is_live = allocator.ready(id, count, time);
        if is_live {
            entry.blocked -= count;
        }
        is_live
    }

    /// Assigns a worker to a subtask that it has found in its lane. See
    /// [`Engine::begin_in_lane`].
    pub(super) fn begin_in_lane(&mut self, id: JobId, holds_loose: &mut bool) -> bool {
        let time = self.time;
        let is_only_job = |allocator: &&mut Box<JobScheduler>| allocator.unfinished() == 1;
        let Some(allocator) = self.allocator.as_mut().filter(is_only_job) else { return false };
        if allocator.progress(id).is_none_or(|progress| progress.paused) {
            return false;
        }
        if std::mem::take(holds_loose) {
            allocator.ended(Claimant::Loose, End::Done, time);
        }
        if !self.leave_lanes(id, 1) {
            return false;
        }
        let Some(allocator) = self.allocator.as_mut() else { return false };
        let begins = allocator.take_ready(id, time);
        if !begins {
            // There are fewer workers by now. Its caller reports it as ready when others can find
            // it.
            allocator.unready(id, 1, time);
            self.entry(id).expect("the job has a subtask").blocked += 1;
        }
        self.update_splitter_pause(id);
        begins
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

    fn back(id: JobId, take: Take, report: BatchReport) -> WorkerReport {
        WorkerReport { who: Claimant::Job(id), take, report }
    }

    /// Returns a table with a job that splits off subtasks, and the id of the job.
    fn table(workers: usize, subtasks: u64) -> (JobTable<u64, ()>, JobId) {
        let mut table = JobTable::<u64, ()>::new();
        let mut allocator = Box::new(JobRules::default().allocator(workers));
        let id = allocator.submit(Supply::Split { expected: Some(subtasks) }, 1, 0);
        table.allocator = Some(allocator);
        // Only the allocator uses it.
        let runner: Arc<dyn JobRunner<u64, ()>> = TestJob::new(2, || ());
        let job = JobEntry { id, runner, splitting: false, blocked: 0, splitter_paused: false };
        table.jobs = vec![Some(job)];
        (table, id)
    }

    fn assign(table: &mut JobTable<u64, ()>, loose: bool) -> WorkerAssignment {
        table.assign(loose, &mut CurrentJob::default())
    }

    /// A subtask that another worker finds in its lane while the worker that enqueues it is still
    /// at it is not taken for a running future.
    #[test]
    fn a_subtask_that_is_found_at_once_is_counted_as_ready() {
        let (mut table, id) = table(2, 2);
        let split = WorkerAssignment::Job { take: Take::Split, alone: true };
        // The first waits, becomes ready, and continues as a future.
        assert_eq!(assign(&mut table, false), split);
        table.note_blocked(id, Take::Split);
        table.ready(id);
        table.split(id, false, 0);
        let WorkerAssignment::Job { take: Take::Ready, .. } = assign(&mut table, false) else {
            panic!("it is ready")
        };
        table.record_report(back(id, Take::Ready, BatchReport::ended(End::Waits)));
        // The second is ready before its worker lets others call the splitter, and the first ends.
        assert_eq!(assign(&mut table, false), split);
        table.note_blocked(id, Take::Split);
        table.ready(id);
        assert!(table.allocator.as_mut().unwrap().settled(id, false, 0));
        table.split(id, true, 0);
        let progress = table.allocator.as_ref().unwrap().progress(id).unwrap();
        assert_eq!((progress.done, progress.ready, progress.waiting), (1, 1, 0));
    }

    /// A worker in the lanes goes over to the job and counts what it has run there; the job ends with
    /// its report, and not before.
    #[test]
    fn subtasks_that_are_run_in_their_lanes_are_counted_by_one_report() {
        let (mut table, id) = table(1, 5);
        assign(&mut table, false);
        table.note_announced(id, 4);
        table.note_blocked(id, Take::Split);
        table.split(id, true, 0);
        assert_eq!(assign(&mut table, true), WorkerAssignment::Loose);
        let mut holds_loose = true;
        assert!(table.begin_in_lane(id, &mut holds_loose) && !holds_loose);
        let progress = table.allocator.as_ref().unwrap().progress(id).unwrap();
        assert_eq!((progress.running, progress.waiting), (1, 4));
        let more = BatchReport {
            more_done: 2,
            more_failed: 1,
            in_lanes: true,
            ..BatchReport::ended(End::Done)
        };
        table.record_report(back(id, Take::Ready, more));
        let progress = table.allocator.as_ref().unwrap().progress(id).unwrap();
        assert_eq!((progress.done, progress.failed, progress.waiting), (3, 1, 1));
        assert!(table.begin_in_lane(id, &mut holds_loose) && table.finished.is_empty());
        table.record_report(back(id, Take::Ready, BatchReport::ended(End::Done)));
        assert_eq!(table.finished[0].1.done, 4);
    }

    /// The rules decide beside another job, and a paused job starts nothing.
    #[test]
    fn no_subtask_begins_in_its_lane_beside_another_job_or_in_a_paused_one() {
        let (mut table, id) = table(2, 2);
        assign(&mut table, false);
        table.note_announced(id, 1);
        table.note_blocked(id, Take::Split);
        let allocator = table.allocator.as_mut().unwrap();
        allocator.pause(id, 0);
        assert!(!table.begin_in_lane(id, &mut false));
        let allocator = table.allocator.as_mut().unwrap();
        allocator.resume(id, 0);
        let other = allocator.submit(Supply::Ready(1), 1, 0);
        assert!(!table.begin_in_lane(id, &mut false));
        table.allocator.as_mut().unwrap().cancel(other, 0);
        assert!(table.begin_in_lane(id, &mut false));
        // A job that is cancelled has discarded what waits.
        table.allocator.as_mut().unwrap().cancel(id, 0);
        assert!(!table.begin_in_lane(id, &mut false));
    }
}
