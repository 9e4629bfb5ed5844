//! The scheduler passes the conformance suite of order, which the library's pool passes as well.

use std::collections::HashMap;

use keylane_service::scheduler::{
    KeyFailurePolicy, NewJob, NewSubtask, RunEnd, RunStart, Scheduler, SchedulerSettings, Step,
};
use keylane_service::{JobNumber, KeyClaim};
use keylane_testkit::order::{Claims, Executor, Features, Use, check_order};

/// Scheduler with a job of one subtask for each task of the suite.
struct Service {
    scheduler: Scheduler,
    running: HashMap<usize, RunStart>,
}

impl Service {
    /// Lets jobs enter and leave that do so in slices.
    fn work_off(&mut self) {
        while self.scheduler.work_off(0).is_some() {}
    }
}

impl Executor for Service {
    const FEATURES: Features = Features {
        shared: true,
        limited: false,
        // A barrier of the suite conflicts with all tasks. One of the service conflicts with the
        // subtasks of its own job, and here each task is a job of its own, because a job's subtasks
        // arrive together. The scheduler's own random programs have jobs with barriers, and a model.
        barriers: false,
        cancelled_leave_at_once: true,
        failed_keep_keys: true,
        pause_spares_rollups: false,
    };

    fn new(slots: usize) -> Self {
        // Of two units, so that tasks with several keys enter in several slices.
        let settings = SchedulerSettings { slice: 2, ..SchedulerSettings::new(slots) };
        Service { scheduler: Scheduler::new(settings), running: HashMap::new() }
    }

    fn submit(&mut self, task: usize, claims: &Claims) {
        let keys: Vec<_> =
            claims.uses().iter().map(|(key, how)| ([*key], *how == Use::Shared)).collect();
        let keys: Vec<KeyClaim<'_>> =
            keys.iter().map(|(key, is_shared)| KeyClaim { key, is_shared: *is_shared }).collect();
        let subtask = NewSubtask { number: 0, keys, attempts_made: 0 };
        let job = NewJob::new(JobNumber(task as u64), vec![subtask]);
        self.scheduler.accept(NewJob { on_fail: KeyFailurePolicy::StopKey, ..job }, 0);
        self.work_off();
    }

    fn next_start(&mut self, _: bool) -> Option<usize> {
        let start = self.scheduler.poll_start(0)?;
        let task = start.job.0 as usize;
        self.running.insert(task, start);
        Some(task)
    }

    fn end(&mut self, task: usize, fails: bool) {
        let start = self.running.remove(&task).unwrap();
        let end = if fails { RunEnd::Failed { retry_at: None } } else { RunEnd::Succeeded };
        self.scheduler.ended(start.job, Step::Subtask(0), start.fence, end, 0).unwrap();
        self.work_off();
    }

    fn cancel(&mut self, task: usize) {
        assert!(self.scheduler.cancel_job(JobNumber(task as u64), 0).unwrap().running.is_empty());
        self.work_off();
    }

    fn pause(&mut self, key: u8) {
        self.scheduler.pause_key(&[key], 0);
    }

    fn resume(&mut self, key: u8, gives_up: bool) -> Option<usize> {
        self.scheduler.resume_key(&[key], 0);
        let skipped = gives_up.then(|| self.scheduler.skip_head(&[key], 0).unwrap());
        self.work_off();
        skipped.map(|skipped| skipped.job.0 as usize)
    }

    fn resize(&mut self, slots: usize) {
        self.scheduler.resize(slots, 0);
    }

    fn finish(mut self) {
        self.work_off();
        assert!(!self.scheduler.has_work());
        assert_eq!(self.scheduler.running().len(), 0);
        assert!((0..=u8::MAX).all(|key| self.scheduler.key(&[key]).is_none()), "a lane is left");
    }
}

#[test]
fn the_scheduler_keeps_the_order_of_the_suite() {
    check_order::<Service>(0..4_000);
}
