//! Loom models of a shared batch: every interleaving of its worker and one that steals from it.
//!
//! The job is the real one. The scheduler is a counter of ready subtasks; each assigned one must be
//! present.

use std::any::Any;
use std::sync::atomic::{AtomicUsize as Plain, Ordering::Relaxed};

use super::*;
use crate::complete::FallibleFn;
use crate::job::subtask::ClosureBody;
use crate::order::ClaimsRepr;
use crate::sync::model::{check, spawn};

/// Scheduler state of the model.
#[derive(Default)]
struct ModelRules {
    /// Number of subtasks reported as ready without an assigned worker.
    ready: Mutex<u64>,
    /// Number of open batches.
    batches: Mutex<isize>,
}

impl ModelRules {
    fn report(&self, stolen: &AtomicU64) {
        let mut ready = self.ready.lock();
        *ready += stolen.swap(0, Ordering::AcqRel);
    }

    /// Assigns the caller, if any subtask is ready.
    fn assign(&self) -> bool {
        let mut ready = self.ready.lock();
        let assigned = *ready != 0;
        *ready -= u64::from(assigned);
        assigned
    }
}

/// Worker context of the model.
struct Bare<'a>(&'a ModelRules);

impl WorkerCtx<u64, TaskBody> for Bare<'_> {
    fn split(&mut self, _: bool) {}

    fn subtasks_announced(&mut self, _: u64) {
        unreachable!("no subtask has keys")
    }

    fn announced_are_missing(&mut self, _: u64) {
        unreachable!("no subtask has keys")
    }

    fn subtask_blocked(&mut self) {
        unreachable!("no subtask has keys")
    }

    #[cfg(feature = "tokio")]
    fn subtask_detached(&mut self) {
        unreachable!("no subtask is a future")
    }

    fn enqueue(&mut self, _: Claims<u64>, _: TaskBody) -> Result<(), KeyPanic> {
        unreachable!("no subtask has keys")
    }

    fn publish_ready(&mut self, count: u64) {
        *self.0.ready.lock() += count;
    }

    fn open_batch(&mut self) {
        *self.0.batches.lock() += 1;
    }

    fn close_batch(&mut self) {
        *self.0.batches.lock() -= 1;
    }

    fn report_stolen(&mut self, stolen: &AtomicU64) {
        self.0.report(stolen);
    }

    fn start_unkeyed(&mut self) -> bool {
        true
    }

    fn end_unkeyed_run(&mut self) {}

    fn is_interrupted(&self) -> bool {
        false
    }

    fn subtask_starts(&mut self) {}
    fn subtask_ran(&mut self) {}
    fn failed(&self) {}
    fn panicked(&self, _: &(dyn Any + Send)) {}
}

/// OutcomeSink that drops all outcomes.
struct Nowhere;

impl OutcomeSink<(), ()> for Nowhere {
    fn put(
        &self,
        outcomes: &mut dyn Iterator<Item = super::super::sink::NumberedOutcome<(), ()>>,
        _: OnPanic<'_>,
    ) -> bool {
        outcomes.for_each(drop);
        true
    }

    fn finish(&self, _: JobEnding) {}
}

/// Runs subtasks of the job while any is ready. Each assigned one must be present.
fn work(job: &dyn JobRunner<u64, TaskBody>, rules: &ModelRules) {
    while rules.assign() {
        let report = job
            .run_batch(Take::Ready, BatchLimits { free: 1, keyed: 1 }, &mut Bare(rules))
            .expect("it has no keys");
        assert!(report.end == End::Done, "a worker was assigned to a missing subtask");
    }
}

/// A batch of three subtasks. Another worker steals those that have not started, at any moment, and
/// both run the ready ones then.
///
/// Caught: stolen subtasks granted after the lock of the batch is released, so that the scheduler
/// may hear of them before they can be found; a worker that does not check for stolen subtasks.
#[test]
fn stolen_subtasks_are_present_when_a_worker_is_assigned() {
    check(|| {
        let ran = Arc::new(Plain::new(0));
        let piece = |_| {
            let ran = ran.clone();
            let count = move || {
                ran.fetch_add(1, Relaxed);
                Ok(())
            };
            (Claims(ClaimsRepr::None), ClosureBody(FallibleFn(count)))
        };
        let pieces: Vec<_> = (0..3).map(piece).collect();
        let parts = CoreParts {
            name: "batch".into(),
            on_error: OnError::FinishAll,
            control: Weak::<
                crate::engine::Engine<u64, crate::pool::ClosureExecutor, crate::KeyBuildHasher>,
            >::new(),
            sink: Arc::new(Nowhere),
            max_waiting: 1,
        };
        let job = JobCore::new(JobSource::new(pieces.into_iter(), None), parts);
        let rules = Arc::new(ModelRules::default());
        let (theirs, thief_rules) = (job.clone(), rules.clone());
        let thief = spawn(move || {
            let closed = theirs.release_batches();
            if closed != 0 {
                thief_rules.report(theirs.stolen());
                *thief_rules.batches.lock() -= 1;
            }
            work(&*theirs, &thief_rules);
        });
        let report = job
            .run_batch(Take::Split, BatchLimits { free: 3, keyed: 1 }, &mut Bare(&rules))
            .expect("it has no keys");
        assert!(report.end == End::Done);
        work(&*job, &rules);
        thief.join().unwrap();
        work(&*job, &rules);
        assert_eq!(ran.load(Relaxed), 3);
        assert_eq!((*rules.ready.lock(), *rules.batches.lock()), (0, 0));
    });
}
